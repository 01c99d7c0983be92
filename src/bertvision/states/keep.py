"""Encodes every window once and keeps its states, in memory or (see `disk.py`) in files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.encoder.states import StateBatch
from bertvision.errors import TrainingError
from bertvision.progress import SILENT, Progress
from bertvision.shapes import StackShape
from bertvision.states.blocks import BlockShape, BlockStore, Bytes, Layout, write_blocks
from bertvision.states.frozen_states import bottom_states_of
from bertvision.states.live import states_of
from bertvision.states.machine import free_ram, in_units
from bertvision.states.source import NumberFormat
from bertvision.training.device import Compute
from bertvision.windows.batches import Rows, lengths_of
from bertvision.windows.window import Window


@dataclass(frozen=True)
class Wanted:
    """Whose states are kept, and in which form."""

    encoder: Encoder  # frozen, or with `entering` frozen below that block
    windows: Sequence[Window]
    compute: Compute
    dtype: NumberFormat = "bf16"
    layers: tuple[int, ...] | None = None  # None: all
    cls: bool = False  # of the first token alone, with the pooled state before them
    group: int = 1  # windows that are judged together, neighbours in every step
    entering: int | None = None  # the one state that enters this block, in place of `layers`

    def layout(self) -> Layout:
        """Lay out the blocks of all windows."""
        shape = shape_of_states(self.encoder, self.layers, cls=self.cls)
        if self.entering is not None:
            shape = StackShape(1, shape.hidden)
        return Layout(BlockShape(*shape, self.dtype), lengths_of(self.windows), cls=self.cls)

    def encode(self, rows: Rows) -> StateBatch:
        """Compute the states of some windows."""
        if self.entering is not None:
            return bottom_states_of(self.encoder, self.windows, rows, self.compute, self.entering)
        return states_of(self.encoder, self.windows, rows, self.compute, layers=self.layers, cls=self.cls)

    @property
    def way_out(self) -> str:
        """Tell what to set where memory does not hold them."""
        if self.entering is not None:
            return "finetune.bottom to disk or live"
        return "states.source to disk or live, or keep fewer states.layers"


def keep_in_ram(wanted: Wanted, progress: Progress = SILENT) -> BlockStore:
    """Keep the states of all windows in memory."""
    layout = wanted.layout()
    if layout.num_bytes > free_ram():
        raise TrainingError(
            f"the states need {in_units(layout.num_bytes)} of memory and {in_units(free_ram())} are free; set "
            f"{wanted.way_out}"
        )
    return BlockStore(layout, list(encode_shards(wanted, layout, progress=progress)))


def encode_shards(wanted: Wanted, layout: Layout, first: int = 0, progress: Progress = SILENT) -> Iterator[Bytes]:
    """Make one shard after the other; each depends on its own windows alone."""
    left = layout.shards[first:]
    with progress.bar("keep states", sum(len(rows) for batches in left for rows in batches)) as bar:
        for size, batches in zip(layout.sizes[first:], left, strict=True):
            shard = torch.zeros(size, dtype=torch.uint8)
            for rows in batches:
                write_blocks(layout, shard, rows, wanted.encode(rows).states.transpose(0, 1))
                bar.advance(len(rows))
            yield shard
