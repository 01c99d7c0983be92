"""The best of several continuations of a text."""

from collections.abc import Sequence
from typing import Any

from bertvision.data.choices import LAYOUTS, choice_of, read_choices
from bertvision.data.example import ChoiceRow, ColumnsConfig, Split
from bertvision.data.shards import ShardRow
from bertvision.data.sources import BadExampleError
from bertvision.errors import DataError
from bertvision.kinds.classes import predict_classes
from bertvision.kinds.facts import Cutting, Labelled, Reading
from bertvision.kinds.kind import Golds, TaskInfo
from bertvision.kinds.labelled import LabelKind, RowMember
from bertvision.predictions.ensemble import How, Weights, combine_softmax
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import RowPrediction
from bertvision.windows.rows import cut_choices
from bertvision.windows.window import Window


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
