"""Trains all heads of an experiment in one pass over one source of states."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertvision.encoder.encode import PackedStates, StateBatch, StateSource
from bertvision.errors import TrainingError
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.grouped import can_be_grouped, grouped_logits
from bertvision.heads.head import Head
from bertvision.heads.readouts import BiLstmRowReadout, ClassReadout, hide_padding
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.shapes import StackShape
from bertvision.tables import counted
from bertvision.training.checkpoint import HeldSignals, load_progress, save_progress
from bertvision.training.config import SpanLoss
from bertvision.training.device import Compute, StepGraphs, wait_for
from bertvision.training.history import UNLOGGED, History, TrainingLog
from bertvision.training.loop import (
    Batch,
    Group,
    Learner,
    RandomStream,
    Step,
    diverged_among,
    draws_in_training,
    seed_for,
    train_steps,
)
from bertvision.training.objective import SPANS, Objective, loss_of, losses_of, start_of
from bertvision.training.optim import build_optimizer, build_schedule
from bertvision.windows.batches import labels_of
from bertvision.windows.window import Window

CPU = torch.device("cpu")


class EpochEnd(NamedTuple):
    """The end of one pass over the source."""

    epoch: int  # counted from 1
    seconds: float  # of training so far, all heads and the source together
    diverged: tuple[str, ...]  # heads that take no further part
    history: History | None = None  # to be marked with the heads' scores, where they are evaluated here
    # Lets heads take no further part; not where progress is saved, which is of all of them.
    drop: Callable[[Collection[str]], None] = lambda names: None


def build_heads(
    configs: Sequence[HeadConfig],
    shape: StackShape,
    seed: int,
    objective: Objective = SPANS,
    pooling: Pooling = "first",
) -> dict[str, Head]:
    """Build heads whose start depends on the seed and their own name alone, not on their company."""
    heads = {}
    for config in configs:
        with RandomStream(seed_for(seed, "start", config.name), CPU).entered():
            heads[config.name] = build_head(config, shape, objective, pooling)
    return heads


def start_at_prior(heads: Iterable[Head], objective: Objective, windows: Sequence[Window]) -> None:
    """Let rows' readouts start at the mean, or at how often each class occurs, in place of 0."""
    if objective.per == "row":
        bias, _ = start_of(objective, labels_of(windows))
        for head in heads:
            assert isinstance(head.readout, ClassReadout | BiLstmRowReadout)
            with torch.no_grad():
                head.readout.linear.bias.copy_(bias / head.readout.unit)


def train_heads_together(
    heads: Mapping[str, Head],
    source: StateSource,
    config: HeadsConfig,
    *,
    seed: int,
    compute: Compute,
    objective: Objective = SPANS,
    log: TrainingLog = UNLOGGED,
    saved: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[EpochEnd]:
    """Let every head learn from every batch of the source; hand control back after each epoch.

    `log` is told of the course of training. `saved` is a folder for what a stopped training needs to go on; it is read
    at the start where it exists.
    """
    num_steps = [source.num_steps(epoch) for epoch in range(config.epochs)]
    groups = build_groups(heads, config, sum(num_steps), seed, compute, objective)
    training = _Training(groups, num_steps, config, saved, log, compute)
    history = training.history
    for epoch in range(training.epoch, config.epochs):
        what = f"train {counted(len(heads), 'head')}" + (f", epoch {epoch + 1}" if config.epochs > 1 else "")
        batches = ([batch] for batch in source.epoch(epoch, first_step=training.done))
        with HeldSignals(saved) as signals, progress.bar(what, num_steps[epoch]) as bar:
            bar.advance(training.done)
            for step in training.take_steps(epoch, batches):
                bar.advance(1, partial(_note, step))
                training.save_if_due(epoch, step.number, signals)
        drop = partial(_drop, groups, history, heads, config, compute, objective)
        yield EpochEnd(epoch + 1, training.seconds, _diverged(groups), history, drop)
        history.mark()


class _Training:
    """A training of heads under way: how far it is, what it has cost and shown so far."""

    def __init__(
        self,
        groups: list[Group],
        num_steps: Sequence[int],
        config: HeadsConfig,
        saved: Path | None,
        log: TrainingLog,
        compute: Compute,
    ) -> None:
        """Begin, or go on from what is saved."""
        position = (load_progress(saved, groups) if saved is not None else None) or {}
        self.epoch: int = position.get("epoch", 0)  # that it begins in
        self.done: int = position.get("step", 0)  # steps of the coming epoch that were taken before
        self.seconds: float = position.get("seconds", 0.0)
        self._ends = [0, *accumulate(num_steps)]
        self.history = History(groups, self._ends[-1], partial(_epoch_at, self._ends), log, position.get("history"))
        self._groups, self._config, self._compute = groups, config, compute
        self._saved = saved if compute.processes.is_main else None  # the others have the same
        self._started = self._last_saved = time.perf_counter()

    def take_steps(self, epoch: int, batches: Iterable[Sequence[Batch]]) -> Iterator[Step]:
        """Take the steps of an epoch that are left; between two of them the caller may save."""
        self._started = time.perf_counter()
        for step in train_steps(self._groups, batches, first_number=self.done + 1):
            self.history.add(step, self._ends[epoch] + step.number, self.seconds + time.perf_counter() - self._started)
            yield step
        wait_for(self._compute.device)
        self.seconds += time.perf_counter() - self._started
        self.done = 0

    def save_if_due(self, epoch: int, number: int, signals: HeldSignals) -> None:
        """Save all that is needed to go on after a step, now and then and where the process was asked to end."""
        is_due = signals.came is not None or time.perf_counter() - self._last_saved > self._config.save_every
        if self._saved is None or not is_due:
            return
        self.seconds += time.perf_counter() - self._started
        position = {"epoch": epoch, "step": number, "seconds": self.seconds, "history": self.history.state()}
        save_progress(self._saved, self._groups, position)
        signals.act()
        self._started = self._last_saved = time.perf_counter()


def _epoch_at(ends: Sequence[int], number: int) -> float:
    """Return how many epochs have passed after a step, of those that end after so many."""
    return float(np.interp(number, ends, range(len(ends))))


def build_groups(
    heads: Mapping[str, Head],
    config: HeadsConfig,
    num_steps: int,
    seed: int,
    compute: Compute,
    objective: Objective = SPANS,
) -> list[Group]:
    """Make learners of heads: a group for those that are computed together on the same layers, one for each other."""
    learners = [_build_learner(name, head, config, num_steps, seed, compute, objective) for name, head in heads.items()]
    return _grouped(learners, heads, config, compute, objective)


def _drop(
    groups: list[Group],
    history: History,
    heads: Mapping[str, Head],
    config: HeadsConfig,
    compute: Compute,
    objective: Objective,
    names: Collection[str],
) -> None:
    """Form the groups anew without some of their learners."""
    left = [learner for group in groups for learner in group.learners if learner.name not in names]
    groups[:] = _grouped(left, heads, config, compute, objective)
    history.forget(names)


def _grouped(
    learners: Sequence[Learner], heads: Mapping[str, Head], config: HeadsConfig, compute: Compute, objective: Objective
) -> list[Group]:
    together: dict[tuple[int, ...] | None, list[Learner]] = {}  # by the layers that they read
    alone: list[Learner] = []
    for learner in learners:
        head = heads[learner.name]
        (together.setdefault(head.places, []) if can_learn_together(head) else alone).append(learner)
    groups = [
        Group(
            own,
            _losses_together([heads[each.name] for each in own], config.loss, objective),
            StepGraphs(compute.device) if compute.replays else None,
            compute.processes,
        )
        for own in together.values()
    ]
    return groups + [
        Group([each], _losses_alone(heads[each.name], config.loss, compute, objective), processes=compute.processes)
        for each in alone
    ]


def can_learn_together(head: Head) -> bool:
    """Return whether a head is computed together with others; such heads may also be given packed states."""
    return can_be_grouped(head) and not draws_in_training(head)


def _build_learner(
    name: str, head: Head, config: HeadsConfig, num_steps: int, seed: int, compute: Compute, objective: Objective
) -> Learner:
    own = next(each for each in config.train if each.name == name)
    decay = config.optim.weight_decay if own.weight_decay is None else own.weight_decay
    optim = config.optim.model_copy(update={"weight_decay": decay})
    capturable = compute.replays and can_learn_together(head)
    optimizer = build_optimizer(head.to(compute.device), own.lr or config.lr, optim, capturable=capturable)
    return Learner(
        name=name,
        model=head,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, optim, num_steps),
        stream=RandomStream(seed_for(seed, "heads", name), compute.device),
        max_grad_norm=optim.max_grad_norm,
        still=head.still_weights(objective.kind),
    )


def _losses_together(
    heads: Sequence[Head], how: SpanLoss, objective: Objective
) -> Callable[[StateBatch | PackedStates], Tensor]:
    def losses(batch: StateBatch | PackedStates) -> Tensor:
        states = heads[0].own_states(batch.states)
        if objective.per == "row":  # read from one state
            return losses_of(objective, grouped_logits(heads, states[:, :, :1])[:, :, 0], batch.windows, how)
        logits = grouped_logits(heads, states)
        if isinstance(batch, PackedStates):
            logits = batch.pad(logits)
        if objective.kind.softmax == "tokens":  # padding must not be chosen
            logits = hide_padding(logits, batch.windows.mask)
        return losses_of(objective, logits, batch.windows, how)

    return losses


def _losses_alone(head: Head, how: SpanLoss, compute: Compute, objective: Objective) -> Callable[[StateBatch], Tensor]:
    def losses(batch: StateBatch) -> Tensor:
        with compute.autocast():
            logits = head(*batch.seen)
        return loss_of(objective, logits, batch.windows, how)[None]

    return losses


def _diverged(groups: Sequence[Group]) -> tuple[str, ...]:
    for group in groups:
        group.give_up()  # those whose epoch ends in NaN
    diverged = tuple(diverged_among(groups))
    if diverged and len(diverged) == sum(len(group.learners) for group in groups):
        raise TrainingError(f"every head diverged ({', '.join(diverged)}); try a lower heads.lr")
    return diverged


def _note(step: Step) -> str:
    losses = step.losses.values()
    return f"loss {min(losses, default=nan):.2f}-{max(losses, default=nan):.2f}"
