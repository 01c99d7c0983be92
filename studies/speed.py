"""How fast this machine tunes and runs an encoder: measured once in some seconds, and kept with its range."""

import time
from collections.abc import Callable
from math import floor, log10
from pathlib import Path
from statistics import median

from bertvision.files import write_json
from bertvision.records.record import read_file
from bertvision.settings import Config

TRIAL_TOKENS = {"cpu": 2_048, "cuda": 32_768}  # of a batch on which speed is measured
TRIAL_LENGTH = 128
ROUNDS = 5
SPEED_FILE = "speed.json"
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


class EncoderSpeed(Config):
    """How fast this machine runs an encoder, in tokens a second, round by round."""

    encoder: str
    tuning: tuple[float, ...]
    frozen: tuple[float, ...]
    weights: int  # of the encoder that was measured, without its word embeddings

    def for_encoder(self, weights: int) -> "EncoderSpeed":
        """Return the speed of an encoder of another size, as if work grew with its weights."""
        ratio = self.weights / weights
        tuning, frozen = (tuple(ratio * each for each in speeds) for speeds in (self.tuning, self.frozen))
        return EncoderSpeed(encoder=self.encoder, tuning=tuning, frozen=frozen, weights=weights)

    def seconds(self, tuned: float, passed: float) -> "TimeRange":
        """Return how long so many tokens take that the encoder is tuned on, and that pass through it frozen."""
        low = tuned / max(self.tuning) + passed / max(self.frozen)
        middle = tuned / median(self.tuning) + passed / median(self.frozen)
        high = tuned / min(self.tuning) + passed / min(self.frozen)
        return TimeRange(low=low, middle=middle, high=high)


class TimeRange(Config):
    """Seconds at the fastest, the middle and the slowest speed that was measured."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        unit, size = next((each for each in UNITS if self.middle >= 2 * each[1]), UNITS[-1])
        low, middle, high = (_two_digits(each / size) for each in (self.low, self.middle, self.high))
        return f"{middle} {unit}" if low == high else f"{middle} {unit} ({low} to {high})"


def kept_speed(encoder: str, folder: Path, *, is_kept: bool = True) -> EncoderSpeed:
    """Return the speed that a folder holds of an encoder; where it holds none, measure it and keep it there."""
    path = folder / SPEED_FILE
    if path.exists():
        kept = read_file(EncoderSpeed, path, "a measured speed", "delete it and measure again")
        if kept.encoder == encoder:
            return kept
    speed = measure_speed(encoder)
    if is_kept:
        write_json(path, speed.model_dump(mode="json"))
    return speed


def measure_speed(name: str, device: str = "auto") -> EncoderSpeed:
    """Time an encoder's steps and frozen passes on this machine."""
    import torch  # which studies are listed without
    from torch import nn

    from bertvision.encoder.load import load_encoder
    from bertvision.training.device import choose_compute, wait_for

    encoder, compute = load_encoder(name), choose_compute(device, "auto")
    nn.Module.to(encoder.model, compute.device)
    length = min(TRIAL_LENGTH, encoder.max_length)
    rows = TRIAL_TOKENS.get(compute.device.type, TRIAL_TOKENS["cpu"]) // length
    ids = torch.randint(0, encoder.model.config.vocab_size, (rows, length), device=compute.device)

    def forward() -> torch.Tensor:
        with compute.autocast():
            states: torch.Tensor = encoder.model(input_ids=ids).last_hidden_state
        return states.float().pow(2).mean()

    def frozen() -> None:
        with torch.no_grad():
            forward()

    def tuning() -> None:
        forward().backward()

    def speeds(work: Callable[[], None]) -> tuple[float, ...]:
        return tuple(ids.numel() / seconds for seconds in _seconds_of(work, lambda: wait_for(compute.device)))

    words = sum(each.numel() for each in encoder.model.get_input_embeddings().parameters())
    return EncoderSpeed(
        encoder=name, tuning=speeds(tuning), frozen=speeds(frozen), weights=encoder.num_parameters - words
    )


def _seconds_of(work: Callable[[], None], wait: Callable[[], None]) -> list[float]:
    work()  # warm
    wait()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - started)
    return seconds


def _two_digits(value: float) -> str:
    """Write a number with two digits: a speed that was measured in a second tells no more."""
    digits = 1 - floor(log10(value)) if value > 0 else 0
    return f"{round(value, digits):,.{max(0, digits)}f}"
