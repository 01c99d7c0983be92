"""Reads kept states, in memory or in files, in the order and with the padding of the live source."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from bertvision.encoder.states import StateBatch
from bertvision.states.blocks import BlockStore
from bertvision.states.buffers import Buffers
from bertvision.training.device import Compute
from bertvision.windows.batches import BatchConfig, Rows, StepPlan, collate, lengths_of
from bertvision.windows.window import Window

Item = TypeVar("Item")
Made = TypeVar("Made")


class CachedStates:
    """The kept states of windows, shuffled in each epoch as `LiveStates` with the same settings would."""

    def __init__(
        self,
        store: BlockStore,
        windows: Sequence[Window],
        batch: BatchConfig,
        seed: int,
        compute: Compute,
        *,
        pad_id: int,
        states_batch: BatchConfig | None = None,
        group: int = 1,
    ) -> None:
        self._store, self._windows, self._compute, self._pad_id = store, windows, compute, pad_id
        self._plan = StepPlan(lengths_of(windows), batch, seed, states_batch, group)
        self._buffers = Buffers(pinned=self._on_gpu)

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return self._plan.num_steps(epoch)

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Give the steps of one epoch, from `first_step` on; a GPU works on one while the next one is read."""
        batches = self._plan.epoch(number, first_step)
        steps = [(rows, batch.width) for batch in batches for rows in batch.steps[batch.done :]]
        # On a CPU the reader would take the heads' cores: 231,000 tokens a second against 308,000 in turns (2 cores).
        for batch in made_ahead(self._read, steps) if self._on_gpu else map(self._read, steps):
            states = batch.states.to(self._compute.device, non_blocking=True)
            yield StateBatch(states, batch.windows.to(self._compute.device))

    @property
    def _on_gpu(self) -> bool:
        return self._compute.device.type == "cuda"

    def _read(self, step: tuple[Rows, int]) -> StateBatch:
        rows, width = step
        windows = collate(self._windows, rows, self._pad_id, width)
        if self._store.layout.cls:
            windows = windows.first_tokens()
        layers, hidden, _ = self._store.layout.shape
        states = self._buffers.take((layers, *windows.mask.shape, hidden), self._compute.dtype)
        self._store.read(rows, states)
        return StateBatch(states.transpose(0, 1), windows)


def made_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Make the next thing in a thread while the last one is used; its errors come out here, and it ends with this."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        ahead: Future[Made] | None = None
        for item in items:
            ready, ahead = ahead, thread.submit(make, item)
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()
