"""What a run says beside its scores.

Before it: where it cannot learn, with a cure, and what would make it faster. After it: the worst errors, golds that
look wrong, what fewer rows would give.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from bertvision.heads.config import is_regression
from bertvision.heads.regression import RegressionFit, Unseen
from bertvision.kinds.kind import Answering, Golds
from bertvision.records import FewerRows, Mistake, MistakesRecord
from bertvision.scoring.bootstrap import Draw, half_right
from bertvision.scoring.calibration import LEAST_QUESTIONS
from bertvision.scoring.squad import Scores
from bertvision.settings import Config
from bertvision.stages.context import RunContext
from bertvision.stages.prepare import MOST_SHOWN, alike_labels
from bertvision.tables import counted
from bertvision.tasks import Task
from bertvision.training.loop import seed_for
from bertvision.windows.cut import describe_left_out
from bertvision.windows.plan import StepPlan, lengths_of, spread

SHARES = (0.125, 0.25, 0.5)  # of the training rows
RESAMPLES = 1000  # their 95% bounds are within some hundredths of those of more
MOST_MISTAKES = 20  # errors, or rows of a split that look mislabelled
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
    return [kind.mistake(golds, place, predictions[place], "dev") for place in places[:MOST_MISTAKES]]


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
    shown, by_row = found[:MOST_MISTAKES], logits.reshape(len(rows), group, -1)
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


LEAST_STEPS = 50  # a round number: 6 steps learned nothing (docs/log.md), 100 did
LEAST_SHARED = 0.01  # of dev's examples
MORE = "give it more rows, or more steps (finetune.min_steps, heads.min_steps)"


def caution(context: RunContext) -> list[str]:
    """Return what speaks against learning, before anything is trained."""
    experiment, found = context.experiment, []
    # Parts of an epoch are on purpose; so are the pairs of contrastive tuning, which gains from 30 steps (docs/log.md).
    if max(experiment.finetune.fractions, default=0) >= 1 and context.contrast is None:
        steps = len(context.tuning_steps(experiment.finetune))
        found += _few_steps("fine-tuning takes", steps, "finetune.min_steps=200")
    if any(not is_regression(head) for head in experiment.heads.train):
        steps = _head_steps(context)
        found += _few_steps("heads take", steps, "heads.min_steps=300")
    counts = context.task.kind.count_labels(context.task.train.examples, context.task.labels)
    if context.task.kind.needs_two_labels and len(present := [name for name, count in counts.items() if count]) == 1:
        found.append(f"all training examples are {present[0]!r}, so nothing can be told apart; add some of the others")
    found += few_held_out(context)
    splits = {"train": context.train, "dev": context.dev.windows}
    told = {name: describe_left_out(windows) for name, windows in splits.items()}
    found += [f"{name}: {cut}; raise windows.max_length if the encoder reads more" for name, cut in told.items() if cut]
    return found + alike_labels(context.task.labels) + _unseen_labels(context.task) + _seen_before(context.task)


def few_held_out(context: RunContext) -> list[str]:
    """Return a caution where too few questions are held out to choose a threshold by."""
    count = 0 if context.held_out is None else len(context.held_out.split.examples)
    if not context.task.kind.has_null or not 0 < count < LEAST_QUESTIONS:
        return []
    return [
        f"{counted(count, 'question')} held out are too few to choose a threshold and a temperature by "
        f"({half_right(count)}), so models keep their own; hold out at least {LEAST_QUESTIONS} (data.held_out)"
    ]


def tips(context: RunContext) -> list[str]:
    """Return what would make the run faster, where nothing was chosen."""
    experiment = context.experiment
    tunes = max(experiment.finetune.fractions, default=0) > 0
    if experiment.precision != "auto" or not tunes or not context.compute.has_faster_bf16:
        return []
    return ["`precision=bf16` makes training faster on this CPU"]


def same_answer(asked: Answering, predictions: Sequence[Any]) -> str | None:
    """Return a note on a model that gives every example the same answer where there are several, else None."""
    kind, examples = asked.info.kind, asked.split.examples
    said = {kind.said(each) for each in predictions}
    if len(said) > 1 or len(predictions) < 2 or len({kind.wanted(each) for each in examples}) < 2:
        return None
    answer = kind.name_of(said.pop(), asked.labels)
    start = ", or start from a model that knows the task (encoder: default-model)" if kind.asks_questions else ""
    return f"it gives every {kind.noun} the same answer, {answer}, and has learned nothing; {MORE}{start}"


def _seen_before(task: Task) -> list[str]:
    """Return a caution where dev holds examples of train, whatever they are called there; a few are in most data."""
    kind, dev = task.kind, task.dev
    known = {tuple(kind.texts(each).values()) for each in task.train.examples}
    count = sum(tuple(kind.texts(each).values()) in known for each in dev.examples)
    if count < LEAST_SHARED * len(dev.examples) or not count:
        return []
    told = f"{count:,} of the {len(dev.examples):,} examples of dev ({dev.name}) are in train too"
    return [f"{told}, so scores will look better than they are on new ones; take them out of one of the two"]


def _unseen_labels(task: Task) -> list[str]:
    """Return a caution where dev has labels that train lacks; the places of endings are no labels to learn."""
    if not (task.kind.names_labels or task.kind.labels_words):
        return []
    train, dev = (task.kind.count_labels(split.examples, task.labels) for split in (task.train, task.dev))
    unseen = [f"{label!r} ({count:,})" for label, count in dev.items() if count and not train[label]]
    if not unseen:
        return []
    shown = ", ".join(unseen[:MOST_SHOWN]) + (", ..." if len(unseen) > MOST_SHOWN else "")
    return [f"dev has labels that no training example has: {shown}; they cannot be learned; add examples to train"]


def _few_steps(who: str, steps: int, cure: str) -> list[str]:
    if steps >= LEAST_STEPS:
        return []
    plural = "step" if steps == 1 else "steps"
    return [f"{who} {steps} {plural} in all, too few to learn from; set {cure}, smaller batches or more epochs"]


def _head_steps(context: RunContext) -> int:
    config, states = context.experiment.heads, context.experiment.states
    lengths, seed = lengths_of(context.head_windows()), seed_for(context.seed, "heads")
    plan = StepPlan(lengths, config.batch, seed, states.batch, context.objective.group)
    return config.epochs * plan.num_steps(0)
