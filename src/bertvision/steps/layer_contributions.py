"""A trained head on anybody's file -> what each layer adds to the scores of answers and of "no answer"."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.data.example import Question, TaskName
from bertvision.encoder.encode import StateBatch, freeze
from bertvision.encoder.load import Encoder
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.golds import read_questions
from bertvision.evaluate.layers import LayerMeans, QuestionParts, mean_parts
from bertvision.heads.head import Head, layer_contributions, layer_weights, refuse_unless_sum
from bertvision.model_config import read_settings
from bertvision.model_folder import find_model, is_checkpoint, load_model, read_model_config
from bertvision.predictions.logits import TextGrid, grid_of, text_grid
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import best_spans, first_of_each
from bertvision.progress import SILENT, Progress
from bertvision.settings import Settings
from bertvision.shapes import Positions
from bertvision.states.live import states_in_order_of_length
from bertvision.tasks import TASKS
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.window import Window, cut_windows

Floats = npt.NDArray[np.float64]
Parts = Float[Tensor, "batch part token column"]


class SpanParts(NamedTuple):
    """What every part of a head adds to the scores of three spans of each window, [window, part]."""

    names: tuple[str, ...]
    best: Floats
    gold: Floats  # "no answer" once more where the window does not hold the gold
    null: Floats
    best_scores: npt.NDArray[np.float32]  # [window]; -inf where no token can be an answer


def layers_of_file(
    model_folder: Path,
    data: str,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> LayerMeans:
    """Average over a file's questions what each layer adds to the scores of the best span, the gold and no answer."""
    folder = find_model(model_folder)
    if not is_checkpoint(folder):
        _check_task(model_folder, read_model_config(folder).task)  # before weights are read
    model = load_model(folder, allow_outside=allow_outside)
    task = _check_task(model_folder, model.config.task)
    refuse_unless_sum(model.head)
    config = read_settings(model.config, settings or {})
    asked = read_questions(data)
    questions = [_with_placed_answer(question) for question in asked.questions]
    windows = cut_windows(questions, model.encoder.tokenizer, model.config.windows, progress=progress)
    texts = text_grid(grid_of(windows, [each.id for each in questions]), [each.context for each in questions])
    compute = choose_compute(config.device, config.precision)
    found = window_parts(freeze(model.encoder, compute), model.head, windows, texts, config.answers, compute, progress)
    by_question = _choose_windows(found, windows, texts, has_null=TASKS[task].kind.has_null)
    is_impossible = np.array([each.is_impossible for each in asked.questions]) if asked.has_golds else None
    parts, total = mean_parts(found.names, layer_weights(model.head), by_question, is_impossible)
    return LayerMeans(
        str(model_folder), model.config.head.name, data, len(questions), len(by_question.gold), parts, total
    )


def _check_task(model_folder: Path, task: TaskName) -> TaskName:
    """Return the task of a model if answers to it are spans."""
    if not TASKS[task].kind.in_context:
        raise SettingsError(f"{model_folder}: a model of {task} has no spans; give one of squad1 or squad2")
    return task


def window_parts(
    encoder: Encoder,
    head: Head,
    windows: Sequence[Window],
    texts: TextGrid,
    config: AnswerConfig,
    compute: Compute,
    progress: Progress = SILENT,
) -> SpanParts:
    """Run the frozen encoder once over labelled windows and take the head's scores apart, batch by batch."""
    head.to(compute.device).eval()
    rows, scores, spans = [], [], []
    with progress.bar("take apart", len(windows)) as bar:
        for batch in states_in_order_of_length(encoder, windows, config.batch_tokens, compute):
            with torch.no_grad():
                names, parts = layer_contributions(head, *batch.seen)
            best, bounds = _best_bounds(parts, batch, windows, texts, config)
            golds, nothing = (batch.windows.starts, batch.windows.ends), torch.zeros_like(batch.windows.starts)
            of_spans = [_span_parts(parts, *each) for each in (bounds, golds, (nothing, nothing))]
            rows.append(batch.windows.rows)
            scores.append(best)
            spans.append(torch.stack(of_spans).double().cpu().numpy())
            bar.advance(batch.size)
    order = np.argsort(np.concatenate(rows))
    best_parts, gold_parts, null_parts = np.concatenate(spans, axis=1)[:, order]
    return SpanParts(names, best_parts, gold_parts, null_parts, np.concatenate(scores)[order])


def _best_bounds(
    parts: Parts, batch: StateBatch, windows: Sequence[Window], texts: TextGrid, config: AnswerConfig
) -> tuple[npt.NDArray[np.float32], tuple[Positions, Positions]]:
    """Find each window's best span as prediction does: its score, and the positions of its ends."""
    rows, mask = batch.windows.rows, batch.windows.mask
    logits = parts.sum(dim=1)[mask].cpu().numpy()
    grid = grid_of([windows[row] for row in rows], texts.tokens.question_ids)
    can_bound = np.concatenate([texts.can_bound[slice(*texts.tokens.window_at[row : row + 2])] for row in rows])
    found = best_spans(grid, logits, config.model_copy(update={"n_best": 1}), can_bound)
    bounds = [torch.from_numpy(each[:, 0] - grid.window_at[:-1]) for each in (found.starts, found.ends)]
    is_possible = torch.from_numpy(np.isfinite(found.scores[:, 0]))
    starts, ends = (each.where(is_possible, 0).to(mask.device) for each in bounds)
    return found.scores[:, 0], (starts, ends)


def _span_parts(parts: Parts, starts: Positions, ends: Positions) -> Float[Tensor, "batch part"]:
    """Add up what each part adds to the start and to the end of one span of each window."""
    rows = torch.arange(len(parts), device=parts.device)
    return parts[rows, :, starts, 0] + parts[rows, :, ends, 1]


def _choose_windows(found: SpanParts, windows: Sequence[Window], texts: TextGrid, *, has_null: bool) -> QuestionParts:
    """Choose the window that speaks for a question: of spans the best, of "no answer" the lowest, as in prediction."""
    questions = texts.tokens.question_of
    best = _lowest(-found.best_scores, questions)
    if not np.isfinite(found.best_scores[best]).all():
        raise DataError(
            f"{np.count_nonzero(~np.isfinite(found.best_scores[best])):,} questions have no best span: either the "
            "model diverged or their contexts are blank; `bertvision predict` on the same file says which"
        )
    with_gold = np.flatnonzero([window.start > 0 for window in windows])
    gold = with_gold[_lowest(-found.gold[with_gold].sum(axis=1), questions[with_gold])]
    null = found.null[_lowest(found.null.sum(axis=1), questions)] if has_null else None
    return QuestionParts(found.best[best], found.gold[gold], null)


def _lowest(scores: npt.NDArray[np.floating], questions: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return where the lowest score of each question stands, in the order of questions."""
    order = np.lexsort((scores, questions))
    return order[first_of_each(questions[order])] if len(order) else order


def _with_placed_answer(question: Question) -> Question:
    """Keep the answers if the first stands where it says, so that its tokens can be found."""
    if question.answers:
        text, start = question.answers[0]
        if start < 0 or not text.strip() or not question.context.startswith(text, start):
            return replace(question, answers=())
    return question
