"""Tokens of a corpus -> rows: [CLS] A [SEP] B [SEP], where B follows A in half of them, or [CLS] A [SEP].

A text alone is a run of whole sentences; what is longer than a row is cut. Pairs fill their rows, as in BERT's code,
and are parted between two sentences, or between two words where a text has only one. All that is drawn comes from a
generator that the caller makes from seed, epoch and batch, so that any batch can be made again by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.errors import DataError
from bertvision.pretraining.corpus import Corpus, Int64s, Vocabulary
from bertvision.windows.packing import cut_in_order
from bertvision.windows.plan import Rows

Bools = npt.NDArray[np.bool_]
NEXT, OTHER = 0, 1  # as `BertForPreTraining` numbers them: B follows A, or is from another document
SHORTEST = 2  # tokens of a row's text


class Chunks(NamedTuple):
    """What an epoch's rows are made of: pieces of documents, in order."""

    starts: Int64s
    stops: Int64s
    documents: Int64s  # that each is of

    @property
    def lengths(self) -> Int64s:
        """Count the tokens of each."""
        return self.stops - self.starts


class TextRows(NamedTuple):
    """Rows of tokens, one behind the other."""

    ids: Int64s
    segments: Int64s  # 1 for B and the [SEP] behind it
    is_special: Bools
    lengths: Int64s  # of the rows
    follows: Int64s  # NEXT or OTHER for each row

    @property
    def starts(self) -> Int64s:
        """Return where each row begins."""
        return np.cumsum(self.lengths) - self.lengths

    def places_of(self, chosen: Rows) -> Int64s:
        """Return the places of all tokens of some rows."""
        return ranges(self.starts[chosen], self.lengths[chosen])

    def part(self, chosen: Rows) -> "TextRows":
        """Return some of the rows."""
        at = self.places_of(chosen)
        tokens = self.ids[at], self.segments[at], self.is_special[at]
        return TextRows(*tokens, self.lengths[chosen], self.follows[chosen])

    @property
    def numbers(self) -> Int64s:
        """Return, for every token, which row it is of."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def cut_documents(
    corpus: Corpus, room: int, short_fraction: float, random: np.random.Generator, *, pairs: bool = False
) -> Chunks:
    """Cut every document, from its beginning on, into as many whole sentences as there is room for.

    With `pairs` a chunk fills its room: where only a B that follows ended with its sentence, its last token would tell
    the two kinds apart. A share of the chunks ends at a random length before that, as BERT's code has it, so that short
    rows are seen too. All documents are cut at once, a chunk of each at a time.
    """
    at, ends = corpus.documents[:-1].astype(np.int64), np.asarray(corpus.documents[1:])
    starts, stops, owners, left = [], [], [], np.flatnonzero(at < ends)
    while len(left):
        rooms = np.full(len(left), room)
        is_short = random.random(len(left)) < short_fraction
        rooms[is_short] = random.integers(SHORTEST, room + 1, is_short.sum())
        limits = np.minimum(at[left] + rooms, ends[left])
        found = limits if pairs else _whole_sentences(corpus, at[left], limits)
        starts.append(at[left])
        stops.append(found)
        owners.append(left)
        at[left] = found
        left = left[found < ends[left]]
    chunks = Chunks(*map(np.concatenate, (starts, stops, owners))) if starts else Chunks(*(np.zeros((3, 0), np.int64)))
    order = np.argsort(chunks.starts, kind="stable")
    order = order[chunks.lengths[order] >= SHORTEST]
    return Chunks(*(values[order] for values in chunks))


def _whole_sentences(corpus: Corpus, starts: Int64s, limits: Int64s) -> Int64s:
    """Return the ends of the last sentences within limits; a sentence without room is cut."""
    whole = corpus.sentences[np.searchsorted(corpus.sentences, limits, side="right") - 1]
    return np.where(whole > starts, whole, limits)


def plan_batches(chunks: Chunks, special: int, tokens: int, rows: int, random: np.random.Generator) -> list[Rows]:
    """Decide which chunks make up each batch of an epoch, shuffled: at most so many tokens and rows."""
    order = random.permutation(len(chunks.starts))
    return [order[places] for places in cut_in_order(chunks.lengths[order] + special, tokens, rows)]


def check_chunks(chunks: Chunks, *, pairs: bool) -> None:
    """Refuse documents that no rows can be made of."""
    if not len(chunks.starts):
        raise DataError(f"no document has {SHORTEST} tokens; give longer texts")
    if pairs and len(np.unique(chunks.documents)) < 2:
        raise DataError(
            "next sentences need a second document that others are taken from, and there is one; give more documents, "
            "or `objective=mlm`"
        )


def make_rows(
    corpus: Corpus, chunks: Chunks, chosen: Rows, vocabulary: Vocabulary, random: np.random.Generator, *, pairs: bool
) -> TextRows:
    """Make a row of every chosen chunk; with `pairs` it is parted in two, and half of the second parts are replaced."""
    starts, stops = chunks.starts[chosen], chunks.stops[chosen]
    if not pairs:
        nothing = np.zeros_like(starts)
        return _lay_out(corpus, vocabulary, (starts, stops), (nothing, nothing), np.full(len(chosen), NEXT))
    follows = np.where(random.random(len(chosen)) < 0.5, NEXT, OTHER)
    others = _from_other_documents(chunks, chosen, random)
    middles, b_others = _part(corpus, chunks, (chosen, others), vocabulary, random)
    ends = corpus.documents[chunks.documents[chosen] + 1], corpus.documents[chunks.documents[others] + 1]
    # B begins, ends and is as long as it is whether it follows or not: only what it says can tell. Where either would
    # end with its document it is cut: such ends, beside the length of a row, tell of which document B is.
    lengths = np.minimum(stops - middles, ends[1] - b_others)
    ends_there = (middles + lengths == ends[0]) | (b_others + lengths == ends[1])
    cut = 1 + (random.random(len(chosen)) * (lengths - 1)).astype(np.int64)
    lengths = np.where(ends_there, cut, lengths)
    b_starts = np.where(follows == NEXT, middles, b_others)
    return _lay_out(corpus, vocabulary, (starts, middles), (b_starts, b_starts + lengths), follows)


def _part(
    corpus: Corpus, chunks: Chunks, choices: Sequence[Rows], vocabulary: Vocabulary, random: np.random.Generator
) -> Int64s:
    """Part a row's chunks alike in two: between two sentences where each of them has two, else between two words."""
    starts, stops = (np.stack([values[each] for each in choices]) for values in (chunks.starts, chunks.stops))
    drawn = random.random(starts.shape)
    first = np.searchsorted(corpus.sentences, starts, side="right")
    bounds = np.searchsorted(corpus.sentences, stops, side="left") - first  # between sentences, inside
    has_all = bounds.min(axis=0) > 0
    at_sentence = corpus.sentences[np.minimum(first + (drawn * bounds).astype(np.int64), len(corpus.sentences) - 1)]
    middles: Int64s = np.where(has_all, at_sentence, starts + 1 + (drawn * (stops - starts - 1)).astype(np.int64))
    for place in map(tuple, np.argwhere(np.broadcast_to(~has_all, middles.shape))):
        while middles[place] < stops[place] - 1 and vocabulary.continues[corpus.ids[middles[place]]]:
            middles[place] += 1
    return middles


def _from_other_documents(chunks: Chunks, chosen: Rows, random: np.random.Generator) -> Rows:
    """Draw a chunk for every chosen one among those of all other documents; where there are none, among all."""
    own = chunks.documents[chosen]
    first = np.searchsorted(chunks.documents, own, side="left")
    inside = np.searchsorted(chunks.documents, own, side="right") - first
    inside[inside == len(chunks.starts)] = 0
    drawn = (random.random(len(chosen)) * (len(chunks.starts) - inside)).astype(np.int64)
    return np.where(drawn >= first, drawn + inside, drawn)


def _lay_out(
    corpus: Corpus, vocabulary: Vocabulary, a: Sequence[Int64s], b: Sequence[Int64s], follows: Int64s
) -> TextRows:
    """Put special tokens around the texts from a start to a stop; B may be empty."""
    a_lengths, b_lengths = a[1] - a[0], b[1] - b[0]
    has_b = b_lengths > 0
    lengths = a_lengths + b_lengths + 2 + has_b
    at = np.cumsum(lengths) - lengths
    ids, segments = np.full(lengths.sum(), vocabulary.id_of("[SEP]")), np.zeros(lengths.sum(), np.int64)
    is_special = np.ones(len(ids), dtype=np.bool_)
    ids[at] = vocabulary.id_of("[CLS]")
    for places, source in (
        (ranges(at + 1, a_lengths), ranges(a[0], a_lengths)),
        (ranges(at + 2 + a_lengths, b_lengths), ranges(b[0], b_lengths)),
    ):
        ids[places], is_special[places] = corpus.ids[source], False
    segments[ranges(at + 2 + a_lengths, b_lengths + has_b)] = 1
    return TextRows(ids, segments, is_special, lengths, follows)


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the numbers from each start on, one behind the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
