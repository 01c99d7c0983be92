"""Heads and windows -> logits -> answers, for any number of heads in one pass of the encoder."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from bertvision.activations.live import states_in_order_of_length
from bertvision.encoder.load import Encoder
from bertvision.features.batches import Rows
from bertvision.features.windows import Window
from bertvision.heads.head import Head, score_columns
from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.spans import predict_spans
from bertvision.progress import SILENT, Progress
from bertvision.tasks.task import Question
from bertvision.training.device import Compute


def span_logits(
    encoder: Encoder,
    heads: Mapping[str, Head],
    windows: Sequence[Window],
    grid: TokenGrid,
    compute: Compute,
    progress: Progress = SILENT,
    tokens: int = 16384,
    layers: tuple[int, ...] | None = None,
) -> dict[str, Logits]:
    """Run the frozen encoder once over the windows and every head on its states; real tokens only, in grid order.

    `tokens` is the size of a batch, padding counted; `layers` the states that the heads are given (None: all).
    """
    logits = {name: np.empty((len(grid.offsets), score_columns(head)), np.float32) for name, head in heads.items()}
    for head in heads.values():
        head.to(compute.device).eval()
    with progress.bar("predict", len(windows)) as bar:
        for batch in states_in_order_of_length(encoder, windows, tokens, compute, layers=layers):
            places = _places(grid, batch.windows.rows)
            # As in training: autocast around the heads alone, the encoder's weights have its number format already.
            with torch.no_grad(), compute.autocast():
                for name, head in heads.items():
                    logits[name][places] = head(*batch.seen)[batch.windows.mask].float().cpu().numpy()
            bar.advance(batch.size)
    return logits


def answer_questions(
    grid: TokenGrid, logits: Logits, questions: Sequence[Question], config: AnswerConfig, *, has_null: bool
) -> list[Prediction]:
    """Turn one model's logits into answers to questions."""
    return predict_spans(grid, logits, [question.context for question in questions], config, has_null=has_null)


def _places(grid: TokenGrid, rows: Rows) -> npt.NDArray[np.int64]:
    """Give the grid places of a batch's real tokens, row after row."""
    return np.concatenate([np.arange(grid.window_at[row], grid.window_at[row + 1]) for row in rows])
