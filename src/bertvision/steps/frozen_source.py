"""Where fine-tuning gets the output of an encoder's frozen bottom from: computed each time, or kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import nn

from bertvision.encoder.encode import Read, read_output
from bertvision.encoder.load import Encoder
from bertvision.encoder.tuning.freezing import first_above_bottom
from bertvision.files import read_json, write_json
from bertvision.states.blocks import BlockStore
from bertvision.states.cached import KeptBottom
from bertvision.states.config import NumberFormat
from bertvision.states.keep import Wanted, fingerprint_of, free_disk, free_ram, is_whole, keep_in_ram, keep_on_disk
from bertvision.states.live import read_quietly
from bertvision.states.planner import Choice, Machine, Work, choose_source, measure_speeds
from bertvision.steps.context import RunContext
from bertvision.steps.states import remove_states
from bertvision.training.accounting import Costs, Meter
from bertvision.windows.padding import lengths_of
from bertvision.windows.step_plan import StepPlan

DTYPE: NumberFormat = "float32"  # exact, so that the source does not decide what is learned
WRITTEN = "bottom.json"  # beside the progress of a fine-tuning: what was chosen, and what keeping has cost
SEEN_ONCE = Choice("live", "no window is seen twice, so keeping the output of frozen blocks gains nothing", [])
READ_BELOW = Choice("live", "the output layer reads states of frozen blocks, and only the highest one is kept", [])
CONTRASTED = Choice("live", "contrastive tuning sees pairs, and the output of frozen blocks is kept of rows", [])


class Bottom(NamedTuple):
    """How an encoder is read in training, with or without a frozen bottom."""

    read: Read | None  # None: as `finetune_encoder` does by itself
    states: str = "live"  # where the bottom's output comes from, for a record
    costs: Costs = Costs()  # of keeping it


@contextmanager
def open_bottom(
    context: RunContext, encoder: Encoder, read: Read | None, *, sees_last: bool, saved: Path | None = None
) -> Iterator[Bottom]:
    """Return how to read an encoder that `start_tuning` made ready, for an output layer that would see `read` of it.

    `sees_last` tells whether that is the encoder's output alone. `saved` is the folder of a fine-tuning that can go on:
    it goes on with the source that it began with. States in the run folder are removed when the block ends well, unless
    they are to be kept.
    """
    first, asked = frozen_below(context, encoder), context.experiment.finetune.bottom
    if first is None and asked not in (None, "live"):
        context.progress.say(f"finetune.bottom: live, {_why_none(context)}")
    source = "live"
    if first is not None:
        alone = context.alone()  # only the main process measures
        source = context.processes.agreed(lambda: _decide(alone, encoder, first, saved, sees_last=sees_last))
    if first is None or source == "live":
        yield live_bottom(context, encoder, read)
        return
    folder = _folder(context, first) if source == "disk" else None
    store, costs = _keep(context, _wanted(context, encoder, first), folder, saved)
    yield Bottom(KeptBottom(store, _read(context, read), first, context.compute), f"{source}, {DTYPE}", costs)
    is_own = context.experiment.states.folder is None and not context.experiment.states.keep
    if folder is not None and is_own and context.is_main:
        remove_states(folder)


def live_bottom(context: RunContext, encoder: Encoder, read: Read | None) -> Bottom:
    """Return how to read an encoder whose bottom runs each time: without dropout where it is frozen."""
    first = frozen_below(context, encoder)
    return Bottom(read if first is None else read_quietly(_read(context, read), first))


def frozen_below(context: RunContext, encoder: Encoder) -> int | None:
    """Return the first block that learns where all below it is frozen and a block is among that; else None."""
    tune = context.experiment.tune
    return first_above_bottom(encoder.model) if tune is not None and tune.freezes_bottom else None


def plan_bottom(context: RunContext, encoder: Encoder, *, sees_last: bool) -> Choice:
    """Choose between live, ram and disk, by measuring this machine where there is a choice."""
    first, passes = frozen_below(context, encoder), max(context.experiment.finetune.fractions, default=0.0)
    if first is None:
        return Choice("live", _why_none(context), [])
    if context.contrast is not None:
        return CONTRASTED
    if passes <= 1:
        return SEEN_ONCE
    if not sees_last:
        return READ_BELOW
    wanted, folder, lengths = _wanted(context, encoder, first), _folder(context, first), lengths_of(context.train)
    if is_whole(folder):
        return Choice("disk", f"it is in {folder}", [])
    plan = StepPlan(lengths, context.experiment.finetune.batch, context.seed, group=context.objective.group)
    speeds = measure_speeds(wanted, plan, folder, None)
    work = Work(int(lengths.sum()), passes, wanted.layout().num_bytes)
    return choose_source(work, speeds, Machine(free_ram(), free_disk(folder)))


def _decide(context: RunContext, encoder: Encoder, first: int, saved: Path | None, *, sees_last: bool) -> str:
    """Choose once: a fine-tuning that was cut short goes on with the source that it began with."""
    asked, written = context.experiment.finetune.bottom, None if saved is None else saved.with_name(WRITTEN)
    if asked == "live" or (asked is not None and sees_last):
        return asked
    if written is not None and written.exists():
        return str(read_json(written)["source"])
    choice = READ_BELOW if asked is not None else plan_bottom(context, encoder, sees_last=sees_last)
    if asked is not None or choice.estimates:
        context.progress.say(f"frozen blocks 1 to {first - 1}: {choice.source}, {choice.reason}")
    if written is not None:
        write_json(written, {"source": choice.source, "reason": choice.reason})
    return choice.source


def _keep(context: RunContext, wanted: Wanted, folder: Path | None, saved: Path | None) -> tuple[BlockStore, Costs]:
    """Run the bottom once on all windows, or open what it gave; what the first time has cost counts."""
    meter, data = Meter(context.compute.device), context.task.train
    meter.go()
    if folder is None:
        store = keep_in_ram(wanted, context.progress)
    else:
        fingerprint = fingerprint_of(wanted, context.start_fingerprint, {"name": data.name, "sha256": data.sha256})
        store = keep_on_disk(wanted, folder, fingerprint, context.progress)
    costs = meter.stop()
    if saved is None or not context.is_main:
        return store, costs
    written = saved.with_name(WRITTEN)
    noted = read_json(written) if written.exists() else {}
    if "costs" not in noted:
        noted = {**noted, "costs": costs._asdict()}
        write_json(written, noted)
    return store, Costs(**noted["costs"])


def _read(context: RunContext, read: Read | None) -> Read:
    return partial(read_output, objective=context.objective) if read is None else read


def _wanted(context: RunContext, encoder: Encoder, first: int) -> Wanted:
    nn.Module.to(encoder.model, device=context.compute.device)
    return Wanted(encoder, context.train, context.compute, DTYPE, group=context.objective.group, entering=first)


def _folder(context: RunContext, first: int) -> Path:
    """Return the place of kept states; a folder of the user's own can hold those of several encoders, for all seeds."""
    own = context.experiment.states.folder
    if own is not None:
        return Path(own) / f"{context.start_fingerprint[:16]}-entering{first}"
    return context.folder.root / "states" / "bottom"


def _why_none(context: RunContext) -> str:
    tune = context.experiment.tune
    if tune is not None and tune.norms and tune.trained.kind in ("top", "none"):
        return "tune.norms trains the embeddings' norm, so no block has the same input twice; norms: false would help"
    return "no block lies below all that is trained"
