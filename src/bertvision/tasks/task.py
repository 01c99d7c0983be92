"""What a task is: examples to learn from and to be scored on, and the name of its metric."""

from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from bertvision.settings import Config

TaskName = Literal["squad1", "squad2"]
# What is asked of a text: a span of it, one of its classes, any number of them, a number, the best of several
# continuations, or a tag for each of its words; `answerable` is a class of a question, decided in all its windows.
Kind = Literal["span", "answerable", "class", "labels", "number", "choice", "tags"]
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


@dataclass(frozen=True, slots=True)
class TextRow:
    """One text or a pair of them; its label is a class, classes, a number, or None where it is unknown."""

    id: str
    texts: tuple[str, ...]
    label: int | float | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A beginning and its possible continuations, of which one is right (None: unknown)."""

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, each with a tag in IOB2 (None: unknown), and the document that they are from."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int


Example = TypeVar("Example", bound=Question | TextRow | ChoiceRow | Sentence)


@dataclass(frozen=True, slots=True)
class Split(Generic[Example]):
    """The examples of one file, and what was left out of them."""

    name: str
    examples: tuple[Example, ...]
    dropped: int
    sha256: str | None


class Task(NamedTuple):
    """Both splits of an experiment, and whether "no answer" is a possible answer."""

    name: TaskName
    train: Split[Question]
    dev: Split[Question]

    @property
    def has_null(self) -> bool:
        """Tell whether the task has unanswerable questions."""
        return self.name == "squad2"
