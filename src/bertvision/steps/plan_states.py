"""What live, kept in memory and kept on disk would take for an experiment, before any of it is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.encoder.encode import freeze
from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.experiment import Experiment
from bertvision.progress import SILENT, Progress
from bertvision.states.config import in_units
from bertvision.states.planner import Choice, Estimate, in_time
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.finetune import output_layer, output_sees_last
from bertvision.steps.frozen_source import plan_bottom
from bertvision.steps.states import plan_source, states_folder, wanted_states
from bertvision.tables import Column, Table
from bertvision.windows.batches import lengths_of

PARTS = ("encode", "keep", "read", "heads")
COLUMNS = ("source", "total", *PARTS, "kept", Column("fits", "left"))
NOTHING = "Nothing to plan: heads.train is empty, and no `tune` freezes a block."


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


def plan_states(experiment: Experiment, out: Path, progress: Progress = SILENT) -> StatesPlan:
    """Measure the encoder that the experiment starts from; a tuned one is as fast."""
    context = prepare(experiment, out, progress)
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
    work = f"{len(wanted.windows):,} windows, {tokens:,} tokens, {passes} {'passes' if passes > 1 else 'pass'}"
    return f"{context.experiment.title}: {work}, {len(heads)} {'heads' if len(heads) > 1 else 'head'}", choice


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
