"""The papers' way with states, written plainly: every window padded to one length, stored, and read back at random."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from bertvision.activations.live import states_in_order_of_length
from bertvision.encoder.load import Encoder
from bertvision.encoder.states import StateBatch
from bertvision.features.batches import BatchConfig, StepPlan, collate, lengths_of
from bertvision.features.windows import Window
from bertvision.training.device import Compute

LENGTH = 386  # of every row, as in 2020


class PaddedStates:
    """A file of [window, layer, token, hidden] in float16, padding included; a step reads 16 windows from anywhere."""

    def __init__(self, path: Path, encoder: Encoder, windows: Sequence[Window], compute: Compute) -> None:
        shape = (len(windows), encoder.shape.layers, LENGTH, encoder.shape.hidden)
        self._stored = np.memmap(path, dtype=np.float16, mode="w+", shape=shape)
        self._windows, self._compute, self._pad_id = windows, compute, encoder.tokenizer.pad_token_id
        for batch in states_in_order_of_length(encoder, windows, 16384, compute):
            tokens = batch.states.shape[2]
            self._stored[batch.windows.rows, :, :tokens] = batch.states.half().cpu().numpy()
        self._stored.flush()
        self._plan = StepPlan(lengths_of(windows), BatchConfig(windows=16), 0)

    @property
    def num_bytes(self) -> int:
        """Tell how large the file is."""
        return int(self._stored.nbytes)

    def num_steps(self, epoch: int) -> int:
        """Count the steps of an epoch."""
        return self._plan.num_steps(epoch)

    def epoch(self, number: int, first_step: int = 0) -> Iterator[StateBatch]:
        """Read the windows of one step after the other."""
        for planned in self._plan.epoch(number, first_step):
            states = torch.from_numpy(self._stored[planned.rows])
            windows = collate(self._windows, planned.rows, self._pad_id, LENGTH)
            states = states.to(self._compute.device, self._compute.dtype)
            yield StateBatch(states, windows.to(self._compute.device))
