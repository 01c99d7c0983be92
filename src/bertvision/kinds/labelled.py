"""What kinds have in common whose prediction is a label of each example (all but spans), and rows of tables beside."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bertvision.data.example import ColumnsConfig, DataConfig, TextRow
from bertvision.data.rows import LabelColumn, RowLayout, read_rows
from bertvision.data.shards import ShardRow
from bertvision.data.tables import plain_text
from bertvision.errors import DataError, SettingsError
from bertvision.files import write_json_rows, write_text
from bertvision.kinds.kind import (
    Answering,
    AnyExample,
    AnyLabel,
    CellsByName,
    Cutting,
    Golds,
    Joined,
    Labelled,
    LogitLayout,
    Predicted,
    Reading,
    TaskInfo,
)
from bertvision.kinds.scored import JudgedKind
from bertvision.predictions.ensemble import LEAST, How, Weights, combine_softmax
from bertvision.predictions.files import (
    HEADER,
    PAPER_FILE,
    PREDICTIONS,
    PROBABILITIES,
    class_of,
    in_order,
    read_beside,
    read_shares,
    read_values,
)
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig, RowPrediction
from bertvision.scoring.bootstrap import Floats
from bertvision.windows.cut import cut_rows
from bertvision.windows.window import Window

DIGITS = 6  # of probabilities in tables


class RowMember(NamedTuple):
    """One model's predictions, in the order of the golds."""

    folder: Path
    predictions: Sequence[Any]


class LabelKind(JudgedKind):
    """A class, several labels, a number, an ending or tags; what is said here holds for classes, unless overridden."""

    def count_labels(self, examples: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
        """Count the examples of each class."""
        counts = Counter(example.label for example in examples)
        return {label: counts[place] for place, label in enumerate(labels)}

    def decode(self, asked: Answering, logits: Logits) -> list[Any]:
        """Return a label for every row, marked where the row lost its end."""
        found = self.decode_rows([example.id for example in asked.split.examples], logits, asked.labels)
        for place in {window.example for window in asked.windows if window.tokens_left_out}:
            found[place] = replace(found[place], is_text_cut=True)
        return found

    def to_json(self, label: AnyLabel, labels: Sequence[str]) -> Any:  # noqa: ANN401 (JSON)
        """Return a label as prediction files have it."""
        return labels[label]

    def from_json(self, where: str, value: Any, labels: Sequence[str], info: TaskInfo) -> AnyLabel:  # noqa: ANN401 (checked)
        """Return a label that a prediction file holds."""
        return class_of(where, value, labels, has_numbers=info.hub is not None)

    def submitted(self, label: AnyLabel, labels: Sequence[str], info: TaskInfo) -> str:
        """Return a label as GLUE's site wants it."""
        return labels[label] if info.submits_names else str(label)

    def name_of(self, said: AnyLabel, labels: Sequence[str]) -> str:
        """Return a label as prediction files have it."""
        return str(self.to_json(said, labels))

    # Files

    def write(self, folder: Path, golds: Golds, predictions: Sequence[Any], part: str = "") -> None:
        """Write predictions by id and, where there are any, probabilities by id and label.

        For a task of GLUE also what its site takes. Logits say no more than these.
        """
        info, labels = golds.info, golds.labels
        write_json_rows(folder / PREDICTIONS, {each.id: self.to_json(each.label, labels) for each in predictions})
        if sure := [each for each in predictions if each.probabilities]:
            shares = {each.id: dict(zip(labels, each.probabilities, strict=True)) for each in sure}
            write_json_rows(folder / PROBABILITIES, shares)
        if part in info.submission:
            rows = [HEADER, *((each.id, self.submitted(each.label, labels, info)) for each in predictions)]
            write_text(folder / info.submission[part], "".join(f"{index}\t{text}\n" for index, text in rows))

    def tabulate(self, golds: Golds, predictions: Sequence[Any], names: Sequence[str] = ()) -> list[CellsByName]:
        """Return a line for each row: its texts, its label and how likely each label is."""
        return [
            self._cells(example, each, names, golds.labels)
            for example, each in zip(golds.examples, predictions, strict=True)
        ]

    def _cells(self, example: AnyExample, found: Predicted, names: Sequence[str], labels: Sequence[str]) -> CellsByName:
        texts, label = self.texts(example), self.to_json(found.label, labels)
        shares = zip(labels, found.probabilities, strict=True) if found.probabilities else ()
        return {
            "id": example.id,
            **dict(zip(names or texts, texts.values(), strict=True)),
            "label": ", ".join(label) if isinstance(label, list) else label,
            **{f"probability of {name}": round(share, DIGITS) for name, share in shares},
            **self._marks(found),
        }

    def as_line(self, example: AnyExample, prediction: Predicted, labels: Sequence[str]) -> CellsByName:
        """Return the label and how likely each label is."""
        shares = zip(labels, prediction.probabilities, strict=True) if prediction.probabilities else ()
        found = {"id": example.id, "label": self.to_json(prediction.label, labels)}
        probabilities = {name: round(share, DIGITS) for name, share in shares}
        return found | ({"probabilities": probabilities} if probabilities else {}) | self._marks(prediction)

    def _marks(self, found: Predicted) -> CellsByName:
        """Return whether the text lost its end, for kinds whose texts do."""
        return {"is_text_cut": found.is_text_cut} if self.loses_ends else {}

    def read_predictions(self, path: Path, golds: Golds, *, whole: bool = False) -> list[Any]:
        """Read what `write` wrote, or another program in its format, in the order of the golds."""
        found = self._read(path, read_values(path), golds)
        written = read_beside(path, PROBABILITIES)
        shares = {key: read_shares(path, key, value, golds.labels) for key, value in written.items()}
        paper = self._read(path, read_beside(path, PAPER_FILE), golds)
        read = [RowPrediction(key, label, shares.get(key, ()), paper.get(key)) for key, label in found.items()]
        return in_order(golds.examples, read, str(path))

    def _read(self, path: Path, values: Mapping[str, Any], golds: Golds) -> dict[str, Any]:
        return {
            key: self.from_json(f"{path}: {key!r}", value, golds.labels, golds.info) for key, value in values.items()
        }

    # Several models

    def combine(
        self,
        layout: LogitLayout,
        members: Sequence[Logits],
        how: How,
        weights: Weights = None,
        labels: Sequence[str] = (),
    ) -> Logits:
        """Combine models row by row, by a softmax over their columns."""
        return combine_softmax(members, how, weights)

    def read_members(self, folders: Sequence[Path], data: str, golds: Golds) -> list[RowMember]:
        """Read prediction folders."""
        return [RowMember(folder, self.read_predictions(folder, golds)) for folder in folders]

    def join(
        self, golds: Golds, members: Sequence[RowMember], how: How, shares: Weights, config: AnswerConfig
    ) -> Joined:
        """Combine the members' probabilities, as logits of one run are combined."""
        if how == "logits":
            raise SettingsError(
                "prediction folders of this task hold no logits; choose max, mean or weighted for `how`"
            )
        logits = self.combine(None, [self.logits_of(golds, member) for member in members], how, shares, golds.labels)
        return Joined(self.decode_rows([each.id for each in golds.examples], logits, golds.labels), "probabilities")

    def logits_of(self, golds: Golds, member: RowMember) -> Logits:
        """Return logits that have the probabilities of a prediction folder: their logarithms."""
        return np.log(np.maximum(self.probabilities_of(golds, member), LEAST)).astype(np.float32)

    def probabilities_of(self, golds: Golds, member: RowMember) -> Floats:
        """Return the probabilities of a prediction folder, [row, label]; refuse those of labels in another order."""
        for each in member.predictions:
            if not each.probabilities:
                raise DataError(f"{member.folder}: no probabilities for {each.id!r}; give folders with {PROBABILITIES}")
            if len(each.probabilities) != len(golds.labels) or not self.fits(each):
                raise DataError(
                    f"{member.folder}: the probabilities of {each.id!r} are not of the labels "
                    f"{', '.join(golds.labels)} in this order; give that of training, such as `data.labels=[no,yes]`"
                )
        return np.array([each.probabilities for each in member.predictions], dtype=np.float64)

    def fits(self, prediction: RowPrediction) -> bool:
        """Whether a label is what its probabilities say."""
        return prediction.probabilities[prediction.label] == max(prediction.probabilities)  # type: ignore[index]

    def predictions_of(self, member: RowMember, config: AnswerConfig) -> Sequence[Any]:
        """Return a member's predictions."""
        return member.predictions


class TextRowKind(LabelKind):
    """A label of a row of a table."""

    holds: ClassVar[LabelColumn]  # what a table's column of labels holds
    loses_ends = True

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a table."""
        return Labelled(
            *read_rows(
                source,
                self.layout(info, reading.data, reading.labels),
                on_bad=reading.data.on_bad,
                hub_split=reading.hub_split,
                needs_labels=reading.need != "optional",
                advice=reading.advice,
            )
        )

    def layout(self, info: TaskInfo, data: DataConfig, labels: tuple[str, ...] = ()) -> RowLayout:
        """Return how a task's tables are written, the settings' columns before the published ones."""
        return RowLayout(
            self.holds,
            (data.columns,) if data.columns is not None else info.layouts,
            labels,
            is_published=info.hub is not None,
            header=data.header,
            form=data.form,
            separator=data.label_separator,
            hub=info.hub,
        )

    def cut(self, examples: Sequence[TextRow], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Turn every row into one window."""
        return cut_rows(examples, how.tokenizer, how.config.max_length, self.holds, how.progress)

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> TextRow:
        """Return the texts of the first layout whose columns are there."""
        columns = next((each for each in layouts if all(name in row.cells for name in each.texts)), layouts[0])
        return TextRow(identity, tuple(plain_text(row.cells.get(name), name) for name in columns.texts), None)

    def texts(self, example: TextRow) -> dict[str, str]:
        """Return the text, or both."""
        names = ("text 1", "text 2") if len(example.texts) > 1 else ("text",)
        return dict(zip(names, example.texts, strict=True))
