"""Rows are runs of one document's sentences, and pairs follow each other half of the time."""

import numpy as np
import pytest

from bertvision.errors import DataError
from bertvision.pretraining.corpus import Corpus
from bertvision.pretraining.rows import NEXT, OTHER, check_chunks, cut_documents, make_rows, plan_batches

ROOM = 29


def random_for(number=0):
    return np.random.default_rng([7, number])


def documents_of(corpus, starts):
    return np.searchsorted(corpus.documents, starts, side="right") - 1


@pytest.fixture
def chunks(prepared):
    return cut_documents(prepared.train, ROOM, 0.1, random_for())


def test_chunks_hold_every_token_once_and_none_crosses_documents(prepared, chunks):
    corpus = prepared.train
    assert chunks.lengths.max() <= ROOM
    assert (documents_of(corpus, chunks.starts) == documents_of(corpus, chunks.stops - 1)).all()
    np.testing.assert_array_equal(chunks.documents, documents_of(corpus, chunks.starts))
    places = np.concatenate([np.arange(*bounds) for bounds in zip(chunks.starts, chunks.stops, strict=True)])
    assert len(np.unique(places)) == len(places) > 0.99 * len(corpus.ids)  # but single tokens at the ends of documents


def test_chunks_end_with_sentences_unless_one_is_too_long(prepared, chunks):
    bounds = set(prepared.train.sentences.tolist())
    long = np.diff(prepared.train.sentences) > ROOM
    ends_inside = [stop for stop in chunks.stops.tolist() if stop not in bounds]
    assert not long.any()
    assert len(ends_inside) / len(chunks.stops) < 0.1  # those of rows that are cut short


def test_a_sentence_that_is_longer_than_a_row_is_cut():
    corpus = Corpus(np.arange(100), np.array([0, 90, 100]), np.array([0, 100]))
    chunks = cut_documents(corpus, 40, 0.0, random_for())
    assert list(zip(chunks.starts, chunks.stops, strict=True)) == [(0, 40), (40, 80), (80, 100)]


def test_rows_are_drawn_anew_in_every_epoch_and_alike_from_one_seed(prepared):
    one, again, other = (cut_documents(prepared.train, ROOM, 0.5, random_for(number)) for number in (1, 1, 2))
    np.testing.assert_array_equal(one.starts, again.starts)
    assert one.starts.tolist() != other.starts.tolist()


def test_batches_hold_every_chunk_once_within_their_room(chunks):
    batches = plan_batches(chunks, 3, 256, 12, random_for())
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(chunks.starts)))
    assert max(len(each) for each in batches) <= 12
    assert max((chunks.lengths[each] + 3).sum() for each in batches) <= 256


def pairs_of(prepared, rows):
    """Return the tokens of A and B of every row, checked to stand between special tokens."""
    tokenizer, found = prepared.vocabulary.tokenizer, []
    for start, length in zip(rows.starts, rows.lengths, strict=True):
        ids, segments = (values[start : start + length] for values in (rows.ids, rows.segments))
        assert ids[0] == tokenizer.cls_token_id
        (middle, last) = np.flatnonzero(ids == tokenizer.sep_token_id)
        assert last == length - 1
        np.testing.assert_array_equal(segments, np.arange(length) > middle)
        found.append((ids[1:middle], ids[middle + 1 : last]))
    return found


def place_of(corpus, text):
    """Return all places at which a run of tokens stands."""
    starts = np.flatnonzero(corpus.ids[: len(corpus.ids) - len(text) + 1] == text[0])
    return [start for start in starts if (corpus.ids[start : start + len(text)] == text).all()]


def test_next_sentences_follow_in_their_document_and_others_are_of_another_one(prepared):
    corpus = prepared.train
    chunks = cut_documents(corpus, ROOM, 0.1, random_for(), pairs=True)
    chosen = np.arange(len(chunks.starts))
    rows = make_rows(corpus, chunks, chosen, prepared.vocabulary, random_for(), pairs=True)
    checked = {NEXT: 0, OTHER: 0}
    for number, (a, b) in enumerate(pairs_of(prepared, rows)):
        own = documents_of(corpus, chunks.starts[number])
        np.testing.assert_array_equal(a, corpus.ids[chunks.starts[number] : chunks.starts[number] + len(a)])
        after = chunks.starts[number] + len(a)
        assert 1 <= len(b) <= chunks.stops[number] - after
        if rows.follows[number] == NEXT:
            np.testing.assert_array_equal(b, corpus.ids[after : after + len(b)])
        elif len(b) > 6:  # shorter ones stand in several documents
            assert all(documents_of(corpus, place) != own for place in place_of(corpus, b))
        checked[int(rows.follows[number])] += 1
    assert min(checked.values()) > 20


def test_with_pairs_chunks_fill_their_rows(prepared):
    chunks = cut_documents(prepared.train, ROOM, 0.0, random_for(), pairs=True)
    is_last = np.isin(chunks.stops, prepared.train.documents)
    assert set(chunks.lengths[~is_last].tolist()) == {ROOM}
    assert len(chunks.starts) > 10 * is_last.sum()


@pytest.mark.parametrize("sentences", [30, 3, 1])  # documents of many rows, of about one, and of a part of one
def test_neither_the_ends_nor_the_lengths_of_pairs_tell_whether_they_follow(prepared, sentences):
    lengths = np.random.default_rng(5).integers(8, 25, 600 * sentences)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    ordinary = prepared.vocabulary.ordinary
    *others, stop, begin = ordinary[~prepared.vocabulary.continues[ordinary]]
    ids = np.resize(others, bounds[-1])
    ids[bounds[1:] - 1], ids[bounds[:-1]] = stop, begin  # every sentence's last and first, and nothing else's
    corpus = Corpus(ids, bounds, bounds[::sentences])
    chunks = cut_documents(corpus, 61, 0.1, random_for(), pairs=True)
    rows = make_rows(corpus, chunks, np.arange(len(chunks.starts)), prepared.vocabulary, random_for(), pairs=True)
    follows, ends = rows.follows == NEXT, rows.starts + rows.lengths - 2
    begins = np.array(
        [
            np.flatnonzero(rows.segments[start : start + length])[0]
            for start, length in zip(rows.starts, rows.lengths, strict=True)
        ]
    )
    is_whole, is_short = rows.ids[ends] == stop, rows.lengths < np.median(rows.lengths)
    fits = (rows.ids[rows.starts + begins - 2] == stop) == (rows.ids[rows.starts + begins] == begin)
    assert len(follows) > 500
    for told in (is_whole, rows.lengths, begins, is_whole & is_short, is_whole & ~is_short, fits):
        apart = told[follows].mean() - told[~follows].mean()
        spread = np.sqrt(told[follows].var() / follows.sum() + told[~follows].var() / (~follows).sum())
        assert abs(apart) <= 4 * spread


def test_half_of_the_pairs_follow_each_other(prepared, chunks):
    chosen = np.arange(len(chunks.starts))
    follows = np.concatenate(
        [
            make_rows(prepared.train, chunks, chosen, prepared.vocabulary, random_for(n), pairs=True).follows
            for n in range(30)
        ]
    )
    spread = 4 * 0.5 / np.sqrt(len(follows))  # four standard deviations of a fair coin's mean
    assert len(follows) > 3000
    assert abs((follows == NEXT).mean() - 0.5) < spread


def test_a_text_alone_stands_between_two_special_tokens(prepared, chunks):
    rows = make_rows(prepared.train, chunks, np.array([3, 0]), prepared.vocabulary, random_for(), pairs=False)
    expected = [np.array(prepared.train.ids[chunks.starts[n] : chunks.stops[n]]) for n in (3, 0)]
    tokenizer = prepared.vocabulary.tokenizer
    whole = [[tokenizer.cls_token_id, *each, tokenizer.sep_token_id] for each in expected]
    assert rows.ids.tolist() == [*whole[0], *whole[1]]
    assert rows.lengths.tolist() == [len(whole[0]), len(whole[1])]
    assert not rows.segments.any()


def test_one_sentence_is_parted_between_words(prepared):
    corpus = Corpus(prepared.train.ids[:20], np.array([0, 20]), np.array([0, 20]))
    chunks = cut_documents(corpus, ROOM, 0.0, random_for())
    for number in range(50):
        rows = make_rows(corpus, chunks, np.array([0]), prepared.vocabulary, random_for(number), pairs=True)
        first = rows.ids[np.flatnonzero(rows.segments)[0]]
        assert rows.follows[0] == OTHER or not prepared.vocabulary.continues[first] or rows.segments.sum() == 2


@pytest.mark.parametrize(
    ("lengths", "pairs", "message"),
    [([1, 1, 1], False, "no document has 2 tokens"), ([9], True, "or `objective=mlm`"), ([], True, "no document")],
)
def test_documents_that_no_rows_can_be_made_of_are_refused(lengths, pairs, message):
    bounds = np.cumsum([0, *lengths])
    chunks = cut_documents(Corpus(np.zeros(sum(lengths), int), bounds, bounds), ROOM, 0.1, random_for())
    with pytest.raises(DataError, match=message):
        check_chunks(chunks, pairs=pairs)
