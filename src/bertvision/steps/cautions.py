"""What a user is told before a run: where it cannot learn, with a cure, and what would make it faster."""

from collections.abc import Sequence
from typing import Any

from bertvision.evaluate.calibration import LEAST_QUESTIONS
from bertvision.heads.config import is_regression
from bertvision.kinds.kind import Answering
from bertvision.metrics.proportions import half_right
from bertvision.steps.context import RunContext
from bertvision.steps.data import MOST_SHOWN, alike_labels
from bertvision.tables import counted
from bertvision.tasks import Task
from bertvision.training.loop import seed_for
from bertvision.windows.padding import lengths_of
from bertvision.windows.rows import describe_left_out
from bertvision.windows.step_plan import StepPlan

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
