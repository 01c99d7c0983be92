"""What questions have in common, whether a span is asked for or whether there is one."""

from collections.abc import Sequence

from bertvision.data.example import Question, Split
from bertvision.data.squad import read_squad
from bertvision.kinds.kind import Reading


def read_questions(source: str, reading: Reading) -> Split[Question]:
    """Read a SQuAD file."""
    return read_squad(source, on_bad=reading.data.on_bad, hub_split=reading.hub_split, answers=reading.need)


def count_answers(questions: Sequence[Question]) -> dict[str, int]:
    """Count the questions with and without an answer."""
    impossible = sum(question.is_impossible for question in questions)
    return {"answer": len(questions) - impossible, "no answer": impossible}


def question_texts(question: Question) -> dict[str, str]:
    """Return question and context."""
    return {"question": question.text, "context": question.context}
