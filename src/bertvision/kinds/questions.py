"""What questions have in common, whether a span is asked for or whether there is one."""

from collections.abc import Sequence
from typing import Any, ClassVar

from bertvision.data.example import ColumnsConfig, Question
from bertvision.data.shards import ShardRow
from bertvision.data.squad import read_squad
from bertvision.data.tables import plain_text
from bertvision.kinds.facts import Cutting, Labelled, Reading
from bertvision.kinds.kind import Kind, TaskInfo
from bertvision.windows.window import Window, cut_windows


class QuestionKind(Kind):
    """A question about a context, from a SQuAD file."""

    noun = "question"
    cluster = "article"
    asks_questions = True
    row_columns = "the columns `question` and `context`"
    can_be_taught = True
    first = "question"
    second = "context"
    classifies_windows: ClassVar[bool] = False  # whether a window has a class: whether it holds the answer

    @property
    def others(self) -> str:
        """Questions about other texts."""
        return "questions of other articles"

    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a SQuAD file."""
        split = read_squad(
            source,
            on_bad=reading.data.on_bad,
            hub_split=reading.hub_split,
            answers=reading.need,
            advice=reading.advice,
        )
        return Labelled(split, reading.labels)

    def cut(self, examples: Sequence[Question], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Cut contexts into windows, labelled with the first answer or with their class."""
        answerable = how.labelled and self.classifies_windows
        return cut_windows(
            examples, how.tokenizer, how.config, labelled=how.labelled, answerable=answerable, progress=how.progress
        )

    def example(self, identity: str, text: str, second: Any = None) -> Question:  # noqa: ANN401 (a text)
        """Return a question about a context."""
        return Question(identity, text, second, (), "")

    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> Question:
        """Return the question of a row with the columns `question` and `context`."""
        text, context = (plain_text(row.cells.get(column), column) for column in ("question", "context"))
        return self.example(identity, text, context)

    def texts(self, example: Question) -> dict[str, str]:
        """Return question and context."""
        return {"question": example.text, "context": example.context}

    def count_labels(self, examples: Sequence[Question], labels: Sequence[str]) -> dict[str, int]:
        """Count the questions with and without an answer."""
        impossible = sum(question.is_impossible for question in examples)
        return {"answer": len(examples) - impossible, "no answer": impossible}
