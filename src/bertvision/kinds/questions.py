"""What questions have in common, whether a span is asked for or whether there is one."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.data.example import Column, Question, Split
from bertvision.data.squad import read_squad
from bertvision.data.tables import plain_text
from bertvision.kinds.kind import Reading


def read_questions(source: str, reading: Reading) -> Split[Question]:
    """Read a SQuAD file."""
    return read_squad(source, on_bad=reading.data.on_bad, hub_split=reading.hub_split, answers=reading.need)


def question_of(identity: str, cells: Mapping[Column, Any]) -> Question:
    """Return the question of a row with the columns `question` and `context`."""
    text, context = (plain_text(cells.get(column), column) for column in ("question", "context"))
    return Question(identity, text, context, (), "")


def count_answers(questions: Sequence[Question]) -> dict[str, int]:
    """Count the questions with and without an answer."""
    impossible = sum(question.is_impossible for question in questions)
    return {"answer": len(questions) - impossible, "no answer": impossible}


def question_texts(question: Question) -> dict[str, str]:
    """Return question and context."""
    return {"question": question.text, "context": question.context}
