"""A tag for each word of a sentence."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.conll import read_ner, tag_names, word_spans
from bertvision.data.example import ColumnsConfig, Sentence
from bertvision.data.shards import ShardRow
from bertvision.data.sources import BadExampleError
from bertvision.data.tables import plain_text
from bertvision.errors import DataError, SettingsError
from bertvision.files import write_json_rows, write_text
from bertvision.kinds.kind import Answering, CellsByName, Cutting, Golds, Joined, Labelled, Reading, TaskInfo
from bertvision.kinds.labelled import LabelKind, RowMember
from bertvision.predictions.ensemble import How, Weights
from bertvision.predictions.files import PREDICTIONS, in_order, known_gold, read_values
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig, TagPrediction
from bertvision.scoring.metrics import TAG_SCORES, Numbers, entities, score_tags
from bertvision.scoring.squad import Scores
from bertvision.windows.cut import cut_words
from bertvision.windows.window import Window

CONLL = "predictions.conll"
TagNames = tuple[str, ...]


class PlacedWords(NamedTuple):
    """What every token speaks for, all windows' tokens one after another."""

    sentence_of: npt.NDArray[Any]  # [token] the sentence
    word_of: npt.NDArray[Any]  # [token] the word of it whose tag is read there, or -1


class Tags(LabelKind):
    """A tag for each word."""

    name = "tags"
    per = "token"
    noun = "sentence"
    cluster = "document"
    labels_words = True
    row_columns = "a column `text`, or a list `words`"
    summed = TAG_SCORES
    is_right_or_wrong = False
    types = ("By entity type", "type")
    has_total = True
    pipeline = "token-classification"
    usage = 'model("Hannah Coyle built the weir.").entities'
    predictor = "tagger"

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a CoNLL file."""
        sentences = read_ner(
            source,
            tagging=reading.data.tagging,
            labels=reading.labels,
            on_bad=reading.data.on_bad,
            needs_labels=reading.need != "optional",
            advice=reading.advice,
            encoding=reading.data.encoding,
        )
        return Labelled(sentences, reading.labels or tag_names(sentences))

    def cut(self, examples: Sequence[Sentence], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Cut sentences into windows, in which a word's first piece has its tag."""
        return cut_words(examples, labels, how.tokenizer, how.config, labelled=how.labelled, progress=how.progress)

    def example(self, identity: str, text: str, second: Any = None) -> Sentence:  # noqa: ANN401 (none is given)
        """Return the words of a text; texts with numbers of their own are documents of their own."""
        return Sentence(identity, tuple(text[slice(*span)] for span in word_spans(text)), None, int(identity))

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> Sentence:
        """Return the list `words` (or `tokens`), or else the words of `text`: a document of its own."""
        listed = row.cells.get("words", row.cells.get("tokens"))
        if listed is None:
            text = plain_text(row.cells.get("text"), "text")
            listed = [text[slice(*span)] for span in word_spans(text)]
        if not isinstance(listed, list) or not listed:
            raise BadExampleError("column `words` is no list of words; give one, or a column `text`")
        return Sentence(identity, tuple(plain_text(word, "words") for word in listed), None, row.line)

    def count_labels(self, examples: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
        """Count the words of each tag."""
        tags = Counter(tag for sentence in examples for tag in sentence.tags)
        return {label: tags[label] for label in labels}

    def lay_out(self, examples: Sequence[Sentence], windows: Sequence[Window]) -> PlacedWords:
        """Return the sentence and word of every token."""
        sentence_of = np.repeat([window.example for window in windows], [len(window) for window in windows])
        return PlacedWords(sentence_of, np.concatenate([each.words for each in windows if each.words is not None]))

    def decode(self, asked: Answering, logits: Logits) -> list[TagPrediction]:
        """Return a tag for every word."""
        placed: PlacedWords = asked.layout
        return predict_tags(asked.split.examples, asked.labels, placed.sentence_of, placed.word_of, logits)

    def gold(self, example: Sentence) -> TagNames:
        """Return the sentence's tags."""
        tags: TagNames = known_gold(example.id, example.tags)
        return tags

    def said(self, prediction: TagPrediction) -> frozenset[str]:
        """Return which tags there are: sentences of one tag alone are alike, however long."""
        return frozenset(prediction.tags)

    def wanted(self, example: Sentence) -> frozenset[str]:
        """Return which tags the gold has."""
        return frozenset(self.gold(example))

    def name_of(self, said: frozenset[str], labels: Sequence[str]) -> str:
        """Name the tags."""
        return " and ".join(sorted(said))

    def label(self, prediction: TagPrediction) -> TagNames:
        """Return the predicted tags."""
        return prediction.tags

    def texts(self, example: Sentence) -> dict[str, str]:
        """Return the words."""
        return {"words": " ".join(example.words)}

    def show(self, example: Sentence, label: TagNames, labels: Sequence[str]) -> list[str]:
        """Return the entities with their words."""
        return [f"{each.type}: {' '.join(example.words[each.first : each.end])}" for each in entities(label)]

    def named(self, label: TagNames, labels: Sequence[str]) -> set[tuple[Any, ...]]:
        """Return the entities."""
        return {(each.type, each.first, each.end) for each in entities(label)}

    def type_names(self, labels: Sequence[str]) -> None:
        """Return None: entity types are those that are found or there."""
        return

    def score(self, golds: Golds, predictions: Sequence[TagPrediction], config: AnswerConfig | None = None) -> Scores:
        """Return the scores of whole entities, and of words."""
        truths = [self.gold(example) for example in golds.examples]
        return score_tags(truths, [each.tags for each in in_order(golds.examples, predictions)])

    def guesses(self, golds: Golds, train: Sequence[Sentence]) -> list[TagPrediction]:
        """Predict no entity at all."""
        return [TagPrediction(each.id, ("O",) * len(self.gold(each))) for each in golds.examples]

    def gold_values(self, golds: Golds) -> Numbers:
        """Return the number of entities and of words, [sentence, 2]."""
        truths = (self.gold(example) for example in golds.examples)
        return np.array([(len(entities(tags)), len(tags)) for tags in truths])

    def values(self, metric: str, golds: Golds, predictions: Sequence[TagPrediction]) -> Numbers:
        """Return the number of right entities, of entities and of right words, [sentence, 3]."""
        truths = (self.gold(example) for example in golds.examples)
        return np.array([_counts(gold, each.tags) for gold, each in zip(truths, predictions, strict=True)])

    def wrongness(self, example: Sentence, prediction: TagPrediction) -> float:
        """Return how many entities are missed or made up."""
        return len(set(entities(self.gold(example))) ^ set(entities(prediction.tags)))

    def sureness(self, prediction: TagPrediction) -> None:
        """Return None: predicted tags have no probabilities."""
        return

    def suspects(self, golds: Golds, predictions: Sequence[TagPrediction]) -> None:
        """Return None, for the same reason."""
        return

    def write(self, folder: Path, golds: Golds, predictions: Sequence[TagPrediction], part: str = "") -> None:
        """Write tags by sentence, and as columns for conlleval: word, tag (where it is known) and predicted tag."""
        write_json_rows(folder / PREDICTIONS, {each.id: each.tags for each in predictions})
        columns = (
            "".join(f"{' '.join(word)}\n" for word in zip(*_columns(sentence, found), strict=True))
            for sentence, found in zip(golds.examples, predictions, strict=True)
        )
        write_text(folder / CONLL, "\n".join(columns))

    def tabulate(
        self, golds: Golds, predictions: Sequence[TagPrediction], names: Sequence[str] = ()
    ) -> list[CellsByName]:
        """Return a line for each word."""
        return [
            {"sentence": sentence.id, "word": word, "tag": tag}
            for sentence, found in zip(golds.examples, predictions, strict=True)
            for word, tag in zip(sentence.words, found.tags, strict=True)
        ]

    def as_line(self, example: Sentence, prediction: TagPrediction, labels: Sequence[str]) -> CellsByName:
        """Return the words and their tags."""
        return {"id": example.id, "words": list(example.words), "tags": list(prediction.tags)}

    def read_predictions(self, path: Path, golds: Golds, *, whole: bool = False) -> list[TagPrediction]:
        """Read a tag for each word of each sentence."""
        words = {sentence.id: len(sentence.words) for sentence in golds.examples}
        found = []
        for key, value in read_values(path).items():
            if not isinstance(value, list) or not all(isinstance(tag, str) and tag for tag in value):
                raise DataError(f"{path}: sentence {key!r}: expected a list of tags, got {value!r:.80}")
            if (wanted := words.get(key, len(value))) != len(value):
                raise DataError(f"{path}: sentence {key!r}: {len(value)} tags for {wanted} words; predict again")
            found.append(TagPrediction(key, tuple(value)))
        return in_order(golds.examples, found, str(path))

    def join(
        self, golds: Golds, members: Sequence[RowMember], how: How, shares: Weights, config: AnswerConfig
    ) -> Joined:
        """Let the members vote for the tag of each word; of equals, the tag of the first member is taken."""
        if how not in ("mean", "weighted"):
            raise SettingsError(f"`how={how}`: prediction folders of tags hold no probabilities; use mean or weighted")
        voices = shares or [1.0] * len(members)
        voted = [
            _vote([each.tags for each in same], voices)
            for same in zip(*(member.predictions for member in members), strict=True)
        ]
        predictions = [TagPrediction(each.id, tags) for each, tags in zip(golds.examples, voted, strict=True)]
        return Joined(predictions, "votes")


TAGS = Tags()


def predict_tags(
    sentences: Sequence[Sentence],
    tags: Sequence[str],
    sentence_of: npt.NDArray[Any],
    word_of: npt.NDArray[Any],
    logits: Logits,
) -> list[TagPrediction]:
    """Take for each word the best tag of the token that speaks for it; a word without such a token gets O.

    All windows' tokens lie one after another: logits are [token, tag], `sentence_of` [token] is the sentence and
    `word_of` [token] the word of it that a token speaks for, or -1.
    """
    found = [["O"] * len(sentence.words) for sentence in sentences]
    speaking = np.flatnonzero(word_of >= 0)
    best = logits[speaking].argmax(axis=1)
    for sentence, word, tag in zip(
        sentence_of[speaking].tolist(), word_of[speaking].tolist(), best.tolist(), strict=True
    ):
        found[sentence][word] = tags[tag]
    return [TagPrediction(sentence.id, tuple(each)) for sentence, each in zip(sentences, found, strict=True)]


def _counts(gold: Sequence[str], found: Sequence[str]) -> tuple[int, int, int]:
    one, other = set(entities(gold)), set(entities(found))
    return len(one & other), len(other), sum(a == b for a, b in zip(gold, found, strict=True))


def _columns(sentence: Sentence, found: TagPrediction) -> list[Sequence[str]]:
    return [sentence.words, *([sentence.tags] if sentence.tags is not None else []), found.tags]


def _vote(tags: Sequence[TagNames], voices: Sequence[float]) -> TagNames:
    """Take each word's tag with the most voices."""
    voted = []
    for word in zip(*tags, strict=True):
        counts: dict[str, float] = {}
        for tag, voice in zip(word, voices, strict=True):
            counts[tag] = counts.get(tag, 0.0) + voice
        voted.append(max(counts, key=counts.__getitem__))
    return tuple(voted)
