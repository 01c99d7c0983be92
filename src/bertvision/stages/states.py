"""Where the heads stage gets its states from: computed each time, kept in memory, or read from an extracted folder."""

from collections.abc import Iterable
from pathlib import Path

import torch

from bertvision.encoder.encode import StateSource, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.heads.head import Head
from bertvision.heads.training import can_learn_together
from bertvision.model_config import Pooling
from bertvision.stages.context import RunContext
from bertvision.states.config import GIB, SourceName
from bertvision.states.folder import DTYPE, open_folder, settings_of
from bertvision.states.live import LiveStates, PackedLiveStates, packs_states
from bertvision.states.memory import StateRequest, StateStore, StoredStates, keep_in_memory
from bertvision.tables import in_units
from bertvision.training.loop import seed_for
from bertvision.windows.plan import lengths_of


def open_states(
    context: RunContext, encoder: Encoder, fingerprint: str, heads: Iterable[Head] = (), *, pooling: Pooling | None
) -> tuple[StateSource, str]:
    """Return the states that heads train on, with a word on where they come from, for the record.

    `fingerprint` is the encoder's. With `pooling` they are one per layer; where all heads, as they are built, score
    each token by itself, tokens may be packed.
    """
    request = state_request(context, encoder, pooling=pooling)
    store = keep_states(context, request, fingerprint, context.experiment.heads.epochs)
    if store is None:
        word = "live"
    elif context.experiment.states.folder is not None:
        word = "folder, bf16"
    else:
        word = "memory, bf16" if pooling is None else "memory, float32"
    return source_of(context, store, request, heads), word


def state_request(context: RunContext, encoder: Encoder, *, pooling: Pooling | None) -> StateRequest:
    """Describe the states that an experiment's heads train on; refuse layers that the encoder has not."""
    layers, group = context.experiment.states.chosen_layers, context.objective.group
    shape_of_states(encoder, layers)
    return StateRequest(encoder, context.head_windows(), context.compute, layers, pooling, group)


def keep_states(context: RunContext, request: StateRequest, fingerprint: str, passes: int) -> StateStore | None:
    """Keep the states for so many passes, or open the folder that holds them; None: they are live."""
    config = context.experiment.states
    match _choose_source(context, request, passes):
        case "live":
            return None
        case "memory":
            return keep_in_memory(request, _memory_dtype(request), context.progress)
        case "folder":
            split = context.task.train
            settings = settings_of(request, fingerprint, context.experiment.windows, split.sha256 or split.name)
            assert config.folder is not None
            return open_folder(request, Path(config.folder), settings, context.progress)


def source_of(
    context: RunContext, store: StateStore | None, request: StateRequest, heads: Iterable[Head]
) -> StateSource:
    """Return the states in the order of a context's seed; `heads` are those that they are for, as they are built."""
    batch, states_batch = context.experiment.heads.batch, context.experiment.states.batch
    seed, compute = seed_for(context.seed, "heads"), context.compute
    if store is not None:
        return StoredStates(
            store,
            request.windows,
            batch,
            seed,
            compute,
            pad_id=request.encoder.tokenizer.pad_token_id,
            states_batch=states_batch,
            group=request.group,
        )
    given, layers = (request.encoder, request.windows, batch, seed, compute), request.layers
    if _can_be_packed(request, list(heads)):
        return PackedLiveStates(*given, states_batch=states_batch, layers=layers)
    pooling, group = request.pooling, request.group
    return LiveStates(*given, states_batch=states_batch, layers=layers, pooling=pooling, group=group)


def suffix_of(pooling: Pooling | None) -> str:
    """Return what tells stages of heads on pooled states from that of heads on all tokens' states."""
    if pooling is None:
        return ""
    return "-cls" if pooling == "first" else f"-{pooling}"


def _choose_source(context: RunContext, request: StateRequest, passes: int) -> SourceName:
    """Choose by the settings and the states' size alone: no clock and no machine changes a result."""
    config = context.experiment.states
    if config.folder is not None:
        return "folder"
    if config.source != "auto":
        return config.source
    if request.pooling is None and passes == 1:
        return "live"  # every state is needed once
    needed = request.num_bytes(_memory_dtype(request))
    if needed <= config.memory * GIB:
        return "memory"
    tokens = int(lengths_of(request.windows).sum())
    context.progress.say(
        f"states: live, as {in_units(needed)} are more than states.memory ({config.memory:g} GiB): the encoder reads "
        f"{tokens:,} tokens in each of {passes} passes; extracted once (`encode`), they would take "
        f"{in_units(request.num_bytes(DTYPE))} on disk, to train from with states.folder"
    )
    return "live"


def _memory_dtype(request: StateRequest) -> torch.dtype:
    """Return how states are kept in memory: pooled ones are few, so they are not rounded."""
    return DTYPE if request.pooling is None else torch.float32


def _can_be_packed(request: StateRequest, heads: list[Head]) -> bool:
    is_of_tokens = request.pooling is None and request.group == 1
    return (
        bool(heads)
        and is_of_tokens
        and packs_states(request.encoder, request.compute)
        and all(map(can_learn_together, heads))
    )
