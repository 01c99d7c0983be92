"""States as bytes: each window a block [layer, token, hidden] of its real tokens, in memory or in files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from bertvision.errors import FolderError
from bertvision.states.config import NumberFormat
from bertvision.windows.padding import Rows
from bertvision.windows.step_plan import plan_in_order_of_length

Bytes = UInt8[Tensor, " _"]  # shards differ in size
StackedStates = Float[Tensor, "layer batch token hidden"]  # LayerStates as they lie in memory
DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8}
BUILD_TOKENS = 16384  # what the encoder runs on at once while states are kept
SHARD_BYTES = 1 << 28  # a shard is made in memory, in every process, and lost when its making is cut short
ALIGNMENT = 4  # bytes, of the scales


class BlockShape(NamedTuple):
    """What every token's kept states are made of."""

    layers: int
    hidden: int
    dtype: NumberFormat

    def num_bytes(self, tokens: int) -> int:
        """Count the bytes of a window's block; int8 has a float32 scale per token and layer before its numbers."""
        per_state = self.hidden * DTYPES[self.dtype].itemsize + (4 if self.dtype == "int8" else 0)
        return -(-tokens * self.layers * per_state // ALIGNMENT) * ALIGNMENT


class BlockLayout:
    """Where every window's block lies: in which shard, and at which byte of it.

    Windows lie in order of length, the longest first, so that the encoder can run on full batches of equal length.
    """

    def __init__(self, shape: BlockShape, lengths: npt.NDArray[np.int64], *, pooled: bool = False) -> None:
        self.shape, self.pooled = shape, pooled
        self.tokens = np.ones_like(lengths) if pooled else lengths  # of each window's block
        self.shards: list[list[Rows]] = []  # the encoder's batches of each shard
        self.sizes: list[int] = []  # bytes of each shard
        self.shard_of, self._offset_of = np.zeros_like(lengths), np.zeros_like(lengths)
        for rows in plan_in_order_of_length(lengths, BUILD_TOKENS):
            if not self.sizes or self.sizes[-1] >= SHARD_BYTES:
                self.shards.append([])
                self.sizes.append(0)
            self._place(rows)

    @property
    def num_bytes(self) -> int:
        """Count the bytes of all blocks."""
        return sum(self.sizes)

    def bounds(self, row: np.int64) -> tuple[int, int]:
        """Return the first byte of a block in its shard, and the one after its last."""
        first = int(self._offset_of[row])
        return first, first + self.shape.num_bytes(int(self.tokens[row]))

    def block(self, shard: "Bytes | ShardFile", row: np.int64) -> tuple[Tensor, ...]:
        """View a block as its parts: [layer, token, hidden] numbers, before them [layer, token] scales for int8."""
        first, stop = self.bounds(row)
        block, tokens = shard[first:stop], int(self.tokens[row])
        layers, hidden, dtype = self.shape
        middle = 4 * layers * tokens if dtype == "int8" else 0
        stop = middle + layers * tokens * hidden * DTYPES[dtype].itemsize
        numbers = block[middle:stop].view(DTYPES[dtype]).view(layers, tokens, hidden)
        if dtype != "int8":
            return (numbers,)
        return block[:middle].view(torch.float32).view(layers, tokens), numbers

    def _place(self, rows: Rows) -> None:
        self.shards[-1].append(rows)
        for row in rows:
            self.shard_of[row], self._offset_of[row] = len(self.shards) - 1, self.sizes[-1]
            self.sizes[-1] += self.shape.num_bytes(int(self.tokens[row]))


@dataclass(frozen=True)
class ShardFile:
    """A shard on disk, of which blocks are read when they are used.

    It is not mapped into memory: where that is too small, dropping mapped pages takes longer than reading them. 5 GB of
    states were read at 336 MB a second through a map in 1.5 GB of memory, and so at 706 (a shared core).
    """

    path: Path

    def __getitem__(self, part: slice) -> Bytes:
        """Read some bytes."""
        found = torch.empty(part.stop - part.start, dtype=torch.uint8)
        with self.path.open("rb", buffering=0) as file:
            file.seek(part.start)
            if file.readinto(found.numpy().data) != len(found):
                raise FolderError(f"{self.path}: was cut short while it was read; delete {self.path.parent}")
        return found

    def fetch(self, first: int, stop: int) -> None:
        """Let the system read some bytes while something else is done, where it can."""
        if hasattr(os, "posix_fadvise"):
            with self.path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), first, stop - first, os.POSIX_FADV_WILLNEED)


class BlockStore:
    """All windows' blocks, as the bytes of their shards."""

    def __init__(self, layout: BlockLayout, shards: Sequence[Bytes | ShardFile]) -> None:
        self.layout, self._shards = layout, shards

    def fetch(self, rows: Rows) -> None:
        """Let the system read some windows' blocks, where they are in files, while something else is done."""
        for row in rows:
            shard = self._shards[self.layout.shard_of[row]]
            if isinstance(shard, ShardFile):
                shard.fetch(*self.layout.bounds(row))

    def read(self, rows: Rows, states: StackedStates) -> None:
        """Fill a batch with some windows' states and what lies beyond their last token with zeros."""
        for place, row in enumerate(rows):
            *scales, numbers = self.layout.block(self._shards[self.layout.shard_of[row]], row)
            window = states[:, place, : numbers.shape[1]]
            window.copy_(numbers)
            for scale in scales:
                window.mul_(scale.unsqueeze(-1))
            states[:, place, numbers.shape[1] :] = 0


def write_blocks(layout: BlockLayout, shard: Bytes, rows: Rows, states: StackedStates) -> None:
    """Put some windows' states into their blocks of a shard."""
    packed = [part.cpu() for part in pack(states, layout.shape.dtype)]
    for place, row in enumerate(rows):
        for part, values in zip(layout.block(shard, row), packed, strict=True):
            part.copy_(values[:, place, : part.shape[1]])


def pack(states: StackedStates, dtype: NumberFormat) -> tuple[Tensor, ...]:
    """Turn states into the parts of a block: numbers, before them scales for int8, at which 127 is the largest one."""
    if dtype != "int8":
        return (states.to(DTYPES[dtype]),)
    states = states.float()
    scales = states.abs().amax(dim=-1) / 127
    divisors = scales.clamp(min=torch.finfo(torch.float32).tiny)  # a state of zeros has the scale 0
    return scales, (states / divisors.unsqueeze(-1)).round().to(torch.int8)
