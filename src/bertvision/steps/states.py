"""Where the heads stage gets its states from: computed each time, or kept in memory or on disk."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bertvision.encoder.encode import StateSource, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.files import read_json, remove_folder, remove_if_empty, write_json
from bertvision.heads.config import HeadConfig, is_regression
from bertvision.heads.head import Head
from bertvision.heads.training import build_heads, can_learn_together, train_heads_together
from bertvision.model_config import Pooling
from bertvision.records import fraction_name
from bertvision.states.blocks import BlockStore
from bertvision.states.cached import CachedStates
from bertvision.states.config import SourceName
from bertvision.states.keep import Wanted, fingerprint_of, free_disk, free_ram, is_whole, keep_in_ram, keep_on_disk
from bertvision.states.live import LiveStates, PackedLiveStates, packs_states
from bertvision.states.planner import ONE_PASS, Choice, Machine, Train, Work, choose_source, measure_speeds
from bertvision.steps.context import RunContext
from bertvision.training.loop import seed_for
from bertvision.windows.padding import lengths_of
from bertvision.windows.step_plan import StepPlan

SMALL = Choice("ram", "one state per layer and row is little", [])


@contextmanager
def open_states(
    context: RunContext,
    encoder: Encoder,
    weights: str,
    heads: Sequence[HeadConfig],
    built: Iterable[Head] = (),
    *,
    pooling: Pooling | None = None,
) -> Iterator[tuple[StateSource, str]]:
    """The states that heads train on and a word on where they come from; `weights` is the fingerprint of `encoder`.

    With `pooling` they are one per layer; where all heads, as they are `built`, score each token by itself, tokens may
    be packed. States in the run folder are removed when the block ends well, unless they are to be kept.
    """
    config, folder = context.experiment.states, states_folder(context, weights, pooling=pooling)
    wanted = wanted_states(context, encoder, pooling=pooling)
    source = context.processes.agreed(lambda: _decide(context, wanted, folder, heads))
    store = keep_states(context, source, wanted, folder, weights)
    yield (
        source_of(context, store, wanted, built),
        source if source == "live" else f"{source}, {wanted.dtype}",
    )
    if source == "disk" and config.folder is None and not config.keep and context.is_main:
        remove_states(folder)


def remove_states(folder: Path) -> None:
    """Remove kept states from the run folder."""
    remove_folder(folder)
    remove_if_empty(folder.parent)


def wanted_states(context: RunContext, encoder: Encoder, *, pooling: Pooling | None) -> Wanted:
    """Describe the states that an experiment's heads train on; refuse layers that the encoder has not."""
    config = context.experiment.states
    shape_of_states(encoder, config.chosen_layers)
    windows, layers = context.head_windows(), config.chosen_layers
    dtype = config.dtype if pooling is None else "float32"  # pooled ones are few
    return Wanted(encoder, windows, context.compute, dtype, layers, pooling=pooling, group=context.objective.group)


def states_folder(context: RunContext, weights: str, *, pooling: Pooling | None) -> Path:
    """Return the place of kept states; a folder of the user's own can hold those of several encoders."""
    if context.experiment.states.folder is not None:
        share = context.experiment.heads.share
        part = "" if share == 1 else f"-{share:g}-seed{context.seed}"  # every seed draws its own share
        return Path(context.experiment.states.folder) / f"{weights[:16]}{part}{suffix_of(pooling)}"
    return context.folder.root / "states" / f"{fraction_name(context.fraction)}{suffix_of(pooling)}"


def plan_source(context: RunContext, wanted: Wanted, folder: Path, heads: Sequence[HeadConfig]) -> Choice:
    """Measure this machine and choose between live, ram and disk.

    Each of several processes computes its part, and keeps all states where they are kept in memory.
    """
    context, several = context.alone(), context.processes.count
    wanted = replace(wanted, compute=context.compute)
    lengths = lengths_of(wanted.windows)
    work = Work(int(lengths.sum()), context.experiment.heads.epochs, wanted.layout().num_bytes)
    train = _rehearse(context, wanted, heads)
    speeds = measure_speeds(wanted, _step_plan(context, wanted), folder, train)
    speeds = speeds._replace(encoder=several * speeds.encoder, heads=several * speeds.heads)
    return choose_source(work, speeds, Machine(free_ram() // several, free_disk(folder)))


def _decide(context: RunContext, wanted: Wanted, folder: Path, heads: Sequence[HeadConfig]) -> SourceName:
    """Choose once: a stage that was cut short goes on with the states that it began with."""
    if context.experiment.states.source != "auto":
        return context.experiment.states.source
    written = (
        context.folder.unfinished(f"heads-{fraction_name(context.fraction)}{suffix_of(wanted.pooling)}") / "states.json"
    )
    if written.exists():
        made: SourceName = read_json(written)["source"]
        return made
    choice = choose_states(context, wanted, folder, heads)
    write_json(written, {"source": choice.source, "reason": choice.reason})
    return choice.source


def choose_states(context: RunContext, wanted: Wanted, folder: Path, heads: Sequence[HeadConfig]) -> Choice:
    """Choose between live, ram and disk where the experiment leaves it to us."""
    if is_whole(folder):
        return Choice("disk", f"they are in {folder}", [])
    if wanted.pooling is not None and wanted.layout().num_bytes < free_ram() / 4:
        return SMALL
    if context.experiment.heads.epochs == 1:
        return ONE_PASS
    choice = plan_source(context, wanted, folder, heads)
    context.progress.say(f"states: {choice.source}, {choice.reason}")
    return choice


def keep_states(
    context: RunContext, source: SourceName, wanted: Wanted, folder: Path, weights: str
) -> BlockStore | None:
    """Keep the states in memory or on disk; None: they are live."""
    if source == "live":
        return None
    if source == "ram":
        return keep_in_ram(wanted, context.progress)
    data = context.task.train
    fingerprint = fingerprint_of(wanted, weights, {"name": data.name, "sha256": data.sha256})
    return keep_on_disk(wanted, folder, fingerprint, context.progress)


def source_of(context: RunContext, store: BlockStore | None, wanted: Wanted, heads: Iterable[Head]) -> StateSource:
    """Return the states in the order of a context's seed; `heads` are those that they are for, as they are built."""
    batch, states_batch = context.experiment.heads.batch, context.experiment.states.batch
    seed, compute = seed_for(context.seed, "heads"), context.compute
    if store is None:
        given, layers = (wanted.encoder, wanted.windows, batch, seed, compute), wanted.layers
        if _can_be_packed(wanted, list(heads)):
            return PackedLiveStates(*given, states_batch=states_batch, layers=layers)
        pooling, group = wanted.pooling, wanted.group
        return LiveStates(*given, states_batch=states_batch, layers=layers, pooling=pooling, group=group)
    return CachedStates(
        store,
        wanted.windows,
        batch,
        seed,
        compute,
        pad_id=wanted.encoder.tokenizer.pad_token_id,
        states_batch=states_batch,
        group=wanted.group,
    )


def _can_be_packed(wanted: Wanted, heads: Sequence[Head]) -> bool:
    is_of_tokens = wanted.pooling is None and wanted.group == 1
    return (
        bool(heads)
        and is_of_tokens
        and packs_states(wanted.encoder, wanted.compute)
        and all(map(can_learn_together, heads))
    )


def _step_plan(context: RunContext, wanted: Wanted) -> StepPlan:
    batch, states_batch = context.experiment.heads.batch, context.experiment.states.batch
    return StepPlan(lengths_of(wanted.windows), batch, seed_for(context.seed, "heads"), states_batch, wanted.group)


def suffix_of(pooling: Pooling | None) -> str:
    """Return what tells folders of pooled states from that of all tokens' states."""
    if pooling is None:
        return ""
    return "-cls" if pooling == "first" else f"-{pooling}"


def _rehearse(context: RunContext, wanted: Wanted, heads: Sequence[HeadConfig]) -> Train:
    """Return a training of heads like the real ones, for the sake of its time."""
    heads, objective = [head for head in heads if not is_regression(head)], context.objective
    once = context.experiment.heads.model_copy(update={"train": tuple(heads), "epochs": 1})

    def train(source: StateSource) -> None:
        shape = shape_of_states(wanted.encoder, wanted.layers, pooling=wanted.pooling)
        built = build_heads(heads, shape, context.seed, objective)
        for _ in train_heads_together(
            built, source, once, seed=context.seed, compute=context.compute, objective=objective
        ):
            pass

    return train
