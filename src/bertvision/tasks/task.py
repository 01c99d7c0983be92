"""What a task is: examples to learn from and to be scored on, and the name of its metric."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from bertvision.settings import Config

TaskName = Literal["squad1", "squad2"]
Pieces = tuple[int, ...]  # a text as word pieces, by their numbers in the vocabulary


class DataConfig(Config):
    """Where the examples are: files, `sample:train` and `sample:dev`, or `owner/name[:split]` on the hub."""

    train: str = "sample:train"
    dev: str = "sample:dev"
    on_bad: Literal["fail", "drop"] = "fail"


class Answer(NamedTuple):
    """A gold answer and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one context; without answers it is unanswerable (or unlabelled)."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    title: str

    @property
    def is_impossible(self) -> bool:
        """Tell whether the context holds no answer."""
        return not self.answers


class Split(NamedTuple):
    """The questions of one file, and what was left out of them."""

    name: str
    questions: tuple[Question, ...]
    dropped: int
    sha256: str | None


class Task(NamedTuple):
    """Both splits of an experiment, and whether "no answer" is a possible answer."""

    name: TaskName
    train: Split
    dev: Split

    @property
    def has_null(self) -> bool:
        """Tell whether the task has unanswerable questions."""
        return self.name == "squad2"
