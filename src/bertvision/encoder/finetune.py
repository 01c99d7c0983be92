"""Short fine-tuning of any encoder, stopping at fractions of an epoch."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from bertvision.encoder.contrastive import GROUPS, contrastive_losses
from bertvision.encoder.encode import Read, has_pooler, read_output
from bertvision.encoder.finetune_plan import (
    FinetuneConfig,
    StepKind,
    evaluation_steps,
    plan_steps,
    size_of,
    steps_of_fractions,
)
from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import MakeBatches, batch_maker, choose_step, compiled
from bertvision.encoder.tuning.blocks import checkpointed
from bertvision.encoder.tuning.freezing import frozen_numbers, still_weights
from bertvision.errors import TrainingError
from bertvision.kinds.kind import Contrast, Kind
from bertvision.progress import SILENT, Progress
from bertvision.records import TrainingPoint
from bertvision.training.accounting import Costs, Meter
from bertvision.training.checkpoint import BestWeights, HeldSignals, load_progress, save_progress
from bertvision.training.device import Compute, StepGraphs
from bertvision.training.history import UNLOGGED, History, TrainingLog
from bertvision.training.loop import Group, Learner, RandomStream, Step, Still, diverged_among, seed_for, train_steps
from bertvision.training.objective import SPANS, Objective, Teach, loss_of, taught_loss
from bertvision.training.optim import build_optimizer, build_schedule
from bertvision.windows.batches import WindowBatch
from bertvision.windows.plan import Rows
from bertvision.windows.window import Window

UNSPENT = Costs()
ENCODER = "encoder"
Evaluate = Callable[[], float | None]  # scores encoder and output layer as they are; None: there is no score


@runtime_checkable
class OutputLayer(Protocol):
    """An output layer that knows which weights its loss does not see, such as any `Head`."""

    def still_weights(self, kind: Kind) -> list[Still]:
        """Name its own."""
        ...

    def ignores_shifts(self, kind: Kind) -> bool:
        """Return whether no loss changes when the same is added to every last state."""
        ...


class Checkpoint(NamedTuple):
    """A moment of fine-tuning at which the weights are to be kept."""

    fraction: float
    costs: Costs  # of training up to here
    points: Sequence[TrainingPoint] = ()  # the course of training up to here
    best: int | None = None  # the step that the weights are of, where the best ones are kept
    steps: str = "eager"  # how they were taken (`StepKind`), and why not as graphs where that failed

    @property
    def seconds(self) -> float:
        """Return how long the training took up to here."""
        return self.costs.seconds


def finetune_encoder(
    encoder: Encoder,
    output: nn.Module,
    windows: Sequence[Window],
    config: FinetuneConfig,
    *,
    seed: int,
    compute: Compute,
    objective: Objective = SPANS,
    read: Read | None = None,
    teach: Teach | None = None,
    contrast: Contrast | None = None,
    rates: Mapping[str, float] | None = None,
    evaluate: Evaluate | None = None,
    log: TrainingLog = UNLOGGED,
    saved: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[Checkpoint]:
    """Tune encoder and output layer together; at each fraction hand control back, their weights as they are then.

    Of both, the weights that learn (`requires_grad`) are trained, but for what `freeze_share` froze of the encoder's.
    `read` gives what the output layer sees, by default what `encode_output` gives. `teach` gives the logits of
    `config.teacher`. With `contrast` the windows are those of `contrast_windows`, and the output layer has no part.
    `rates` are other rates than `config.lr`, by a word of the weights' names. `evaluate` scores both as they are (see
    `config.evaluate_every`), and `log` is told of the course of training. `saved` is a folder for what a stopped
    training needs to go on; it is read at the start where it exists.
    """
    if config.dropout is not None:
        set_dropout(encoder.model, config.dropout)
    nn.Module.to(encoder.model, device=compute.device)  # transformers' own `to` has no types
    together = objective.group if contrast is None else GROUPS[contrast]
    steps = plan_steps(windows, config, seed, together)
    evaluations = evaluation_steps(config, steps, len(windows)) if evaluate is not None else set()
    asked = "eager" if config.gradient_checkpointing else config.step_mode  # blocks that run twice are in no graph
    reads_last = read is None and contrast is None
    kind = choose_step(asked, encoder, compute, reads_last=reads_last)
    losses_of = _losses_of(encoder, output, config, compute, objective, read, teach, contrast)
    still = _still_weights(encoder, output, objective)
    graphs = StepGraphs(compute.device) if compute.replays and kind != "eager" else None
    group = _build_group(encoder, output, config, rates, len(steps), seed, compute, losses_of, still, graphs)
    tuning = _Tuning(group, steps, len(windows), config, saved, log, compute, partial(_steps_as, kind, graphs))
    yield from tuning.reached_before()
    if not tuning.pending:
        return
    with (
        checkpointed(encoder.model, config.gradient_checkpointing),
        # Evaluations would be compiled again, for every shape of theirs.
        compiled(encoder, kind, 0 if evaluations else len(steps) - tuning.done, compute, progress),
        progress.bar("fine-tune", sum(map(size_of, steps))) as bar,
        HeldSignals(saved) as signals,
    ):
        bar.advance(sum(map(size_of, steps[: tuning.done])))
        for step in tuning.take_steps(batch_maker(kind, steps, windows, encoder, compute, together)):
            bar.advance(size_of(steps[step.number - 1]), partial(_note, step))
            if step.number in evaluations and evaluate is not None:
                tuning.evaluate(step.number, evaluate)
            tuning.save_if_due(step.number, signals)
            yield from tuning.reached_with(step.number, signals)
            if tuning.is_over and step.number < len(steps):
                progress.say(f"fine-tuning stopped early, after step {step.number} of {len(steps)}")
                return
    if tuning.pending:
        _check(group, len(steps))


class _Tuning:
    """A fine-tuning under way: what it has cost and shown so far, its best weights, and the fractions to come."""

    def __init__(
        self,
        group: Group,
        steps: Sequence[Sequence[Rows]],
        num_windows: int,
        config: FinetuneConfig,
        saved: Path | None,
        log: TrainingLog,
        compute: Compute,
        steps_as: Callable[[], str],
    ) -> None:
        """Begin, or go on from what is saved."""
        position = load_progress(saved, [group]) if saved is not None else None
        self.done: int = position["step"] if position else 0  # steps taken before
        self._before = Costs(**position["costs"]) if position else UNSPENT
        self._group, self._steps, self._config = group, steps, config
        self._saved = saved if compute.processes.is_main else None  # the others have the same
        self._steps_as = steps_as
        self._meter, self._last_saved = Meter(compute.device, self._before), time.perf_counter()
        seen = np.cumsum([0, *map(size_of, steps)]) / max(num_windows, 1)
        history = (position or {}).get("history")
        self._history = History([group], len(steps), lambda number: float(seen[number]), log, history)
        model, kept = group.learners[0].model, saved if position else None
        self._best = BestWeights(model, self._history.points[ENCODER], kept, is_asked=config.keeps_best)
        stops = steps_of_fractions(config.fractions, steps, num_windows)
        self.pending = [(fraction, stop) for fraction, stop in stops if stop >= self.done]

    @property
    def is_over(self) -> bool:
        """Return whether it has waited long enough for better weights."""
        return self._best.is_over(self._config.patience)

    def take_steps(self, make_batches: MakeBatches) -> Iterator[Step]:
        """Take the steps that are left; between two of them the caller may evaluate, save and hand control back."""
        batches = (make_batches(step) for step in self._steps[self.done :])
        self._last_saved = time.perf_counter()
        self._meter.go()
        for step in train_steps([self._group], self._meter.timed(batches), first_number=self.done + 1):
            self._history.add(step, step.number, self._meter.elapsed)
            yield step

    def evaluate(self, number: int, evaluate: Evaluate) -> None:
        """Score the weights as they are after a step, and keep them if they are the best."""
        _check(self._group, number)
        self._meter.stop()
        score = evaluate()
        self._history.mark({ENCODER: score})
        self._best.offer(number, score)
        self._meter.go()

    def save_if_due(self, number: int, signals: HeldSignals) -> None:
        """Save all that is needed to go on after a step, now and then and where the process was asked to end."""
        if self._saved is None or not self._is_due(number, signals):
            return
        _check(self._group, number)
        position = {"step": number, "costs": self._meter.stop()._asdict(), "history": self._history.state()}
        save_progress(self._saved, [self._group], position, self._best.tensors)
        signals.act()
        self._last_saved = time.perf_counter()
        self._meter.go()

    def _is_due(self, number: int, signals: HeldSignals) -> bool:
        is_late = time.perf_counter() - self._last_saved > self._config.save_every and number < len(self._steps)
        return is_late or signals.came is not None

    def reached_before(self) -> Iterator[Checkpoint]:
        """Hand control back at each fraction that needs no further step."""
        while self._is_reached(self.done):
            yield from self._checkpoint(self._before if self.done else UNSPENT)

    def reached_with(self, number: int, signals: HeldSignals) -> Iterator[Checkpoint]:
        """Hand control back at each fraction that ends with a step; signals act meanwhile."""
        while self._is_reached(number):
            _check(self._group, number)
            signals.let_go()
            yield from self._checkpoint(self._meter.stop())
            signals.hold()
            self._meter.go()

    def _is_reached(self, number: int) -> bool:
        """Return whether the next fraction ends here: with this step, or because training stops early."""
        return bool(self.pending) and (self.pending[0][1] == number or self.is_over)

    def _checkpoint(self, costs: Costs) -> Iterator[Checkpoint]:
        with self._best.in_place():
            self._history.mark()
            points = tuple(self._history.points[ENCODER])
            yield Checkpoint(self.pending.pop(0)[0], costs, points, self._best.step, self._steps_as())


def set_dropout(model: nn.Module, share: float) -> None:
    """Change every dropout of a model."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


def _check(group: Group, number: int) -> None:
    if diverged_among([group]):
        raise TrainingError(f"fine-tuning diverged before step {number}; try a lower finetune.lr or a warmup")


def _steps_as(kind: StepKind, graphs: StepGraphs | None) -> str:
    return kind if graphs is None or graphs.problem is None else f"{kind}, not as graphs: {graphs.problem}"


def _note(step: Step) -> str:
    return f"loss {next(iter(step.losses.values()), nan):.2f}"


def _build_group(
    encoder: Encoder,
    output: nn.Module,
    config: FinetuneConfig,
    rates: Mapping[str, float] | None,
    num_steps: int,
    seed: int,
    compute: Compute,
    losses_of: Callable[[WindowBatch], Tensor],
    still: Sequence[Still],
    graphs: StepGraphs | None,
) -> Group:
    model = nn.ModuleList([encoder.model, output.to(compute.device)])
    optimizer = build_optimizer(model, config.lr, config.optim, rates, capturable=graphs is not None)
    learner = Learner(
        name=ENCODER,
        model=model,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, config.optim, num_steps),
        stream=RandomStream(seed_for(seed, "finetune"), compute.device),
        max_grad_norm=config.optim.max_grad_norm,
        still=still,
        frozen=frozen_numbers(encoder.model),
    )
    return Group([learner], losses_of, graphs, compute.processes)


def _still_weights(encoder: Encoder, output: nn.Module, objective: Objective) -> list[Still]:
    if not isinstance(output, OutputLayer):
        return still_weights(encoder.model, ignores_shifts=False)
    # A pooler stands between the last states and a row's scores, and is not linear.
    is_linear = objective.per == "token" or not has_pooler(encoder)
    ignores_shifts = is_linear and output.ignores_shifts(objective.kind)
    return [*still_weights(encoder.model, ignores_shifts=ignores_shifts), *output.still_weights(objective.kind)]


def _losses_of(
    encoder: Encoder,
    output: nn.Module,
    config: FinetuneConfig,
    compute: Compute,
    objective: Objective,
    read: Read | None,
    teach: Teach | None,
    contrast: Contrast | None,
) -> Callable[[WindowBatch], Tensor]:
    if contrast is not None:
        return contrastive_losses(encoder, compute, contrast)
    teacher = config.teacher

    def losses_of(batch: WindowBatch) -> Tensor:
        with compute.autocast():
            seen = read_output(encoder, batch, objective) if read is None else read(encoder, batch)
            logits = output(*seen.seen)
        loss = loss_of(objective, logits, batch, config.loss)
        if teacher is not None and teach is not None:
            taught = taught_loss(objective.kind, logits, teach(batch), teacher.temperature, config.loss, batch.weights)
            loss = (1 - teacher.loss_weight) * loss + teacher.loss_weight * taught
        return loss[None]

    return losses_of
