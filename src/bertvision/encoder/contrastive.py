"""Contrastive tuning for few rows, as SetFit does (Tunstall et al. 2022): cosines of pairs of mean-pooled last states.

Rows are paired with rows of the same class, whose cosine is drawn to 1, and of another class, drawn to 0. Where a row
is a pair of texts with a number, such as STS-B's, both texts' cosine is drawn to the number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from bertvision.encoder.encode import encode_pooled, split_pairs
from bertvision.encoder.load import Encoder
from bertvision.errors import DataError
from bertvision.kinds.kind import Contrast
from bertvision.training.device import Compute
from bertvision.training.objective import cosine_loss
from bertvision.windows.batches import WindowBatch, labels_of
from bertvision.windows.window import Window

GROUPS: dict[Contrast, int] = {"rows": 2, "texts": 1}  # neighbouring windows that make up a pair
MOST_LISTED = 2**18  # pairs that are looked at: all there are up to some 700 rows, else so many random ones
Places = npt.NDArray[np.int64]


class RowPairs(NamedTuple):
    """Places of rows, pair by pair."""

    first: Places
    second: Places


def contrast_windows(windows: Sequence[Window], contrast: Contrast, pairs: int, seed: int) -> list[Window]:
    """Return what an epoch of contrastive tuning sees, labelled with the cosine that is wanted of each pair.

    Of `rows` these are so many pairs, the windows of each being neighbours; half of them are alike. Of `texts` these
    are all rows, each as often as fits into so many pairs, but at least once.
    """
    if contrast == "texts":
        wanted = _between_0_and_1(labels_of(windows))
        whole = [replace(window, label=cosine) for window, cosine in zip(windows, wanted, strict=True)]
        return whole * max(1, pairs // len(whole))
    random = np.random.default_rng(seed)
    alike, different = _sort_out(_list_pairs(len(windows), random), _memberships(windows))
    if not len(alike.first) or not len(different.first):
        raise DataError("contrastive tuning needs rows of two classes at least; use finetune.objective: task")
    found: list[Window] = []
    for cosine, kind in ((1.0, alike), (0.0, different)):
        for place in _deal(len(kind.first), max(1, pairs // 2), random):
            found += [replace(windows[each[place]], label=cosine) for each in kind]
    return found


def contrastive_losses(encoder: Encoder, compute: Compute, contrast: Contrast) -> Callable[[WindowBatch], Tensor]:
    """Return the loss of a batch of pairs."""

    def losses_of(batch: WindowBatch) -> Tensor:
        with compute.autocast():
            first, second = _both(encoder, batch, contrast)
        group = GROUPS[contrast]
        weights = None if batch.weights is None else batch.weights[::group] * group
        return cosine_loss(first, second, batch.labels[::group], weights)[None]

    return losses_of


def _both(encoder: Encoder, batch: WindowBatch, contrast: Contrast) -> Iterator[Tensor]:
    if contrast == "texts":
        return (encode_pooled(encoder, each, "mean", last_only=True)[:, 0, 0] for each in split_pairs(batch))
    states = encode_pooled(encoder, batch, "mean", last_only=True)[:, 0, 0]
    return iter((states[::2], states[1::2]))


def _between_0_and_1(numbers: Tensor) -> list[float]:
    low, high = numbers.min(), numbers.max()
    if low == high:
        raise DataError(
            f"contrastive tuning needs different numbers, and all rows have {low:g}; use finetune.objective: task"
        )
    scaled: list[float] = ((numbers - low) / (high - low)).tolist()
    return scaled


def _memberships(windows: Sequence[Window]) -> npt.NDArray[np.bool_]:
    """Return which labels each row has, of one class or of several labels."""
    labels = labels_of(windows)
    return (F.one_hot(labels) if labels.ndim == 1 else labels).to(torch.bool).numpy()


def _list_pairs(rows: int, random: np.random.Generator) -> RowPairs:
    """List all pairs, those of a row with itself included, which dropout makes two (as SetFit has it)."""
    if rows * (rows + 1) // 2 <= MOST_LISTED:
        return RowPairs(*np.triu_indices(rows))
    return RowPairs(*random.integers(rows, size=(2, MOST_LISTED)))


def _sort_out(pairs: RowPairs, memberships: npt.NDArray[np.bool_]) -> tuple[RowPairs, RowPairs]:
    """Return the pairs that share a label, and those that do not."""
    is_alike = (memberships[pairs.first] & memberships[pairs.second]).any(axis=1)
    return RowPairs(*(each[is_alike] for each in pairs)), RowPairs(*(each[~is_alike] for each in pairs))


def _deal(available: int, wanted: int, random: np.random.Generator) -> Places:
    """Draw so many places, each once before any comes again."""
    rounds = -(-wanted // available)
    return np.concatenate([random.permutation(available) for _ in range(rounds)])[:wanted]
