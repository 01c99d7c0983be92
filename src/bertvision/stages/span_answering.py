"""Questions: logits of tokens -> spans, their files and official scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bertvision.calibration.answers import Answers
from bertvision.features.windows import Window
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.ensemble import How, combine_logits
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import Logits, grid_of, save_logits
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.spans import decode_spans
from bertvision.predictions.texts import TextGrid, text_grid
from bertvision.stages.paper_scores import PaperGold, paper_scores
from bertvision.stages.reader_scores import reader_answers
from bertvision.tasks.task import Question, Split


@dataclass(frozen=True)
class SpanAnswering:
    """Questions in windows, whose answers are spans of their contexts."""

    split: Split[Question]
    windows: Sequence[Window]
    config: AnswerConfig
    has_null: bool
    paper: PaperGold | None  # None where `answers.decoders` does not ask for paper-v1

    @cached_property
    def texts(self) -> TextGrid:
        """Lay the windows' tokens out over their contexts, once for all models."""
        grid = grid_of(self.windows, [question.id for question in self.split.examples])
        return text_grid(grid, [question.context for question in self.split.examples])

    def combine(self, members: Sequence[Logits], how: How, weights: Sequence[float] | None) -> Logits:
        """Make one model's logits of several, token by token."""
        return combine_logits(self.texts.tokens, members, how, weights)

    def answer(self, logits: Logits) -> list[Prediction]:
        """Give the best span of every question, or none."""
        return decode_spans(self.texts, logits, self.config, has_null=self.has_null)

    def reader_answers(self, logits: Logits) -> Answers | None:
        """Return the answers of the decoder `reader`; None where `answers.decoders` does not ask for it."""
        if "reader" not in self.config.decoders:
            return None
        return reader_answers(self.split.examples, self.texts, logits, self.config, has_null=self.has_null)

    def write(self, folder: Path, answers: list[Prediction], logits: Logits) -> None:
        """Write answers in run_qa's formats, and the logits."""
        write_predictions(folder, answers)
        save_logits(folder / "logits.safetensors", self.texts.tokens, logits)

    def score(self, answers: list[Prediction], logits: Logits, how: How | None = None) -> Scores:
        """Score officially and, where it is asked for, as the 2020 system did."""
        paper = paper_scores(self.texts.tokens, logits, self.paper, are_log_probabilities=how == "max")
        return score_predictions(self.split.examples, answers, self.config.null_threshold) | paper
