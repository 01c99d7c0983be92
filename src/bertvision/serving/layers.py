"""Which layer speaks for an answer and which against it: what each part of a head adds, in the mean over questions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.data.example import Question, TaskName
from bertvision.encoder.encode import StateBatch, freeze
from bertvision.encoder.load import Encoder
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.score import read_questions
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
from bertvision.tables import Page, Table, counted, number_cell
from bertvision.tasks import TASKS
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.window import Window, cut_windows

Parts = npt.NDArray[np.float64]  # [question, part]: what each part of a head adds to the score of one of its spans
ARM = 10  # characters of a bar on each side of its middle
# A column's name in JSON, and its head in 80 columns.
SCORES = {"weight": "weight", "best": "best", "gold": "gold", "null": "none", "difference": "best-none"}
TYPES = {"has_answer": "has answer", "no_answer": "no answer", "has_minus_no_answer": "apart"}


class QuestionParts(NamedTuple):
    """What every part of a head adds to the scores (start + end logit) of spans."""

    best: Parts  # of each question's best span, whether or not it was given as the answer
    gold: Parts  # of the gold spans, of the questions that have one
    null: Parts | None  # of "no answer"; None where the task has none


@dataclass(frozen=True)
class PartMeans:
    """One part's means; None where there is nothing to average."""

    name: str
    weight: float | None = None  # the layer's share in a learned mix
    best: float | None = None
    gold: float | None = None
    null: float | None = None
    difference: float | None = None  # best - null
    has_answer: float | None = None  # the difference on answerable questions
    no_answer: float | None = None  # and on unanswerable ones
    has_minus_no_answer: float | None = None  # has_answer - no_answer


@dataclass(frozen=True)
class LayerMeans:
    """A head on a file, part by part."""

    model: str
    head: str
    data: str
    questions: int
    golds: int
    parts: list[PartMeans]
    total: PartMeans  # the sums over the parts: the mean scores themselves

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        head = f"{counted(self.questions, 'question')} of {self.data}, {self.golds:,} with a gold span"
        sections = [self._score_section()]
        if self.total.has_minus_no_answer is not None:
            sections.append(self._type_section())
        return Page((head, f"head {self.head} of {self.model}"), sections, [])

    def _score_section(self) -> Table:
        has_null = self.total.null is not None
        shown = {name: head for name, head in SCORES.items() if getattr(self.parts[0], name) is not None}
        note = (
            "Means of what each part adds to the score (start + end logit) of a question's best span, of its gold span"
            f"{' and of no answer' if has_null else ''}. The last row is the sum of the parts: the scores themselves."
        )
        barred, sides = ("difference", ("against", "for")) if has_null else ("best", ("-", "+"))
        return self._section("What each layer says", shown, barred, sides, note)

    def _type_section(self) -> Table:
        note = (
            "Best span minus no answer, on questions that have an answer and on others; a layer tells one from the "
            "other by the difference of the two."
        )
        title = "Which layer tells answerable questions from others"
        return self._section(title, TYPES, "has_minus_no_answer", ("wrongly", "rightly"), note)

    def _section(self, title: str, shown: Mapping[str, str], barred: str, sides: tuple[str, str], note: str) -> Table:
        lengths = [getattr(each, barred) for each in self.parts]
        longest = max(map(abs, lengths)) or 1.0
        bars = [*(_bar(length / longest) for length in lengths), ""]
        rows = tuple(
            (each.name, *(_cell(each, name) for name in shown), bar)
            for each, bar in zip((*self.parts, self.total), bars, strict=True)
        )
        return Table(title, ("part", *shown.values(), f"{sides[0]:>{ARM}}│{sides[1]:<{ARM}}"), rows, note)


def mean_parts(
    names: Sequence[str],
    weights: Sequence[float] | None,
    found: QuestionParts,
    is_impossible: npt.NDArray[np.bool_] | None,
) -> tuple[list[PartMeans], PartMeans]:
    """Average over questions: every part, and their sum. `is_impossible` is None where the golds are unknown."""
    means: dict[str, list[float] | None] = {"best": _means(found.best), "gold": _means(found.gold)}
    if found.null is not None:
        difference = found.best - found.null
        means |= {"null": _means(found.null), "difference": _means(difference)}
        if is_impossible is not None:
            means |= _means_by_type(difference, is_impossible)
    known = {column: values for column, values in means.items() if values is not None}
    shares = [*(weights or ()), *[None] * len(names)]  # skip and bias, which come last, have none
    parts = [
        PartMeans(name, shares[place], **{column: values[place] for column, values in known.items()})
        for place, name in enumerate(names)
    ]
    return parts, PartMeans("sum", **{column: sum(values) for column, values in known.items()})


def _means_by_type(difference: Parts, is_impossible: npt.NDArray[np.bool_]) -> dict[str, list[float] | None]:
    has_answer, no_answer = _means(difference[~is_impossible]), _means(difference[is_impossible])
    apart = None
    if has_answer is not None and no_answer is not None:
        apart = [one - other for one, other in zip(has_answer, no_answer, strict=True)]
    return {"has_answer": has_answer, "no_answer": no_answer, "has_minus_no_answer": apart}


def _means(parts: Parts) -> list[float] | None:
    return parts.mean(axis=0).tolist() if len(parts) else None


def _cell(part: PartMeans, column: str) -> str:
    return number_cell(getattr(part, column), 3, "" if column == "weight" else "+")


def _bar(share: float) -> str:
    """Draw a share of the longest bar to the right, or to the left where it is negative; dots keep Markdown's place."""
    filled = "█" * round(abs(share) * ARM)
    left, right = (filled, "") if share < 0 else ("", filled)
    return f"{left:·>{ARM}}│{right:·<{ARM}}"


Floats = npt.NDArray[np.float64]
LogitParts = Float[Tensor, "batch part token column"]


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
    parts: LogitParts, batch: StateBatch, windows: Sequence[Window], texts: TextGrid, config: AnswerConfig
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


def _span_parts(parts: LogitParts, starts: Positions, ends: Positions) -> Float[Tensor, "batch part"]:
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
