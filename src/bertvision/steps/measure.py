"""One row alone on a sample of dev, warm: its seconds at full load and one window at a time, and its operations.

And how much is measured, and what that is for one window.
"""

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
from bertvision.records import Inference, RowSize, Speed, Spent
from bertvision.steps.context import RunContext
from bertvision.steps.results import ResultModel
from bertvision.training.accounting import Costs
from bertvision.training.device import Compute
from bertvision.windows.batches import collate
from bertvision.windows.padding import Rows, lengths_of, spread
from bertvision.windows.step_plan import plan_in_order_of_length
from bertvision.windows.window import Window

# Enough for a steady figure in seconds, on a slow device and on a fast one.
SAMPLE = {"cpu": 32, "cuda": 1024}
ALONE = 12  # windows that are run one by one
REPEATS = 3


class Size(NamedTuple):
    """How much a turn trains and answers: enough for a steady figure in seconds."""

    examples: int  # of train, from which windows are cut
    warm: int  # steps of tuning that do not count
    steps: int  # that do
    passes: int  # of heads over all these windows, after one that does not count
    answered: int  # windows of dev that a row answers alone
    repeats: int  # of that, and of answering one by one, after one that does not count; the middle counts


# On a GPU about two seconds of tuning: a driver's meter of energy moves ten to fifty times a second. And about a second
# of answering, by a small encoder on an H200: single passes of 1,024 windows, 0.08 s, differed by up to half.
SIZES = {"cpu": Size(24, 1, 2, 1, 32, 1), "cuda": Size(4096, 6, 40, 2, 4096, 3)}


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


def size_for(compute: Compute) -> Size:
    """Return what suits a device."""
    return SIZES.get(compute.device.type, SIZES["cpu"])


def speed_of(context: RunContext, encoder: Encoder, row: ResultModel) -> Speed:
    """Time one row alone, per window."""
    size = size_for(context.compute)
    alone, windows = _alone(context, encoder, row, size.answered), len(context.dev.windows)
    return Speed(seconds=alone.seconds(size.repeats) / windows, latency=alone.latency(size.repeats))


def size_of(context: RunContext, encoder: Encoder, row: ResultModel) -> RowSize:
    """Return how large a row is, and count its operations per window."""
    operations = _alone(context, encoder, row).operations() / len(context.dev.windows)
    return RowSize(parameters=row.parameters, ship_bytes=4 * row.ship_parameters, operations=operations)


def spent_per_window(costs: Costs, num_windows: int) -> Spent:
    """Return what a window has cost."""
    return Spent(
        seconds=costs.seconds / num_windows,
        data_seconds=costs.data_seconds / num_windows,
        joules=None if costs.joules is None else costs.joules / num_windows,
        peak_process_bytes=costs.peak_process_bytes,
        peak_device_bytes=costs.peak_device_bytes,
    )


def add_passes(found: Sequence[Spent]) -> Spent | None:
    """Add up the passes of heads that read all tokens and of those that read the first."""
    if not found:
        return None
    joules = [each.joules for each in found if each.joules is not None]
    return Spent(
        seconds=sum(each.seconds for each in found),
        data_seconds=0.0,
        joules=sum(joules) if joules else None,
        peak_process_bytes=max(each.peak_process_bytes for each in found),
        peak_device_bytes=max((each.peak_device_bytes for each in found if each.peak_device_bytes), default=None),
    )


def _alone(context: RunContext, encoder: Encoder, row: ResultModel, wanted: int | None = None) -> Alone:
    assert row.head is not None
    assert row.config is not None
    tokens = context.experiment.answers.tokens
    return open_alone(encoder, row.config, row.head, context.dev.windows, context.compute, tokens, wanted)


def _seconds(subject: MeasuredModel, batches: Sequence[Rows], repeats: int) -> float:
    subject.run(batches)  # to warm up
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subject.run(batches)  # ends on the host, so nothing is left to wait for
        times.append(time.perf_counter() - started)
    return median(times)
