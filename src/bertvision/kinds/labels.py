"""Kinds that say labels: one class of several, whether a question has an answer, any number of labels, one choice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertvision.data.example import ChoiceRow, ColumnsConfig, Question, Split, TextRow
from bertvision.data.rows import LAYOUTS, choice_of, read_choices
from bertvision.data.shards import ShardRow
from bertvision.data.sources import BadExampleError
from bertvision.errors import DataError
from bertvision.files import write_json_rows
from bertvision.kinds.kind import Answering, Cutting, Golds, Labelled, Reading, TaskInfo
from bertvision.kinds.labelled import LabelKind, RowMember, TextRowKind
from bertvision.kinds.spans import QuestionKind
from bertvision.predictions.ensemble import LEAST, How, Weights, combine_sigmoid, combine_softmax
from bertvision.predictions.files import PAPER_FILE, class_of
from bertvision.predictions.logits import Logits, sigmoid, softmax
from bertvision.predictions.prediction import RowPrediction
from bertvision.scoring.mislabelled import suspect_labels
from bertvision.windows.cut import cut_choices
from bertvision.windows.window import Window


class Classes(TextRowKind):
    """One class of several."""

    name = "class"
    needs_two_labels = True
    names_labels = True
    holds = "class"
    contrast = "rows"
    can_be_taught = True
    grouped_by_class = True
    has_classes = True

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each row's likeliest class."""
        return predict_classes(ids, logits)

    def further_labels(self, values: Sequence[Any]) -> set[str]:
        """Return the classes that were predicted."""
        return {str(value) for value in values}


CLASSES = Classes()


def predict_classes(ids: Sequence[str], logits: Logits) -> list[RowPrediction]:
    """Take each row's likeliest class; logits are [row, class]."""
    best, probabilities = logits.argmax(axis=1).tolist(), softmax(logits).tolist()
    return [RowPrediction(*each) for each in zip(ids, best, map(tuple, probabilities), strict=True)]


NO_ANSWER = 1  # the class of a question, or of a window, that has none


class Answerable(QuestionKind, LabelKind):
    """A class of a question, which has several windows."""

    name = "answerable"
    classifies_windows = True
    grouped_by_class = True
    has_classes = True

    def lay_out(self, examples: Sequence[Question], windows: Sequence[Window]) -> npt.NDArray[Any]:
        """Return which question each window belongs to."""
        return np.array([window.example for window in windows])

    def decode(self, asked: Answering, logits: Logits) -> list[RowPrediction]:
        """Say of each question whether it has no answer."""
        return predict_answerable([example.id for example in asked.split.examples], asked.layout, logits)

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each question's class, from what was said of the question as a whole."""
        return predict_classes(ids, logits)

    def gold(self, example: Question) -> int:
        """Return whether the question has no answer."""
        return int(example.is_impossible)

    def guesses(self, golds: Golds, train: Sequence[Question]) -> list[RowPrediction]:
        """Predict the commoner class, by the 2020 system's rule too."""
        guess = self.guess([self.gold(example) for example in train])
        return [RowPrediction(each.id, guess, paper_label=guess) for each in golds.examples]

    def write(self, folder: Path, golds: Golds, predictions: Sequence[RowPrediction], part: str = "") -> None:
        """Write predictions by id, also those by the 2020 system's rule where there are any."""
        super().write(folder, golds, predictions, part)
        paper = {each.id: golds.labels[each.paper_label] for each in predictions if each.paper_label is not None}
        if paper:
            write_json_rows(folder / PAPER_FILE, paper)


ANSWERABLE = Answerable()


def predict_answerable(ids: Sequence[str], question_of: npt.NDArray[Any], logits: Logits) -> list[RowPrediction]:
    """Say of each question whether it has no answer: it has none only if all its windows say so.

    Logits are [window, 2], `question_of` is [window]. By the 2020 system's rule (`paper_label`) one such window is
    enough.
    """
    no_answer = softmax(logits)[:, NO_ANSWER]
    says_none = logits.argmax(axis=1)
    lowest = np.full(len(ids), np.inf)
    all_say, any_says = np.ones(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    np.minimum.at(lowest, question_of, no_answer)
    np.minimum.at(all_say, question_of, says_none)
    np.maximum.at(any_says, question_of, says_none)
    pairs = [(1 - each, each) for each in lowest.tolist()]
    found = zip(ids, all_say.tolist(), pairs, any_says.tolist(), strict=True)
    return [RowPrediction(*each) for each in found]


THRESHOLD = 0.5  # a label is taken where its probability exceeds this
LabelSet = tuple[int, ...]  # a 0 or 1 for each label


class Labels(TextRowKind):
    """Any number of labels."""

    name = "labels"
    names_labels = True
    holds = "labels"
    contrast = "rows"
    softmax = None
    types = ("By label", "label")
    has_total = True

    def count_labels(self, examples: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
        """Count the rows that have each label."""
        return {label: sum(row.label[place] for row in examples) for place, label in enumerate(labels)}

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each row's labels."""
        return predict_label_sets(ids, logits)

    def logits_of(self, golds: Golds, member: RowMember) -> Logits:
        """Return logits that have the probabilities of a prediction folder."""
        shares = np.clip(self.probabilities_of(golds, member), LEAST, 1 - LEAST)
        return np.log(shares / (1 - shares)).astype(np.float32)

    def fits(self, prediction: RowPrediction) -> bool:
        """Whether the labels are those whose probabilities are high enough."""
        return prediction.label == tuple(int(share > THRESHOLD) for share in prediction.probabilities)

    def combine(
        self, layout: None, members: Sequence[Logits], how: How, weights: Weights = None, labels: Sequence[str] = ()
    ) -> Logits:
        """Combine models label by label."""
        return combine_sigmoid(members, how, weights)

    def show(self, example: TextRow, label: LabelSet, labels: Sequence[str]) -> list[str]:
        """Return the names of the labels that are there."""
        return self.to_json(label, labels)

    def wrongness(self, example: TextRow, prediction: RowPrediction) -> float:
        """Return how far the probability of the worst label lies from its gold."""
        pairs = zip(self.gold(example), prediction.probabilities, strict=False)
        return max((abs(gold - share) for gold, share in pairs), default=0.0)

    def sureness(self, prediction: RowPrediction) -> None:
        """Return None: labels have a probability each."""
        return

    def suspects(self, golds: Golds, predictions: Sequence[RowPrediction]) -> list[int] | None:
        """Return the rows any of whose labels looks wrong."""
        if not all(each.probabilities for each in predictions):
            return None
        return suspect_labels(self.gold_values(golds), np.array([each.probabilities for each in predictions]))

    def named(self, label: LabelSet, labels: Sequence[str]) -> set[tuple[Any, ...]]:
        """Return the labels that are there."""
        return {(name,) for name, is_on in zip(labels, label, strict=True) if is_on}

    def guess(self, golds: Sequence[LabelSet]) -> LabelSet:
        """Return the labels that more than half of the rows have."""
        return tuple((np.mean(golds, axis=0) > 0.5).astype(int).tolist())

    def to_json(self, label: LabelSet, labels: Sequence[str]) -> list[str]:
        """Return the names of the labels that are there."""
        return [name for name, is_on in zip(labels, label, strict=True) if is_on]

    def from_json(self, where: str, value: Any, labels: Sequence[str], info: TaskInfo) -> LabelSet:  # noqa: ANN401
        """Return the labels that a list names."""
        if not isinstance(value, list):
            raise DataError(f"{where}: expected a list of labels, got {value!r:.80}")
        taken = {class_of(where, each, labels, has_numbers=info.hub is not None) for each in value}
        return tuple(int(place in taken) for place in range(len(labels)))

    def further_labels(self, values: Sequence[Any]) -> set[str]:
        """Return the labels that were predicted."""
        return {str(each) for value in values for each in (value if isinstance(value, list) else (value,))}


LABELS = Labels()


def predict_label_sets(ids: Sequence[str], logits: Logits, threshold: float = THRESHOLD) -> list[RowPrediction]:
    """Take every label whose probability exceeds the threshold; logits are [row, label]."""
    probabilities = sigmoid(logits)
    taken = (probabilities > threshold).astype(int).tolist()
    found = zip(ids, map(tuple, taken), map(tuple, probabilities.tolist()), strict=True)
    return [RowPrediction(*each) for each in found]


class Choices(LabelKind):
    """The best of several endings, each in a window of its own; an ending is named by its number."""

    name = "choice"
    softmax = "windows"
    loses_ends = True
    has_classes = True
    pipeline = "multiple-choice"
    second = "endings"
    has_endings = True
    row_columns = LAYOUTS

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read SWAG's or HellaSwag's file."""
        split = read_choices(
            source,
            hub=info.hub,
            on_bad=reading.data.on_bad,
            hub_split=reading.hub_split,
            needs_labels=reading.need != "optional",
            advice=reading.advice,
            form=reading.data.form,
        )
        return Labelled(split, _ending_names(split, reading.labels))

    def cut(self, examples: Sequence[ChoiceRow], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Turn every ending into one window."""
        return cut_choices(examples, how.tokenizer, how.config.max_length, how.progress)

    def columns(self, labels: Sequence[str]) -> int:
        """Return 1: the score of an ending."""
        return 1

    def group(self, labels: Sequence[str]) -> int:
        """Return the number of endings."""
        return len(labels)

    def example(self, identity: str, text: str, second: Any = None) -> ChoiceRow:  # noqa: ANN401 (texts)
        """Return a text with its endings."""
        return ChoiceRow(identity, text, tuple(second), None)

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> ChoiceRow:
        """Return a beginning with as many endings as the model chooses from."""
        found = choice_of(identity, row.cells)
        if len(found.endings) != len(labels):
            raise BadExampleError(
                f"{len(found.endings)} endings, and the model chooses among {len(labels)}; give as many"
            )
        return found

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[RowPrediction]:
        """Return each row's best ending."""
        return predict_choices(ids, logits, len(labels))

    def combine(
        self, layout: None, members: Sequence[Logits], how: How, weights: Weights = None, labels: Sequence[str] = ()
    ) -> Logits:
        """Combine models by a softmax over the endings of each row."""
        return combine_softmax(members, how, weights, group=len(labels))

    def logits_of(self, golds: Golds, member: RowMember) -> Logits:
        """Return logits as windows have them."""
        return super().logits_of(golds, member).reshape(-1, 1)

    def texts(self, example: ChoiceRow) -> dict[str, str]:
        """Return the text and its endings."""
        return {"context": example.context} | {f"ending {n}": text for n, text in enumerate(example.endings)}

    def to_json(self, label: int, labels: Sequence[str]) -> int:
        """Return the ending's number."""
        return label


CHOICES = Choices()


def predict_choices(ids: Sequence[str], logits: Logits, endings: int) -> list[RowPrediction]:
    """Take each row's best ending; logits are [window, 1], a row's endings one after another."""
    return predict_classes(ids, logits.reshape(-1, endings))


def _ending_names(split: Split[ChoiceRow], expected: tuple[str, ...]) -> tuple[str, ...]:
    """Name the endings by their numbers; refuse rows with other than the expected number of them, if there is one."""
    found = len(split.examples[0].endings)
    if expected and found != len(expected):
        raise DataError(f"{split.name}: its rows have {found} endings, those of train {len(expected)}; give as many")
    return tuple(map(str, range(found)))
