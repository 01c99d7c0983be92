"""All tokens' states of a window -> one state per layer, which heads on rows read."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bertvision.model_config import Pooling
from bertvision.shapes import LayerStates, TokenMask
from bertvision.windows.batches import WindowBatch

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
