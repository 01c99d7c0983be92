"""What live, kept in memory and kept on disk would take for an experiment, before any of it is done."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertvision.activations.machine import in_units
from bertvision.activations.planner import Choice, Estimate, in_time
from bertvision.encoder.encode import freeze
from bertvision.encoder.load import load_encoder
from bertvision.experiment import Experiment
from bertvision.features.batches import lengths_of
from bertvision.heads.build import reads_cls
from bertvision.progress import SILENT, Progress
from bertvision.stages.line import prepare
from bertvision.stages.states import plan_source, states_folder, wanted_states

PARTS = ("encode", "keep", "read", "heads")
COLUMNS = ("source", "total", *PARTS, "kept", "fits")


@dataclass(frozen=True)
class StatesPlan:
    """The three estimates for one seed and fraction, and the choice."""

    title: str
    choice: Choice

    @property
    def sentence(self) -> str:
        """Say what is chosen and why."""
        return f"states.source: auto would choose {self.choice.source}: {self.choice.reason}."

    def as_rows(self) -> list[tuple[str, ...]]:
        """Give the estimates as a table."""
        return [_row(estimate) for estimate in self.choice.estimates]

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        estimates = [
            {**estimate._asdict(), "seconds": estimate.seconds, "fits": estimate.misfit is None}
            for estimate in self.choice.estimates
        ]
        return {"choice": self.choice.source, "reason": self.choice.reason, "estimates": estimates}


def plan_states(experiment: Experiment, out: Path, progress: Progress = SILENT) -> StatesPlan:
    """Measure the encoder that the experiment starts from; a tuned one is as fast."""
    line = prepare(experiment, out, progress)
    seed, objective, encoder = (
        experiment.seeds[0],
        line.objective,
        freeze(load_encoder(experiment.encoder), line.compute),
    )
    # Where some heads read all tokens, theirs is the pass that costs.
    cls = all(reads_cls(head, objective) for head in experiment.heads.train)
    heads = [head for head in experiment.heads.train if reads_cls(head, objective) == cls]
    wanted = wanted_states(line, seed, encoder, objective=objective, cls=cls)
    folder = states_folder(line, seed, line.fractions[0], line.start_fingerprint, cls=cls)
    choice = plan_source(line, seed, wanted, folder, heads, objective)
    tokens, passes = int(lengths_of(wanted.windows).sum()), experiment.heads.epochs
    work = f"{len(wanted.windows):,} windows, {tokens:,} tokens, {passes} {'passes' if passes > 1 else 'pass'}"
    return StatesPlan(f"{experiment.name}: {work}, {len(heads)} {'heads' if len(heads) > 1 else 'head'}", choice)


def _row(estimate: Estimate) -> tuple[str, ...]:
    parts = [in_time(estimate.parts[part]) if part in estimate.parts else "" for part in PARTS]
    kept = in_units(estimate.num_bytes) if estimate.num_bytes else ""
    return (estimate.source, in_time(estimate.seconds), *parts, kept, "no" if estimate.misfit else "yes")
