"""What questions have in common, whether a span is asked for or whether there is one."""

from collections.abc import Sequence
from typing import Any, ClassVar

from bertvision.data.example import ColumnsConfig, Question, TaskName
from bertvision.data.shards import ShardRow
from bertvision.data.squad import read_squad
from bertvision.data.tables import plain_text
from bertvision.kinds.kind import Kind, Labelled, Reading, TaskInfo


class QuestionKind(Kind):
    """A question about a context, from a SQuAD file."""

    noun: ClassVar[str] = "question"
    cluster: ClassVar[str | None] = "article"
    asks_questions: ClassVar[bool] = True
    can_be_taught: ClassVar[bool] = True
    second: ClassVar[str] = "context"

    def read(self, task: TaskName, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a SQuAD file."""
        split = read_squad(source, on_bad=reading.data.on_bad, hub_split=reading.hub_split, answers=reading.need)
        return Labelled(split, reading.labels)

    def example(self, identity: str, text: str, second: Any = None) -> Question:  # noqa: ANN401 (a text)
        """Return a question about a context."""
        return Question(identity, text, second, (), "")

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> Question:
        """Return the question of a row with the columns `question` and `context`."""
        text, context = (plain_text(row.cells.get(column), column) for column in ("question", "context"))
        return self.example(identity, text, context)

    def count_labels(self, examples: Sequence[Question], labels: Sequence[str]) -> dict[str, int]:
        """Count the questions with and without an answer."""
        impossible = sum(question.is_impossible for question in examples)
        return {"answer": len(examples) - impossible, "no answer": impossible}
