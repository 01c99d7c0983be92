"""Question and context in, answers out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bertvision.data.example import Question
from bertvision.errors import SettingsError
from bertvision.predictions.logits import TokenGrid, grid_of
from bertvision.predictions.texts import text_grid
from bertvision.progress import SILENT, Progress
from bertvision.serving.answer import Answer
from bertvision.serving.decode import Placed, decode_answers
from bertvision.serving.interface import Served
from bertvision.serving.onnx_model import refuse_exported
from bertvision.serving.saving import Saveable
from bertvision.serving.texts import Pair, pair_up
from bertvision.settings import ConfigType
from bertvision.windows.tokens import slices, tokenise
from bertvision.windows.window import Window, cut_windows

LARGEST = 700.0  # whose exponential is still a number


class Asking(NamedTuple):
    """How questions are asked; None: as the model was trained and calibrated."""

    top_k: int = 1
    null_threshold: float | None = None
    max_answer_length: int | None = None  # in tokens
    layers: bool = False


@dataclass(frozen=True)
class Reader(Saveable):
    """A model that finds answers in texts."""

    served: Served

    @property
    def has_null(self) -> bool:
        """Tell whether it can say that a text holds no answer."""
        return self.served.kind.has_null

    def null_ratio(self, null_threshold: float) -> float:
        """Return how many times as likely as the best answer "no answer" must be to be given at a threshold."""
        fitted = self.served.calibration
        return math.exp(min((null_threshold - fitted.threshold) / fitted.temperature, LARGEST))

    def __call__(
        self,
        question: Any,  # noqa: ANN401 (checked in `pair_up`)
        context: Any,  # noqa: ANN401
        *,
        top_k: int | None = None,
        null_threshold: float | None = None,
        max_answer_length: int | None = None,
        layers: bool = False,
        progress: Progress = SILENT,
    ) -> Any:  # noqa: ANN401 (an Answer, or lists)
        """Answer one question or a list of them about one context or a list: an `Answer` for each.

        With `top_k` each has a list of answers instead: the one that is given, then the others, best first, at most
        as many as the model's n-best list is long. All probabilities of a question add up to 1, and the likelier one of
        the best answer and "no answer" is given. `null_threshold` takes the place of the model's own in this decision,
        not in the probabilities: abstain where the null odds (the score of "no answer" minus the best answer's) exceed
        it (inf: never). `max_answer_length` is in tokens. With `layers` answers carry what each layer adds to their
        scores, where the head is a sum over layers. `progress` is told of every batch.
        """
        pairs, is_one = pair_up(question, context)
        asking = Asking(1 if top_k is None else top_k, null_threshold, max_answer_length, layers)
        found = self.answer_pairs(pairs, asking, progress)
        answers = [each[0] for each in found] if top_k is None else found
        return answers[0] if is_one else answers

    def answer_pairs(
        self, pairs: Sequence[Pair], asking: Asking | None = None, progress: Progress = SILENT
    ) -> list[list[Answer]]:
        """Answer checked pairs of question and context, all in the same way; every answer is as if asked alone."""
        asking = asking or Asking()
        _check(asking)
        if asking.layers:
            _check_layers(self.served)
        if not pairs:
            return []
        tokenizer, config = self.served.tokenizer, self.served.config
        questions = [Question(str(place), text, context, (), "") for place, (text, context) in enumerate(pairs)]
        windows = cut_windows(questions, tokenizer, config.windows, labelled=False)
        grid = text_grid(grid_of(windows, [each.id for each in questions]), [each.context for each in questions])
        answers = _changed(config.answers, max_answer_length=asking.max_answer_length)
        found = decode_answers(
            grid,
            self.served.logits(windows, progress),
            answers,
            self.served.calibration,
            self._are_cut(pairs),
            has_null=self.has_null,
            threshold=asking.null_threshold,
        )
        kept = [each[: asking.top_k] for each in found]
        if not asking.layers:
            return [[placed.answer for placed in each] for each in kept]
        return _with_layers(kept, self.served, windows, grid.tokens)

    def _are_cut(self, pairs: Sequence[Pair]) -> list[bool]:
        """Tell which questions are longer than the model reads."""
        longest = self.served.config.windows.max_question_length
        if longest is None:
            return [False] * len(pairs)
        texts = slices([question.lstrip() for question, _ in pairs])
        return [len(ids) > longest for part in texts for ids, _ in tokenise(self.served.tokenizer, part)]


def _check(asking: Asking) -> None:
    if asking.top_k < 1:
        raise SettingsError(f"top_k is {asking.top_k}; give 1 or more")
    if asking.max_answer_length is not None and asking.max_answer_length < 1:
        raise SettingsError(f"max_answer_length is {asking.max_answer_length}; give 1 token or more")
    if asking.null_threshold is not None and math.isnan(asking.null_threshold):
        raise SettingsError("null_threshold is not a number; give one, or inf to answer always")


def _changed(config: ConfigType, **asked: float | None) -> ConfigType:
    """Put what was asked for in the place of the model's own."""
    return config.model_copy(update={name: value for name, value in asked.items() if value is not None})


# Layers' states are torch's, and models that run without it are asked by this module too: hence imports in functions.


def _check_layers(served: Served) -> None:
    refuse_exported(served)
    from bertvision.heads.contributions import refuse_unless_sum
    from bertvision.serving.served import with_states

    refuse_unless_sum(with_states(served).model.head)


def _with_layers(
    found: list[list[Placed]], served: Served, windows: Sequence[Window], grid: TokenGrid
) -> list[list[Answer]]:
    from bertvision.serving.layers import layers_of_spans
    from bertvision.serving.served import with_states

    spans = np.array([placed.tokens for each in found for placed in each], np.int64)
    layers = iter(layers_of_spans(with_states(served), windows, grid, spans))
    return [[replace(placed.answer, layers=next(layers)) for placed in each] for each in found]
