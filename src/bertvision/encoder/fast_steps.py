"""How steps of fine-tuning keep a GPU busy: batches of few shapes, replayed as CUDA graphs; compiled blocks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from bertvision.encoder.finetune_plan import StepKind
from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import can_pack
from bertvision.encoder.tuning.blocks import PARTS, blocks_of
from bertvision.errors import SettingsError
from bertvision.progress import Progress
from bertvision.training.device import Compute
from bertvision.windows.batches import WindowBatch, collate, collate_to
from bertvision.windows.packing import bucket_shapes, packed_shape, shape_for
from bertvision.windows.padding import Rows, lengths_of
from bertvision.windows.step_plan import deal, loss_weights
from bertvision.windows.window import Window

MakeBatches = Callable[[Sequence[Rows]], list[WindowBatch]]
MAX_SHAPES = 12  # of bucketed batches: 15% of SQuAD's computed tokens are padding then, with 6 a quarter
# Compiling takes some 10 s on an H200's host and saves 4 ms a step for a small encoder, more for a large one.
MIN_STEPS_TO_COMPILE = 2000


def choose_step(asked: StepKind | Literal["auto"], encoder: Encoder, compute: Compute, *, reads_last: bool) -> StepKind:
    """Choose how steps are taken: on a GPU in few shapes, which it replays as graphs, packed where that is possible.

    Packed are known encoders (`can_pack`) in bf16 whose output layer is the usual one (`reads_last`): others would see
    rows padded to the longest of all.
    """
    if asked == "packed" and not can_pack(encoder.model):
        raise SettingsError(
            f"finetune.step_mode: packed is not possible in this {type(encoder.model).__name__}: its attention or what "
            "was put into it needs padded rows; use auto, bucketed or eager"
        )
    if asked != "auto":
        return asked
    if compute.device.type != "cuda":
        return "eager"
    packs = reads_last and compute.has_packed_attention and can_pack(encoder.model)
    return "packed" if packs else "bucketed"


def batch_maker(
    kind: StepKind,
    steps: Sequence[Sequence[Rows]],
    windows: Sequence[Window],
    encoder: Encoder,
    compute: Compute,
    group: int = 1,
) -> MakeBatches:
    """Return what makes the batches of each of the steps, or this process's part of them; groups stay whole."""
    pad_id, lengths, part = encoder.tokenizer.pad_token_id, lengths_of(windows), compute.processes.part
    weights = loss_weights(windows) if part.count > 1 else lengths

    def own(rows: Rows, num_windows: int) -> tuple[Rows, float | None]:
        dealt, share = deal(rows, lengths, weights, part, group)
        return dealt, None if share is None else share * len(rows) / num_windows

    batches = [own(rows, 1)[0] for step in steps for rows in step]
    if kind == "eager" or not batches:
        shapes = []
    else:
        shapes = [packed_shape(lengths, batches)] if kind == "packed" else bucket_shapes(lengths, batches, MAX_SHAPES)

    def collated(rows: Rows, num_windows: int) -> WindowBatch:
        if not shapes:
            return collate(windows, rows, pad_id)
        return collate_to(windows, rows, pad_id, shape_for(int(lengths[rows].max()), shapes), num_windows)

    def make(step: Sequence[Rows]) -> list[WindowBatch]:
        num_windows = sum(len(rows) for rows in step)
        dealt = [own(rows, num_windows) for rows in step]
        made = [collated(rows, num_windows if share is None else len(rows)) for rows, share in dealt]
        return [batch._replace(share=share).to(compute.device) for batch, (_, share) in zip(made, dealt, strict=True)]

    return make


@contextmanager
def compiled(encoder: Encoder, kind: StepKind, num_steps: int, compute: Compute, progress: Progress) -> Iterator[None]:
    """Within this, a known encoder's blocks are compiled where enough steps follow; what cannot be is run as it is."""
    is_known = str(encoder.model.config.model_type) in PARTS
    is_fast = compute.device.type == "cuda" and kind != "eager"
    compiles = is_fast and num_steps >= MIN_STEPS_TO_COMPILE and is_known
    if is_fast:
        first = "; the encoder's blocks are compiled first, which takes seconds" if compiles else ""
        replayed = ", replayed by the GPU" if compute.processes.count == 1 else ""
        progress.say(f"{kind} steps{replayed}{first}")
    if not compiles:
        yield
        return
    blocks: list[Any] = blocks_of(encoder.model)
    with torch._dynamo.config.patch(suppress_errors=True):
        for block in blocks:
            block.compile(dynamic=kind == "bucketed")
        try:
            yield
        finally:
            for block in blocks:
                block._compiled_call_impl = None
