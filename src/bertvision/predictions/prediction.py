"""What a model answered; no torch in here, so that scoring does not need it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from bertvision.settings import Config

Decoder = Literal["official", "reader"]


class AnswerConfig(Config):
    """How logits become an answer."""

    n_best: int = Field(20, ge=1, le=1000)
    max_answer_length: int = Field(30, ge=1)  # tokens
    null_threshold: float = 0.0  # no answer is given where the null odds exceed it
    batch_tokens: int = Field(16384, ge=1)  # in a batch of prediction, padding counted
    # What a run's record has the scores of; a model in use decides as `reader`, and `predict` writes official's files
    # beside its answers.
    decoders: tuple[Decoder, ...] = ("official", "reader")

    @model_validator(mode="after")
    def _is_official(self) -> "AnswerConfig":
        if "official" not in self.decoders or len(set(self.decoders)) < len(self.decoders):
            raise ValueError(
                f"`decoders` holds `official` and, if wanted, `reader`, each once, got {list(self.decoders)}"
            )
        return self


class DecisionRule(NamedTuple):
    """When a model in use abstains, and how its probabilities are made."""

    null_threshold: float  # no answer is given where the null odds exceed it
    fitted_threshold: float  # "no answer" scores less by it in probabilities
    temperature: float  # scores are divided by it before they become probabilities


class Candidate(NamedTuple):
    """One possible answer; an empty text is "no answer"."""

    text: str
    start_logit: float
    end_logit: float
    probability: float  # among a question's candidates
    pair_logit: float = 0.0  # what a joint readout adds for this start and end together

    @property
    def score(self) -> float:
        """Return what candidates are ranked by."""
        return self.start_logit + self.end_logit + self.pair_logit


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one question, and the runners-up."""

    question_id: str
    text: str  # empty where no answer is given
    best_span: str  # the best answer if there had to be one
    null_odds: float | None  # null score minus the best span's score; None where the task has no "no answer"
    candidates: tuple[Candidate, ...]  # best first; the reader lists none
    probability: float | None = None  # the reader's, of `text`
    no_answer_probability: float | None = None  # the reader's; None where the task has no "no answer"


@dataclass(frozen=True, slots=True)
class RowPrediction:
    """What a model says of one row: a class or an ending by its number, a 0 or 1 for each label, or a number."""

    id: str
    label: int | float | tuple[int, ...]
    probabilities: tuple[float, ...] = ()  # of each class, label or ending; a number has none
    paper_label: int | None = None  # of answerability: the class by the 2020 system's rule
    is_text_cut: bool = False  # whether its text was longer than the model reads, and lost its end


@dataclass(frozen=True, slots=True)
class TagPrediction:
    """A tag for each word of one sentence."""

    id: str
    tags: tuple[str, ...]
