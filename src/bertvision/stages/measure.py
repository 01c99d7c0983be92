"""One row alone on a sample of dev, warm: its seconds at full load and one window at a time, and its operations."""

import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bertvision.encoder.encode import Read
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Head
from bertvision.heads.logits import reading_of
from bertvision.records import Inference
from bertvision.training.device import Compute
from bertvision.windows.batches import collate
from bertvision.windows.plan import Rows, lengths_of, plan_in_order_of_length, spread
from bertvision.windows.window import Window

# Enough for a steady figure in seconds, on a slow device and on a fast one.
SAMPLE = {"cpu": 32, "cuda": 1024}
ALONE = 12  # windows that are run one by one
REPEATS = 3


class MeasuredModel(NamedTuple):
    """A row's whole model, and the windows to run it on."""

    encoder: Encoder  # frozen
    head: Head
    read: Read
    windows: Sequence[Window]
    compute: Compute

    def run(self, batches: Sequence[Rows]) -> None:
        """Answer some batches, from tokens on the host to logits on the host."""
        for rows in batches:
            batch = collate(self.windows, rows, self.encoder.tokenizer.pad_token_id).to(self.compute.device)
            with torch.no_grad():
                seen = self.read(self.encoder, batch).seen
                with self.compute.autocast():
                    self.head(*seen).float().cpu()


class Alone(NamedTuple):
    """A row that is run alone on a sample of windows; what that takes is scaled to all of them by their tokens."""

    subject: MeasuredModel
    batches: list[Rows]
    scale: float

    def seconds(self, repeats: int = REPEATS) -> float:
        """Time large batches, the median of some repeats, after one to warm up."""
        return _seconds(self.subject, self.batches, repeats) * self.scale

    def latency(self, repeats: int = REPEATS) -> float:
        """Time windows one by one: the median of some windows."""
        rows = [np.array([row]) for row in spread(len(self.subject.windows), ALONE)]
        return median(_seconds(self.subject, [row], repeats) for row in rows)

    def operations(self) -> float:
        """Count floating-point operations."""
        return count_operations(self.subject, self.batches) * self.scale


def measure_inference(
    encoder: Encoder, config: HeadConfig, head: Head, windows: Sequence[Window], compute: Compute, tokens: int
) -> Inference:
    """Run one row alone on a sample of windows, and scale what it takes to all of them."""
    alone = open_alone(encoder, config, head, windows, compute, tokens)
    return Inference(
        seconds=round(alone.seconds(), 4),
        latency=round(alone.latency(), 6),
        operations=alone.operations(),
        windows=len(windows),
    )


def open_alone(
    encoder: Encoder,
    config: HeadConfig,
    head: Head,
    windows: Sequence[Window],
    compute: Compute,
    tokens: int,
    wanted: int | None = None,
) -> Alone:
    """Get one row ready to be run alone, in batches of so many tokens; `wanted` windows of all, or what suits here."""
    subject = MeasuredModel(encoder, head.to(compute.device).eval(), reading_of(config, head), windows, compute)
    lengths = lengths_of(windows)
    sample = spread(len(windows), wanted or SAMPLE.get(compute.device.type, SAMPLE["cpu"]))
    batches = [sample[rows] for rows in plan_in_order_of_length(lengths[sample], tokens)]
    return Alone(subject, batches, float(lengths.sum() / lengths[sample].sum()))


def count_operations(subject: MeasuredModel, batches: Sequence[Rows]) -> float:
    """Count floating-point operations, a product and a sum as two; attention as its products, alike on all devices."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        subject.run(batches)
    return float(counter.get_total_flops())


def _seconds(subject: MeasuredModel, batches: Sequence[Rows], repeats: int) -> float:
    subject.run(batches)  # to warm up
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subject.run(batches)  # ends on the host, so nothing is left to wait for
        times.append(time.perf_counter() - started)
    return median(times)
