"""What a report shows of a row beside scores: the worst errors, golds that look wrong, what fewer rows would give."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from bertvision.heads.regression import RegressionFit, Unseen
from bertvision.kinds.kind import Answering, Golds
from bertvision.metrics.resampling import Draw
from bertvision.metrics.squad import Scores
from bertvision.records import FewerRows, Mistake, MistakesRecord
from bertvision.settings import Config
from bertvision.steps.context import RunContext
from bertvision.windows.padding import spread

SHARES = (0.125, 0.25, 0.5)  # of the training rows
RESAMPLES = 1000  # their 95% bounds are within some hundredths of those of more
MOST_SHOWN = 20  # errors, or rows of a split that look mislabelled
MOST_POINTS = 500  # of a scatter plot


class Suspects(Config):
    """Training rows that look mislabelled, as a head's folder keeps them: without their texts."""

    checked: int  # rows that were looked at
    found: int
    rows: list[int] = []  # the likeliest of them, by their place in the training data
    logits: list[list[list[float]]] = []  # of each: [window, column]


class Told(Config):
    """What a regression tells beside its weights."""

    fewer_rows: list[FewerRows] = []
    suspects: Suspects | None = None


def can_tell(context: RunContext) -> bool:
    """Return whether no encoder has seen the training rows, so that regressions can tell what they would be without."""
    return context.fraction is None and not context.is_own_checkpoint() and not context.task.kind.asks_questions


def tell(context: RunContext, fit: RegressionFit, scores: Mapping[int, Sequence[Scores]]) -> Told:
    """Return what a fit tells; `scores` are those of its copies, by their number of rows."""
    group = context.objective.group  # an example may have several windows
    fewer = [
        FewerRows(rows=rows // group, draws=len(each), scores=_mean(each)) for rows, each in sorted(scores.items())
    ]
    return Told(fewer_rows=fewer, suspects=None if fit.unseen is None else _suspects(context, fit.unseen))


def describe(asked: Answering, predictions: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a record that figures and tables of one row's predictions need."""
    kind, golds = asked.info.kind, asked.golds
    points = kind.scatter(golds, predictions)
    return {
        "intervals": intervals_of(golds, predictions),
        "confusions": kind.confusions(golds, predictions),
        "scatter": [points[place] for place in spread(len(points), MOST_POINTS)],
    }


def intervals_of(golds: Golds, predictions: Sequence[Any]) -> dict[str, tuple[float, float]]:
    """Return the 95% intervals of a row's scores."""
    return golds.info.kind.intervals(golds, predictions, draw_of(len(predictions)))


def draw_of(examples: int) -> Draw:
    """Return how so many examples are resampled, the same for every row."""
    return Draw(np.arange(examples), RESAMPLES, seed=1)


def mistakes_of(
    context: RunContext, row: str, place: int, predictions: Sequence[Any], train: Suspects | None
) -> MistakesRecord:
    """Gather what is worth reading of one row: errors on dev, and rows of dev and train that look mislabelled."""
    asked, kind, config = context.dev, context.task.kind, context.experiment
    errors, found = kind.errors(asked.golds, predictions), kind.suspects(asked.golds, predictions)
    checked = {"dev": len(predictions)} if found is not None else {}
    suspects = {"dev": len(found)} if found is not None else {}
    return MistakesRecord(
        experiment=config.name,
        variant=config.variant,
        task=config.task,
        model=row,
        position=place,
        fraction=context.fraction,
        seed=context.seed,
        examples=len(predictions),
        wrong=len(errors) if kind.is_right_or_wrong else None,
        errors=_shown(asked, predictions, errors),
        checked=checked if train is None else {**checked, "train": train.checked},
        suspects=suspects if train is None else {**suspects, "train": train.found},
        mislabelled=[*_train_mistakes(context, train), *_shown(asked, predictions, found or [])],
    )


def _shown(asked: Answering, predictions: Sequence[Any], places: Sequence[int]) -> list[Mistake]:
    kind, golds = asked.info.kind, asked.golds
    return [kind.mistake(golds, place, predictions[place], "dev") for place in places[:MOST_SHOWN]]


def _train_mistakes(context: RunContext, train: Suspects | None) -> list[Mistake]:
    if train is None or not train.rows:
        return []
    golds = _golds(context, train.rows)
    logits = np.array(train.logits, dtype=np.float32).reshape(-1, len(train.logits[0][0]))
    predictions = _decode(golds, logits)
    return [context.task.kind.mistake(golds, place, each, "train") for place, each in enumerate(predictions)]


def _suspects(context: RunContext, unseen: Unseen) -> Suspects | None:
    windows, group = context.head_windows(), context.objective.group
    rows = [windows[number].example for number in unseen.windows[::group]]
    golds, logits = _golds(context, rows), unseen.logits.numpy()
    found = context.task.kind.suspects(golds, _decode(golds, logits))
    if found is None:
        return None
    shown, by_row = found[:MOST_SHOWN], logits.reshape(len(rows), group, -1)
    return Suspects(
        checked=len(rows),
        found=len(found),
        rows=[rows[place] for place in shown],
        logits=[by_row[place].tolist() for place in shown],
    )


def _golds(context: RunContext, rows: Sequence[int]) -> Golds:
    task = context.task
    return Golds(task.name, task.info, [task.train.examples[row] for row in rows], task.labels)


def _decode(golds: Golds, logits: Any) -> list[Any]:  # noqa: ANN401 (predictions of the golds' kind)
    found: list[Any] = golds.info.kind.decode_rows([each.id for each in golds.examples], logits, golds.labels)
    return found


def _mean(scores: Sequence[Scores]) -> Scores:
    keys = [key for key in scores[0] if all(key in each for each in scores)]
    return {key: fmean(each[key] for each in scores) for key in keys}
