"""Randomness of one's own: what one learner draws does not depend on who else draws."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RandomStream:
    """A place in torch's random numbers that is entered for a while and kept when left."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=self._devices):
            torch.manual_seed(seed)
            self.states = self._read()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let everything inside draw from this stream."""
        with torch.random.fork_rng(devices=self._devices):
            torch.set_rng_state(self.states[0])
            for device, state in zip(self._devices, self.states[1:], strict=True):
                torch.cuda.set_rng_state(state, device)
            yield
            self.states = self._read()

    def _read(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]


def seed_for(seed: int, *names: str) -> int:
    """Derive a seed for one purpose, the same wherever and beside whatever it is used."""
    digest = hashlib.sha256("/".join([str(seed), *names]).encode()).digest()
    return int.from_bytes(digest[:7], "big")
