"""One text or two with a label, from a table: what classes, labels and numbers have in common."""

from collections.abc import Sequence
from typing import ClassVar

from bertvision.data.example import ColumnsConfig, DataConfig, TextRow
from bertvision.data.rows import LabelColumn, RowLayout, read_rows
from bertvision.data.shards import ShardRow
from bertvision.data.tables import plain_text
from bertvision.kinds.kind import TaskInfo
from bertvision.kinds.labelled import LabelKind
from bertvision.kinds.terms import Cutting, Labelled, Reading
from bertvision.windows.rows import cut_rows
from bertvision.windows.window import Window


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
            separator=data.separator,
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
