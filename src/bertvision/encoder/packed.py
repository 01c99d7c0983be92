"""Runs an encoder on packed tokens: attention stays within each row, and nothing is computed for padding.

Attention's own dropout has no part in it (torch's attention over rows of many lengths has none); all other dropout has.

Steps of fine-tuning that are not packed keep a GPU busy by batches of few shapes, replayed as CUDA graphs, and by
compiled blocks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float, Int32
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_outputs import BaseModelOutputWithPooling

from bertvision.encoder.finetune_plan import StepKind
from bertvision.encoder.load import Encoder
from bertvision.encoder.tuning.adapters import PARASITES_SLOT as PARASITES
from bertvision.encoder.tuning.blocks import PARTS, blocks_of
from bertvision.errors import SettingsError
from bertvision.progress import Progress
from bertvision.training.device import Compute
from bertvision.windows.batches import WindowBatch, collate, collate_to
from bertvision.windows.packing import Packing, bucket_shapes, packed_shape, shape_for
from bertvision.windows.plan import Rows, deal, lengths_of, loss_weights
from bertvision.windows.window import Window

ATTENTION = "bertvision_packed"  # as transformers knows it
# Encoders whose attention transformers lets us replace, and that take positions: the first is 0, or stands behind the
# padding's. Others have attention of their own (relative positions, local windows).
FIRST_POSITION_0 = ("bert", "distilbert", "electra")
FIRST_POSITION_BEHIND_PADDING = ("camembert", "roberta", "xlm-roberta")
States = Float[Tensor, "1 head token feature"]


def can_pack(model: PreTrainedModel) -> bool:
    """Return whether an encoder runs on packed tokens; parasites, which weigh the tokens of padded rows, do not."""
    known = str(model.config.model_type) in (*FIRST_POSITION_0, *FIRST_POSITION_BEHIND_PADDING)
    return known and PARASITES not in model._modules


def run_packed(
    model: PreTrainedModel, packing: Packing, rows: int, width: int, *, segments: bool, hidden_states: bool
) -> BaseModelOutputWithPooling:
    """Run an encoder on packed tokens and lay its states out as padded rows."""
    output = run_on_tokens(model, packing, width, segments=segments, hidden_states=hidden_states)
    last = packing.pad(output.last_hidden_state[0], rows, width)
    states = [packing.pad(state[0], rows, width) for state in output.hidden_states] if hidden_states else None
    pooler = getattr(model, "pooler", None)
    return BaseModelOutputWithPooling(last, None if pooler is None else pooler(last), states)  # type: ignore[arg-type]


def run_on_tokens(model: PreTrainedModel, packing: Packing, width: int, *, segments: bool, hidden_states: bool) -> Any:  # noqa: ANN401 (transformers' output)
    """Run an encoder on packed tokens, of rows that are no longer than `width`; its states are those of one row."""
    types = {"token_type_ids": packing.segments[None]} if segments else {}
    with _attention_within_rows(model):
        return model(
            input_ids=packing.ids[None],
            position_ids=packing.positions[None] + _first_position(model),
            output_hidden_states=hidden_states,
            cu_seq_lens_q=packing.bounds,
            max_length_q=width,
            **types,
        )


def _first_position(model: PreTrainedModel) -> int:
    if str(model.config.model_type) in FIRST_POSITION_0:
        return 0
    return int(model.config.pad_token_id) + 1


@contextmanager
def _attention_within_rows(model: PreTrainedModel) -> Iterator[None]:
    config = model.config
    own, config._attn_implementation = config._attn_implementation, ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = own


def _attend(
    module: nn.Module,
    query: States,
    key: States,
    value: States,
    _mask: None,
    scaling: float | None = None,
    *,
    cu_seq_lens_q: Int32[Tensor, " bound"],
    max_length_q: int,
    **_others: Any,  # noqa: ANN401 (what transformers hands to every attention)
) -> tuple[Tensor, None]:
    """Let every token attend to those of its own row, in the form that transformers gives attention.

    In an encoder that reads from left to right (`is_decoder`) no token sees those behind it.
    """
    is_causal = bool(getattr(module, "is_causal", False))
    if not query.is_cuda or query.dtype == torch.float32:
        return _attend_by_mask(query, key, value, cu_seq_lens_q, scaling, is_causal=is_causal), None
    query, key, value = (states[0].transpose(0, 1).contiguous() for states in (query, key, value))
    bounds, longest = cu_seq_lens_q, max_length_q
    window = (-1, 0) if is_causal else (-1, -1)  # tokens before and behind that are seen; -1: all
    mixed = varlen_attn(query, key, value, bounds, bounds, longest, longest, scale=scaling, window_size=window)
    assert isinstance(mixed, Tensor)
    return mixed[None], None


def _attend_by_mask(
    query: States,
    key: States,
    value: States,
    bounds: Int32[Tensor, " bound"],
    scaling: float | None,
    *,
    is_causal: bool,
) -> Tensor:
    """Do the same where that kernel does not run, with a mask of all pairs of tokens: right, and slow."""
    tokens = torch.arange(query.shape[2], device=query.device)
    row = torch.searchsorted(bounds.long(), tokens, right=True)
    mask = row[:, None] == row[None]
    if is_causal:
        mask &= tokens[:, None] >= tokens[None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling).transpose(1, 2)


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, lambda *_arguments, **_keywords: None)


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
