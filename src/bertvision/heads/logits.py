"""Heads and windows -> logits, for any number of heads in one pass of the encoder.

And what one head sees of an encoder when no other head shares the pass.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from bertvision.encoder.encode import Read, StateBatch, encode, read_states
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig, reads_last_alone
from bertvision.heads.grouped import can_be_grouped, grouped_logits
from bertvision.heads.head import Head, score_columns
from bertvision.kinds.kind import Per
from bertvision.model_config import Pooling
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.states.live import (
    KeptBatches,
    PackedEncoder,
    outputs_in_order_of_length,
    packs_states,
    states_in_order_of_length,
)
from bertvision.training.device import Compute, fetch_behind
from bertvision.windows.batches import WindowBatch
from bertvision.windows.packing import cut_in_order, packed_shape
from bertvision.windows.plan import CPU_TOKENS, lengths_of, places_of
from bertvision.windows.window import Window


def logits_of(
    encoder: Encoder,
    heads: Mapping[str, Head],
    windows: Sequence[Window],
    per: Per,
    compute: Compute,
    progress: Progress = SILENT,
    tokens: int = 16384,
    layers: tuple[int, ...] | None = None,
    kept: KeptBatches | None = None,
) -> dict[str, Logits]:
    """Return every head's logits per token or per row; heads on pooled states have a pass of their own.

    A batch has so many `tokens`, on a CPU at most CPU_TOKENS. `kept` keeps the states for the next call.
    """
    if compute.device.type == "cpu":
        tokens = min(tokens, CPU_TOKENS)
    if per == "token":
        return token_logits(encoder, heads, windows, compute, progress, tokens, layers, kept)
    found: dict[str, Logits] = {}
    for pooling in dict.fromkeys(head.pooling for head in heads.values()):
        own = {name: head for name, head in heads.items() if head.pooling == pooling}
        found |= row_logits(encoder, own, windows, compute, progress, tokens, layers, kept, pooling=pooling)
    return {name: found[name] for name in heads}


def token_logits(
    encoder: Encoder,
    heads: Mapping[str, Head],
    windows: Sequence[Window],
    compute: Compute,
    progress: Progress = SILENT,
    tokens: int = 16384,
    layers: tuple[int, ...] | None = None,
    kept: KeptBatches | None = None,
) -> dict[str, Logits]:
    """Run the frozen encoder once over the windows and every head on its states: [token, column], window after window.

    Padding is left out, as in `predictions.logits.grid_of`. `tokens` is the size of a batch, padding counted; `layers`
    the states that the heads are given (None: all).
    """
    is_packed = packs_states(encoder, compute) and all(_scores_each_token(head) for head in heads.values())
    if kept is None and is_packed and windows:
        return _packed_logits(encoder, heads, windows, compute, progress, tokens, layers)
    batches: Iterable[StateBatch] = states_in_order_of_length(encoder, windows, tokens, compute, layers=layers)
    batches = batches if kept is None else kept.through(None, batches)
    return _fill(heads, batches, windows, "token", compute, progress)


def _scores_each_token(head: Head) -> bool:
    return can_be_grouped(head) and head.places is None


def _packed_logits(
    encoder: Encoder,
    heads: Mapping[str, Head],
    windows: Sequence[Window],
    compute: Compute,
    progress: Progress,
    tokens: int,
    layers: tuple[int, ...] | None,
) -> dict[str, Logits]:
    """Do what `token_logits` does with packed tokens and all heads together; results are fetched a batch behind."""
    lengths = lengths_of(windows)
    batches = cut_in_order(lengths, tokens)
    shape, running = packed_shape(lengths, batches), PackedEncoder(encoder, windows, compute, layers)
    own = [head.to(compute.device).eval() for head in heads.values()]
    logits = np.zeros((len(own), int(lengths.sum()), score_columns(own[0])), np.float32)
    numbers = compute.processes.own(range(len(batches)))
    bounds = np.concatenate([[0], np.cumsum([lengths[rows].sum() for rows in batches])])
    with progress.bar("predict", len(windows)) as bar, torch.no_grad():
        found = (grouped_logits(own, running.states(batches[each], shape))[:, 0].float() for each in numbers)
        for number, scores in zip(numbers, fetch_behind(found), strict=True):
            first, stop = bounds[number], bounds[number + 1]
            logits[:, first:stop] = scores[:, : stop - first].numpy()
            bar.advance(len(batches[number]) * compute.processes.count)
    compute.processes.add_up_array(logits)
    return dict(zip(heads, logits, strict=True))


def row_logits(
    encoder: Encoder,
    heads: Mapping[str, Head],
    windows: Sequence[Window],
    compute: Compute,
    progress: Progress = SILENT,
    tokens: int = 16384,
    layers: tuple[int, ...] | None = None,
    kept: KeptBatches | None = None,
    *,
    pooling: Pooling | None = None,
) -> dict[str, Logits]:
    """Run the frozen encoder once over the windows and every head on its states: [window, column].

    With `pooling` heads are given one state per layer (`encode_pooled`).
    """
    batches: Iterable[StateBatch] = states_in_order_of_length(
        encoder, windows, tokens, compute, layers=layers, pooling=pooling
    )
    batches = batches if kept is None else kept.through(pooling, batches)
    return _fill(heads, batches, windows, "row", compute, progress)


def output_logits(
    encoder: Encoder,
    head: Head,
    read: Read,
    windows: Sequence[Window],
    per: Per,
    compute: Compute,
    tokens: int = 16384,
) -> Logits:
    """Return the logits of an output layer on an encoder that is in training; `read` gives what it sees."""
    if compute.device.type == "cpu":
        tokens = min(tokens, CPU_TOKENS)
    batches = outputs_in_order_of_length(encoder, read, windows, tokens, compute)
    return _fill({"output": head}, batches, windows, per, compute, SILENT)["output"]


def _fill(
    heads: Mapping[str, Head],
    batches: Iterable[StateBatch],
    windows: Sequence[Window],
    per: Per,
    compute: Compute,
    progress: Progress,
) -> dict[str, Logits]:
    """Run every head on every batch of states; padding has no place among the logits of tokens.

    Of several processes each has some of the batches, and the scores of all then.
    """
    window_at = np.concatenate([[0], np.cumsum(lengths_of(windows))])
    size = int(window_at[-1]) if per == "token" else len(windows)
    logits = {name: np.zeros((size, score_columns(head)), np.float32) for name, head in heads.items()}
    for head in heads.values():
        head.to(compute.device).eval()
    with progress.bar("predict", len(windows)) as bar:
        for batch in batches:
            rows, mask = batch.windows.rows, batch.windows.mask
            places = places_of(window_at, rows) if per == "token" else rows
            # As in training: autocast around the heads alone, the encoder's weights have its number format already.
            with torch.no_grad(), compute.autocast():
                for name, head in heads.items():
                    scores = head(*batch.seen)
                    logits[name][places] = (scores[mask] if per == "token" else scores).float().cpu().numpy()
            bar.advance(batch.size * compute.processes.count)
    for each in logits.values():
        compute.processes.add_up_array(each)
    return logits


def reading_of(config: HeadConfig, head: Head) -> Read:
    """Return the cheapest way to run an encoder for a head: a head of the last state needs no other gathered."""
    return _read_last if sees_last(config, head) else partial(read_states, pooling=head.pooling)


def sees_last(config: HeadConfig, head: Head) -> bool:
    """Return whether a head is given the encoder's output and no state from below it."""
    return reads_last_alone(config) and head.pooling is None and head.places is None


def _read_last(encoder: Encoder, batch: WindowBatch) -> StateBatch:
    return StateBatch(encode(encoder, batch, last_only=True), batch)
