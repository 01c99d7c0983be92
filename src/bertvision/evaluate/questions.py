"""A question file that may or may not say what the answers are."""

from typing import NamedTuple

from bertvision.errors import DataError
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import Question, Split


class Asked(NamedTuple):
    """A file's questions, and whether every one of them says what its answers are."""

    split: Split[Question]
    has_golds: bool

    @property
    def questions(self) -> tuple[Question, ...]:
        """Give them alone."""
        return self.split.examples

    def can_be_scored(self, *, has_null: bool) -> bool:
        """Tell whether answers can be scored: SQuAD 1.1 cannot score a question without an answer."""
        return self.has_golds and (has_null or all(question.answers for question in self.questions))


def read_questions(data: str) -> Asked:
    """Read a file's questions with its answers, where it has them."""
    try:
        return Asked(read_squad(data, answers="texts", hub_split="validation"), True)
    except DataError:  # either some have no answers, or the file is bad, which the second reading will say
        return Asked(read_squad(data, answers="optional", hub_split="validation"), False)
