"""Encoder: a batch of windows -> all layers' hidden states, of every token or pooled to one state per layer.

Batches of states are what heads learn from; a head cannot tell where they come from.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertvision.encoder.load import Encoder
from bertvision.encoder.packed import can_pack, run_on_tokens, run_packed
from bertvision.errors import EncoderError
from bertvision.model_config import Pooling
from bertvision.shapes import LayerStates, Segments, StackShape, TokenMask
from bertvision.training.device import Compute
from bertvision.training.objective import Objective
from bertvision.windows.batches import WindowBatch
from bertvision.windows.packing import Packing


def encode(
    encoder: Encoder, batch: WindowBatch, *, last_only: bool = False, layers: tuple[int, ...] | None = None
) -> LayerStates:
    """Run the encoder and stack all layers' states (layer 0 is the embedding output), some of them or the last one."""
    if last_only:
        return _run(encoder, batch, hidden_states=False).last_hidden_state.unsqueeze(1)  # type: ignore[no-any-return]
    states = _all_states(_run(encoder, batch, hidden_states=True))
    return _stack([states[layer] for layer in layers] if layers is not None else states)


def encode_packed(
    encoder: Encoder, packing: Packing, width: int, *, layers: tuple[int, ...] | None = None
) -> LayerStates:
    """Do the same with packed tokens: the states of one row that holds them all. `width` is that of the longest row."""
    segments = encoder.takes_segments
    states = _all_states(run_on_tokens(encoder.model, packing, width, segments=segments, hidden_states=True))
    return _stack([states[layer] for layer in layers] if layers is not None else states)


def encode_cls(encoder: Encoder, batch: WindowBatch, *, layers: tuple[int, ...] | None = None) -> LayerStates:
    """Return the states of the first token alone; where the encoder has a pooler, its state comes before layer 0.

    The order of the first BERTVision system (SPEC 1): pooled, embedding output, layer 1, and so on.
    """
    output = _run(encoder, batch, hidden_states=True)
    states = [state[:, :1] for state in _all_states(output)]
    if layers is not None:
        states = [states[layer] for layer in layers]
    pooled = [output.pooler_output.unsqueeze(1)] if has_pooler(encoder) else []
    return _stack([*pooled, *states])


def encode_pooled(
    encoder: Encoder,
    batch: WindowBatch,
    pooling: Pooling,
    *,
    last_only: bool = False,
    layers: tuple[int, ...] | None = None,
) -> LayerStates:
    """Return one state per layer for every window; `compared` runs the encoder on both texts of a pair."""
    if pooling == "first" and not last_only:
        return encode_cls(encoder, batch, layers=layers)
    if pooling == "pair_difference":
        texts = [
            encode_pooled(encoder, each, "mean", last_only=last_only, layers=layers) for each in split_pairs(batch)
        ]
        return compare(*texts)
    return pool(encode(encoder, batch, last_only=last_only, layers=layers), batch.mask, pooling)


def encode_output(
    encoder: Encoder, batch: WindowBatch, objective: Objective, pooling: Pooling = "first"
) -> LayerStates:
    """Return what the encoder's output layer reads: every token's last state, or the one state that stands for a row.

    That is the pooled last state; with `first` the encoder's own pooler makes it, where there is one.
    """
    if objective.per == "token":
        return encode(encoder, batch, last_only=True)
    if pooling != "first":
        return encode_pooled(encoder, batch, pooling, last_only=True)
    output = _run(encoder, batch, hidden_states=False)
    state = output.pooler_output if has_pooler(encoder) else output.last_hidden_state[:, 0]
    return state[:, None, None]  # type: ignore[no-any-return]


def layers_of_output(encoder: Encoder, objective: Objective, pooling: Pooling = "first") -> tuple[int, ...] | None:
    """Return which of the states of `encode` or `encode_pooled` are those of `encode_output`; None: the last one."""
    return (0,) if objective.per == "row" and pooling == "first" and has_pooler(encoder) else None


def places_of_states(
    encoder: Encoder, layers: tuple[int, ...] | None = None, *, pooling: Pooling | None = None
) -> tuple[int, ...] | None:
    """Return where the states of some layers stand among those of all, the pooled one included; None: they are all."""
    if layers is None or not (pooling == "first" and has_pooler(encoder)):
        return layers
    return (0, *(1 + layer for layer in layers))


def has_pooler(encoder: Encoder) -> bool:
    """Return whether the encoder has trained weights that pool the first token's last state."""
    return getattr(encoder.model, "pooler", None) is not None


def shape_of_states(
    encoder: Encoder, layers: tuple[int, ...] | None = None, *, pooling: Pooling | None = None
) -> StackShape:
    """Return the shape of what `encode` or `encode_pooled` gives of these layers; refuse those that there are not."""
    layers_there, hidden = encoder.shape
    if layers is not None and (missing := [layer for layer in layers if not 0 <= layer < layers_there]):
        raise EncoderError(
            f"encoder {encoder.name!r} has the states 0 to {layers_there - 1}, states.layers names {missing[0]}; "
            "leave it out"
        )
    chosen = layers_there if layers is None else len(layers)
    if pooling is None:
        return StackShape(chosen, hidden)
    return StackShape(chosen + (pooling == "first" and has_pooler(encoder)), WIDTHS[pooling] * hidden)


def freeze(encoder: Encoder, compute: Compute) -> Encoder:
    """Put an encoder on its device for good: no gradients, no dropout, weights in the device's number format."""
    encoder.model.requires_grad_(False).train(False)
    nn.Module.to(encoder.model, device=compute.device, dtype=compute.dtype)  # transformers' own `to` has no types
    return encoder


def _run(encoder: Encoder, batch: WindowBatch, *, hidden_states: bool) -> Any:  # noqa: ANN401 (transformers' output)
    if batch.packing is not None and can_pack(encoder.model):
        segments, (rows, width) = encoder.takes_segments, batch.ids.shape
        return run_packed(encoder.model, batch.packing, rows, width, segments=segments, hidden_states=hidden_states)
    types = {"token_type_ids": batch.segments} if encoder.takes_segments else {}
    return encoder.model(
        input_ids=batch.ids, attention_mask=batch.mask.long(), output_hidden_states=hidden_states, **types
    )


def _all_states(output: Any) -> list[Tensor]:  # noqa: ANN401 (transformers' output)
    # Some encoders end with a norm that their list of states does not show: the last state is the encoder's output.
    return [*output.hidden_states[:-1], output.last_hidden_state]


def _stack(states: list[Tensor]) -> LayerStates:
    # In memory the layer comes first: one layer of a batch, also of a part of it, is one piece that a matrix product
    # reads without a copy.
    return torch.stack(states).transpose(0, 1)


class _BatchOfStates(NamedTuple):
    """States of a batch of windows, and what a loss needs of these."""

    states: LayerStates
    windows: WindowBatch

    @property
    def size(self) -> int:
        """Count the windows."""
        return self.windows.size

    def share_of(self, num_examples: int) -> float:
        """Return by what the loss is multiplied in a step of so many windows."""
        return self.windows.share_of(num_examples)

    def with_share(self, share: float | None) -> "_BatchOfStates":
        """Return the same with its share of a step's loss, where other processes have the rest."""
        return self if share is None else self._replace(windows=self.windows._replace(share=share))

    def tensors(self) -> list[Tensor]:
        """List all tensors, in an order that is the same for batches of one shape."""
        return [self.states, *self.windows.tensors()]

    def clone(self) -> "_BatchOfStates":
        """Return a copy in memory of its own."""
        return type(self)(self.states.clone(), self.windows.clone())


class StateBatch(_BatchOfStates):
    """What a head sees of a batch: states, mask and segments; and what its loss needs."""

    @property
    def shape(self) -> Hashable | None:
        """Name the shape of all tensors where it comes again, as that of pooled states does; None: it may come once."""
        return (self.states.shape, self.windows.labels.shape) if self.states.shape[2] == 1 else None

    @property
    def seen(self) -> tuple[LayerStates, TokenMask, Segments]:
        """Return the arguments of a head."""
        return self.states, self.windows.mask, self.windows.segments

    def part(self, first: int, stop: int) -> "StateBatch":
        """Return some of the windows, as views: every layer's part still lies in one piece."""
        return StateBatch(self.states[first:stop], self.windows.part(first, stop))


class PackedStates(_BatchOfStates):
    """What heads that score every token by itself may see instead: states of packed tokens, as of one row.

    Its windows have their packing.
    """

    @property
    def shape(self) -> Hashable:
        """Name the shape of all tensors."""
        return (self.states.shape, self.windows.shape)

    def pad(self, logits: Float[Tensor, "head 1 packed score"]) -> Float[Tensor, "head batch token score"]:
        """Lay many heads' scores of the tokens out as padded rows."""
        assert self.windows.packing is not None
        heads, _, tokens, scores = logits.shape
        rows, width = self.windows.mask.shape
        side_by_side = logits[:, 0].transpose(0, 1).reshape(tokens, heads * scores)
        padded = self.windows.packing.pad(side_by_side, rows, width)
        return padded.view(rows, width, heads, scores).permute(2, 0, 1, 3)


Read = Callable[[Encoder, WindowBatch], StateBatch]  # runs an encoder for what a head, or an output layer, is to see


@runtime_checkable
class StateSource(Protocol):
    """Batches of all layers' states, in an order that the seed decides; `activations` holds the kinds there are."""

    def num_steps(self, epoch: int) -> int:
        """Count the batches of an epoch: a head takes a step on each."""
        ...

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch] | Iterator[PackedStates]:
        """Return the batches of one epoch, from `first_step` on."""
        ...


def read_states(
    encoder: Encoder, batch: WindowBatch, *, layers: tuple[int, ...] | None = None, pooling: Pooling | None = None
) -> StateBatch:
    """Run the encoder on a batch for heads; with `pooling` for those that read one state per layer."""
    if pooling is not None:
        return StateBatch(encode_pooled(encoder, batch, pooling, layers=layers), batch.first_tokens())
    return StateBatch(encode(encoder, batch, layers=layers), batch)


def read_output(encoder: Encoder, batch: WindowBatch, objective: Objective, pooling: Pooling = "first") -> StateBatch:
    """Run the encoder on a batch for its own output layer."""
    seen = batch if objective.per == "token" else batch.first_tokens()
    return StateBatch(encode_output(encoder, batch, objective, pooling), seen)


WIDTHS: dict[Pooling, int] = {
    "first": 1,
    "last": 1,
    "mean": 1,
    "max": 1,
    "first_mean_max": 3,
    "pair_difference": 4,
}  # in hidden sizes
PooledStates = Float[Tensor, "batch layer 1 width"]


class Pair(NamedTuple):
    """Both texts of pairs, each as rows of their own."""

    first: WindowBatch
    second: WindowBatch


def pool(states: LayerStates, mask: TokenMask, how: Pooling) -> PooledStates:
    """Make one state of all real tokens' states, layer by layer."""
    match how:
        case "first":
            return states[:, :, :1]
        case "last":
            return _last(states, mask)
        case "mean":
            return _mean(states, mask)
        case "max":
            return _max(states, mask)
        case "first_mean_max":
            return torch.cat([states[:, :, :1], _mean(states, mask), _max(states, mask)], dim=-1)
        case "pair_difference":
            raise ValueError("a pair is compared by two passes, see `compare`")


def compare(first: PooledStates, second: PooledStates) -> Float[Tensor, "batch layer 1 compared"]:
    """Lay both texts' states, their distance and their product side by side, layer by layer.

    States have the length of the root of their width, so that the mean of the products is the cosine.
    """
    u, v = (_with_length(states) for states in (first, second))
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def split_pairs(batch: WindowBatch) -> Pair:
    """Return each text of every pair as a row of its own; both begin with the first token of the pair."""
    width = batch.ids.shape[1]
    places = torch.arange(width, device=batch.ids.device)
    is_first = batch.mask & ((batch.segments == 0) | (places == 0))
    before, after = is_first.sum(dim=1, keepdim=True), (batch.mask & ~is_first).sum(dim=1, keepdim=True)
    moved = torch.where(places == 0, 0, (places - 1 + before).clamp(max=width - 1))
    segments = torch.zeros_like(batch.segments)
    first = batch._replace(mask=is_first, segments=segments, packing=None)
    second = first._replace(ids=batch.ids.gather(1, moved), mask=places <= after)
    return Pair(_cropped(first), _cropped(second))


def _cropped(batch: WindowBatch) -> WindowBatch:
    """Leave out columns of padding; a graph that is traced, or a step that is replayed, keeps them."""
    if torch.compiler.is_exporting() or batch.shape is not None:
        return batch
    longest = int(batch.mask.sum(dim=1).max())
    ids, mask, segments = (tensor[:, :longest] for tensor in batch[:3])
    return batch._replace(ids=ids, mask=mask, segments=segments)


def _last(states: LayerStates, mask: TokenMask) -> Tensor:
    place = (mask.sum(dim=1) - 1)[:, None, None, None]
    return states.gather(2, place.expand(-1, states.shape[1], 1, states.shape[3]))


def _mean(states: LayerStates, mask: TokenMask) -> Tensor:
    shares = mask / mask.sum(dim=1, keepdim=True)
    return torch.einsum("blth,bt->blh", states.float(), shares)[:, :, None].to(states.dtype)


def _max(states: LayerStates, mask: TokenMask) -> Tensor:
    hidden = states.masked_fill(~mask[:, None, :, None], torch.finfo(states.dtype).min)
    return hidden.amax(dim=2, keepdim=True)


def _with_length(states: PooledStates) -> Tensor:
    return torch.nn.functional.normalize(states.float(), dim=-1).mul(states.shape[-1] ** 0.5).to(states.dtype)
