"""Encodes every window once and keeps its states, in memory or (see `disk.py`) in files; and what they depend on.

That is named part by part, so that a stale cache can be told which part is not its own.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import StateBatch, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.errors import TrainingError
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.settings import Settings
from bertvision.shapes import StackShape
from bertvision.states.blocks import BlockLayout, BlockShape, BlockStore, Bytes, write_blocks
from bertvision.states.config import NumberFormat, free_ram, in_units
from bertvision.states.live import bottom_states_of, states_of
from bertvision.training.device import Compute
from bertvision.windows.padding import Rows, lengths_of
from bertvision.windows.window import Window

FORMAT = 2  # of the files; raise it when the same states would become other bytes
SHOWN = 16  # hexadecimal digits: a difference is shown to a person, and nobody is being deceived


@dataclass(frozen=True)
class Wanted:
    """Whose states are kept, and in which form."""

    encoder: Encoder  # frozen, or with `entering` frozen below that block
    windows: Sequence[Window]
    compute: Compute
    dtype: NumberFormat = "bf16"
    layers: tuple[int, ...] | None = None  # None: all
    pooling: Pooling | None = None  # one state per layer; None: of all tokens
    group: int = 1  # windows that are judged together, neighbours in every step
    entering: int | None = None  # the one state that enters this block, in place of `layers`

    def layout(self) -> BlockLayout:
        """Lay out the blocks of all windows."""
        shape = shape_of_states(self.encoder, self.layers, pooling=self.pooling)
        if self.entering is not None:
            shape = StackShape(1, shape.hidden)
        return BlockLayout(BlockShape(*shape, self.dtype), lengths_of(self.windows), pooled=self.pooling is not None)

    def encode(self, rows: Rows) -> StateBatch:
        """Compute the states of some windows."""
        if self.entering is not None:
            return bottom_states_of(self.encoder, self.windows, rows, self.compute, self.entering)
        return states_of(self.encoder, self.windows, rows, self.compute, layers=self.layers, pooling=self.pooling)

    @property
    def way_out(self) -> str:
        """Return what to set where memory does not hold them."""
        if self.entering is not None:
            return "finetune.bottom to disk or live"
        return "states.source to disk or live, or keep fewer states.layers"


def keep_in_ram(wanted: Wanted, progress: Progress = SILENT) -> BlockStore:
    """Keep the states of all windows in memory."""
    layout, room = wanted.layout(), free_ram() // wanted.compute.processes.count
    if layout.num_bytes > room:
        raise TrainingError(
            f"the states need {in_units(layout.num_bytes)} of memory and {in_units(room)} are free; set "
            f"{wanted.way_out}"
        )
    return BlockStore(layout, list(encode_shards(wanted, layout, progress=progress)))


def encode_shards(wanted: Wanted, layout: BlockLayout, first: int = 0, progress: Progress = SILENT) -> Iterator[Bytes]:
    """Make one shard after the other; each depends on its own windows alone.

    Several processes take turns at the batches of a shard, and all of them have all of it then.
    """
    left, processes = layout.shards[first:], wanted.compute.processes
    with progress.bar("keep states", sum(len(rows) for batches in left for rows in batches)) as bar:
        for size, batches in zip(layout.sizes[first:], left, strict=True):
            shard = torch.zeros(size, dtype=torch.uint8)
            for rows in processes.own(batches):
                write_blocks(layout, shard, rows, wanted.encode(rows).states.transpose(0, 1))
                bar.advance(len(rows) * processes.count)
            processes.add_up([shard])  # where one has a block, the others have zeros
            yield shard


def fingerprint_of(wanted: Wanted, weights: str, data: Settings) -> Settings:
    """Name all that decides the bytes of a cache; `weights` is the encoder's fingerprint, `data` the file's."""
    return {
        "encoder": weights[:SHOWN],
        "tokenizer": hash_tokenizer(wanted.encoder.tokenizer),
        "windows": hash_windows(wanted.windows),
        "data": data,
        "layers": "all" if wanted.layers is None else list(wanted.layers),
        "dtype": wanted.dtype,
        "cls": wanted.pooling == "first",
        "precision": wanted.compute.precision,
        "format": FORMAT,
        **({} if wanted.pooling in (None, "first") else {"pooling": wanted.pooling}),
        **({} if wanted.entering is None else {"entering": wanted.entering}),
    }


def hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash a tokenizer's vocabulary and special tokens."""
    pieces = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(repr((pieces, tokenizer.all_special_tokens)).encode()).hexdigest()[:SHOWN]


def hash_windows(windows: Sequence[Window]) -> str:
    """Hash what the encoder sees of windows: their tokens and where the context begins."""
    digest = hashlib.sha256()
    for window in windows:
        digest.update(np.array([len(window), window.context_at, *window.ids], dtype="<i4").data)
    return digest.hexdigest()[:SHOWN]
