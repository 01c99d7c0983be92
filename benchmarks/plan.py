"""What an experiment would take, before any of it is done.

Its states live, kept in memory or kept on disk; and the whole run in several processes, measured in one here and scaled
by what is known of adding up.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.costs import MeasuredTraining, measure_training, size_for, speed_of
from bertvision.encoder.encode import freeze
from bertvision.encoder.finetune_plan import size_of
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.experiment import Experiment
from bertvision.progress import SILENT, Progress
from bertvision.states.planner import Choice, Estimate
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.data import ExperimentData
from bertvision.steps.finetune import output_layer, output_sees_last
from bertvision.steps.frozen_source import plan_bottom
from bertvision.steps.results import ENCODER
from bertvision.steps.states import plan_source, states_folder, wanted_states
from bertvision.tables import Column, Table, counted, in_time, in_units
from bertvision.training.loop import seed_for
from bertvision.windows.padding import lengths_of
from bertvision.windows.step_plan import StepPlan

PARTS = ("encode", "keep", "read", "heads")
COLUMNS = ("source", "total", *PARTS, "kept", Column("fits", "left"))
NOTHING = "Nothing to plan: heads.train is empty, and no `tune` freezes a block."
LINK = 50.0  # gigabytes a second between two processes: 400 Gbit/s, a usual network of GPU machines
MESSAGE = 20e-6  # seconds until a message arrives, however small
ANSWERED = 1_000_000  # windows


@dataclass(frozen=True)
class StatesPlan:
    """The three estimates for one seed and fraction, and the choice; and that for frozen blocks while tuning."""

    title: str = ""  # what the estimates are of
    choice: Choice | None = None  # None where no heads are trained
    bottom: Choice | None = None  # None where every weight of the encoder is tuned

    @property
    def sentence(self) -> str:
        """Say what is chosen and why."""
        planned = {"states.source": self.choice, "finetune.bottom": self.bottom}
        chosen = {name: each for name, each in planned.items() if each is not None}
        if not chosen:
            return NOTHING
        return " ".join(f"{name}: auto would choose {each.source}: {each.reason}." for name, each in chosen.items())

    def as_table(self) -> Table:
        """Lay out the estimates; none where no heads are trained."""
        estimates = () if self.choice is None else self.choice.estimates
        return Table("", COLUMNS, tuple(_row(estimate) for estimate in estimates))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        states = {} if self.choice is None else _as_dict(self.choice)
        return states if self.bottom is None else {**states, "bottom": _as_dict(self.bottom)}


def plan_states(
    experiment: Experiment, out: Path, progress: Progress = SILENT, data: ExperimentData | None = None
) -> StatesPlan:
    """Measure the encoder that the experiment starts from; a tuned one is as fast."""
    context = prepare(experiment, out, progress, data=data)
    context = context.at(context.seed, context.fractions[0])
    bottom = _plan_tuning(context)
    if not experiment.heads.train:
        return StatesPlan(bottom=bottom)
    return StatesPlan(*_plan_heads(context), bottom)


def _plan_heads(context: RunContext) -> tuple[str, Choice]:
    config = context.experiment.heads
    encoder = freeze(load_encoder(context.experiment.encoder), context.compute)
    # Where some heads read all tokens, theirs is the pass that costs.
    poolings = [context.pooling_of(head) for head in config.train]
    pooling = None if None in poolings else poolings[0]
    heads = [head for head, own in zip(config.train, poolings, strict=True) if own == pooling]
    wanted = wanted_states(context, encoder, pooling=pooling)
    folder = states_folder(context, context.start_fingerprint, pooling=pooling)
    choice = plan_source(context, wanted, folder, heads)
    tokens, passes = int(lengths_of(wanted.windows).sum()), config.epochs
    work = f"{counted(len(wanted.windows), 'window')}, {tokens:,} tokens, {passes} {'passes' if passes > 1 else 'pass'}"
    return f"{context.experiment.title}: {work}, {counted(len(heads), 'head')}", choice


def _plan_tuning(context: RunContext) -> Choice | None:
    if context.experiment.tune is None:
        return None
    encoder = load_encoder(context.experiment.encoder)
    start_tuning(encoder.model, context.experiment.tune, context.seed)
    return plan_bottom(context, encoder, sees_last=output_sees_last(output_layer(context)))


def _as_dict(choice: Choice) -> dict[str, Any]:
    estimates = [
        {**estimate._asdict(), "seconds": estimate.seconds, "fits": estimate.misfit is None}
        for estimate in choice.estimates
    ]
    return {"choice": choice.source, "reason": choice.reason, "estimates": estimates}


def _row(estimate: Estimate) -> tuple[str, ...]:
    parts = [in_time(estimate.parts[part]) if part in estimate.parts else "" for part in PARTS]
    kept = in_units(estimate.num_bytes) if estimate.num_bytes else ""
    return (estimate.source, in_time(estimate.seconds), *parts, kept, "no" if estimate.misfit else "yes")


class Stage(NamedTuple):
    """A part of a run: its computing, which processes share, and what they add up after each step."""

    name: str
    seconds: float  # of computing in one process
    steps: int = 0
    num_bytes: int = 0  # of the gradients

    def adding_up(self, count: int, link: float) -> float:
        """Return the seconds of adding up in a ring: each process sends 2 (N - 1) messages of 1 / N of the bytes."""
        messages = 2 * (count - 1)
        return self.steps * messages * (self.num_bytes / count / (1e9 * link) + MESSAGE)

    def seconds_in(self, count: int, link: float) -> float:
        """Return the seconds in so many processes: nothing is added up while another thing is computed."""
        return self.seconds / count + self.adding_up(count, link)


@dataclass(frozen=True)
class ProcessesPlan:
    """What each stage would take in one process and in several."""

    count: int
    link: float  # gigabytes a second
    device: str  # that was measured
    stages: list[Stage]

    def as_table(self) -> Table:
        """Lay out the stages."""
        columns = ("stage", "1 process", f"{self.count} processes", "of it adding up", "efficiency")
        return Table("", columns, tuple(self._row(stage) for stage in self.stages))

    def _row(self, stage: Stage) -> tuple[str, ...]:
        several, adding = stage.seconds_in(self.count, self.link), stage.adding_up(self.count, self.link)
        efficiency = stage.seconds / (self.count * several)
        return stage.name, in_time(stage.seconds), in_time(several), in_time(adding), f"{efficiency:.0%}"

    @property
    def sentence(self) -> str:
        """Say what is assumed."""
        return (
            f"Measured on {self.device} in one process. Assumed: every process is as fast, a part of a batch takes its "
            f"part of the time, and gradients (float32) are added up in a ring at {self.link:g} GB/s and "
            f"{MESSAGE * 1e6:g} microseconds a message, not while something is computed. Reading data, decoding and "
            "scoring are not counted."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        stages = [
            {**stage._asdict(), "seconds_in_processes": stage.seconds_in(self.count, self.link)}
            for stage in self.stages
        ]
        return {"processes": self.count, "link": self.link, "message": MESSAGE, "stages": stages}


def plan_processes(
    experiment: Experiment,
    out: Path,
    count: int,
    link: float = LINK,
    progress: Progress = SILENT,
    data: ExperimentData | None = None,
) -> ProcessesPlan:
    """Measure tuning, training heads and answering on a sample, for one seed, and scale it to so many processes."""
    context = prepare(experiment, out, progress, data=data)
    sample = prepare(experiment, out, SILENT, size_for(context.compute).examples, data=data)
    start = load_encoder(experiment.encoder)
    if context.compute.device.type == "cuda":  # the first to run in a process loads kernels
        measure_training(sample, start)
    return ProcessesPlan(count, link, context.compute.name, _stages(context, sample, measure_training(sample, start)))


def _stages(context: RunContext, sample: RunContext, trained: MeasuredTraining) -> list[Stage]:
    stages, num_bytes = [], {row.name: 4 * row.parameters.trainable for row in trained.rows}
    if trained.tuning is not None:
        steps = context.tuning_steps(context.experiment.finetune)
        seen = sum(map(size_of, steps))
        stages.append(Stage("fine-tune", trained.tuning.seconds * seen, len(steps), num_bytes.get(ENCODER, 0)))
    if trained.heads is not None:
        config, fractions = context.experiment.heads, len(context.fractions)
        plan = StepPlan(lengths_of(context.head_windows()), config.batch, seed_for(context.seed, "heads"))
        seen = fractions * config.epochs * len(context.head_windows())
        of_heads = sum(num_bytes[head.setting_of or head.name] for head in config.train)  # of every rate its own
        steps_of_heads = fractions * config.epochs * plan.num_steps(0)
        stages.append(Stage("heads, states live", trained.heads.seconds * seen, steps_of_heads, of_heads))
    for row in trained.rows[-1:]:
        speed = speed_of(sample, trained.encoder, row)
        stages.append(Stage(f"1 million windows by {row.name}", ANSWERED * speed.seconds))
    return stages
