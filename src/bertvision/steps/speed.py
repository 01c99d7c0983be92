"""How fast this machine tunes and runs an encoder, measured in a second or two."""

import time
from collections.abc import Callable
from typing import NamedTuple

TRIAL_TOKENS = {"cpu": 2_048, "cuda": 32_768}  # of a batch on which speed is measured
TRIAL_LENGTH = 128


class EncoderSpeed(NamedTuple):
    """How fast this machine runs an encoder, in tokens a second."""

    tuning: float
    frozen: float
    weights: int  # of the encoder that was measured, without its word embeddings

    def for_encoder(self, weights: int) -> "EncoderSpeed":
        """Return the speed of an encoder of another size, as if work grew with its weights."""
        ratio = self.weights / weights
        return EncoderSpeed(self.tuning * ratio, self.frozen * ratio, weights)


def measure_speed(name: str, device: str = "auto") -> EncoderSpeed:
    """Time an encoder's steps and frozen passes on this machine, for a second or two."""
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

    seconds = [_seconds_of(each, lambda: wait_for(compute.device)) for each in (tuning, frozen)]
    words = sum(each.numel() for each in encoder.model.get_input_embeddings().parameters())
    return EncoderSpeed(ids.numel() / seconds[0], ids.numel() / seconds[1], encoder.num_parameters - words)


def _seconds_of(work: Callable[[], None], wait: Callable[[], None], times: int = 3) -> float:
    work()  # warm
    wait()
    started = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - started) / times
