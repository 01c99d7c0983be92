"""What comes out: answers, classes and tags with their probabilities and their characters; no torch in here."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LayerPart:
    """What one part of a head, such as `layer 3`, adds to the logits of an answer's start and end."""

    name: str
    start: float
    end: float

    @property
    def score(self) -> float:
        """Give what it adds to the answer's score."""
        return self.start + self.end


@dataclass(frozen=True, slots=True)
class Answer:
    """One possible answer; `context[start:end]` is its text, which is empty where the answer is "no answer"."""

    text: str
    start: int
    end: int
    probability: float  # overlapping spans and other places with this text together; all of a question add up to 1
    no_answer_probability: float | None  # None where the model was trained without unanswerable questions
    score: float  # of its best span: start logit + end logit (+ what a joint readout adds for both)
    window: tuple[int, int]  # the characters of the context that the model saw together with it
    is_question_cut: bool  # whether the question was longer than the model reads, and lost its end
    layers: tuple[LayerPart, ...] | None = None  # where asked for; their sum is the score

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values; layers only where asked for."""
        content = asdict(self) | {"window": list(self.window)}
        parts = content.pop("layers")
        return content if parts is None else {**content, "layers": list(parts)}


@dataclass(frozen=True, slots=True)
class Classification:
    """What a model says of a text: its class or best ending, its labels, or a number."""

    label: str | tuple[str, ...] | float
    probability: float | None  # of the class or ending; labels have one each, a number has none
    probabilities: dict[str, float]  # by name of class, label or ending

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        label = list(self.label) if isinstance(self.label, tuple) else self.label
        return asdict(self) | {"label": label}


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word, its characters [start, end) in the text, and its tag."""

    text: str
    start: int
    end: int
    tag: str
    probability: float


@dataclass(frozen=True, slots=True)
class FoundEntity:
    """Neighbouring words that are one thing, as sure as the least sure of them."""

    text: str
    start: int
    end: int
    type: str
    probability: float


@dataclass(frozen=True, slots=True)
class Tagging:
    """A text's words with their tags, and what they make up."""

    words: tuple[TaggedWord, ...]
    entities: tuple[FoundEntity, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return {"words": [asdict(word) for word in self.words], "entities": [asdict(each) for each in self.entities]}
