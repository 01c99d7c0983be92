"""How cost grows: with the tokens of a step, the encoder's layers, the heads of a pass and the windows of an epoch."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from transformers import AutoModel, BertConfig

from benchmarks.finetune import NO_CUDNN, FinetuneWork
from benchmarks.measuring import Clock, blank_tokenizer, windows_like_squad
from bertvision.encoder.encode import freeze
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import Config, Precision
from bertvision.states.live import LiveStates, PackedLiveStates, packs_states
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.step_plan import BatchConfig
from bertvision.windows.window import Window

MEAN_LENGTH = 171  # tokens of a window like SQuAD's
VOCABULARY = 30522
Sizes = tuple[int, ...]


class GrowthBench(Config):
    """What is measured; of each size the others are the first, but for layers: these are `depth`."""

    hidden: int = Field(384, ge=12)  # of a BERT with random weights
    depth: int = Field(12, ge=1)
    tokens: Sizes | None = None  # of a step; None: 8,192 times 1 to 8, on a CPU 512 times 1 to 8
    layers: Sizes = (6, 12, 24)
    heads: Sizes = (1, 2, 4, 8, 16, 32)  # of one pass
    windows: Sizes | None = None  # of an epoch; None: 2,000 times 1 to 10, on a CPU 24 times 1 to 10
    steps: int = Field(40, ge=4)  # of a training that is timed step by step
    rounds: int = Field(2, ge=1)
    device: str = "auto"
    precision: Precision = "auto"


class Cost(NamedTuple):
    """What one piece of work took."""

    seconds: float
    peak_bytes: int  # of the device, or of the process where the device has no memory of its own


def bench_growth(config: GrowthBench, progress: Progress = SILENT) -> BenchRecord:
    """Measure every size of every axis once a round, and fit how time and memory grow."""
    compute = choose_compute(config.device, config.precision)
    is_gpu = compute.device.type == "cuda"
    step, epoch = (8192, 2000) if is_gpu else (512, 24)
    axes = {
        "tokens": config.tokens or tuple(step * times for times in (1, 2, 4, 8)),
        "layers": config.layers,
        "heads": config.heads,
        "windows": config.windows or tuple(epoch * times for times in (1, 2, 5, 10)),
    }
    work = GrowthWork(config, axes["tokens"][0], axes["windows"][0], compute)
    sides = {f"{axis} {size}": partial(measure, size) for axis, measure in work.by_axis.items() for size in axes[axis]}
    costs = _measure(sides, config.rounds, progress)
    return BenchRecord(
        name="growth",
        variant=f"bert-{config.depth}x{config.hidden}",
        about="seconds of a step by its tokens and by layers, of a pass by its heads, of an epoch by its windows",
        settings={**config.model_dump(mode="json"), "axes": {axis: list(sizes) for axis, sizes in axes.items()}},
        sides=tuple(
            Side(name=name, seconds=tuple(round(cost.seconds, 6) for cost in each)) for name, each in costs.items()
        ),
        figures=_figures(axes, costs),
        provenance=provenance(compute.name, compute.precision),
    )


class GrowthWork:
    """The same work in different sizes."""

    def __init__(self, config: GrowthBench, tokens: int, windows: int, compute: Compute) -> None:
        self._config, self._tokens, self._windows, self._compute = config, tokens, windows, compute
        self._draws = 0
        self.by_axis: dict[str, Callable[[int], Cost]] = {
            "tokens": lambda tokens: self.finetune(config.depth, tokens),
            "layers": lambda layers: self.finetune(layers, self._tokens),
            "heads": self.train_heads,
            "windows": self.finetune_all,
        }

    def finetune(self, layers: int, tokens: int) -> Cost:
        """Return the cost of one step, by many of them."""
        size = max(1, tokens // MEAN_LENGTH)
        windows = self._draw(self._config.steps * size)
        timing = self._finetuning(layers, tokens).run("auto" + NO_CUDNN, windows, 1).timing
        return Cost(timing.seconds * size / timing.windows, timing.peak_bytes)

    def finetune_all(self, windows: int) -> Cost:
        """Return the cost of an epoch, its beginning included."""
        work = self._finetuning(self._config.depth, self._tokens)
        timing = work.run("auto" + NO_CUDNN, self._draw(windows), 1).timing
        return Cost(timing.before + timing.seconds, timing.peak_bytes)

    def train_heads(self, heads: int) -> Cost:
        """Return the cost of a pass that trains so many heads on live states."""
        adapters = [{"head": "adapter_64_shared", "name": f"adapter-{number}"} for number in range(heads)]
        train = tuple(HeadConfig.model_validate(adapter) for adapter in adapters)
        encoder, batch = freeze(self._encoder(self._config.depth), self._compute), BatchConfig(tokens=2 * self._tokens)
        kind = PackedLiveStates if packs_states(encoder, self._compute) else LiveStates
        source = kind(encoder, self._draw(self._windows), batch, 0, self._compute)
        built = build_heads(train, encoder.shape, seed=1)
        clock = Clock(self._compute.device, skipped=0)
        settings = HeadsConfig(train=train, batch=batch)
        for _ in train_heads_together(built, source, settings, seed=1, compute=self._compute):
            clock.step(self._windows)
        timing = clock.stop()
        return Cost(timing.seconds, timing.peak_bytes)

    def _finetuning(self, layers: int, tokens: int) -> FinetuneWork:
        return FinetuneWork(self._encoder(layers), tokens, 1e-4, 0, self._compute)

    def _encoder(self, layers: int) -> Encoder:
        hidden = self._config.hidden
        config = BertConfig(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=4 * hidden
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = AutoModel.from_config(config, trust_remote_code=False)
        return Encoder(f"bert-{layers}x{hidden}", model, blank_tokenizer())

    def _draw(self, count: int) -> list[Window]:
        """Make windows that nothing has seen, so that shapes are new."""
        self._draws += 1
        return windows_like_squad(count, VOCABULARY, self._draws)


def _measure(sides: Mapping[str, Callable[[], Cost]], rounds: int, progress: Progress) -> dict[str, list[Cost]]:
    """Run every side once a round, forwards and backwards in turn; the first round is a warm-up."""
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    with progress.bar("measure", (rounds + 1) * len(sides)) as bar:
        for number in range(rounds + 1):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                cost = sides[name]()
                costs[name] += [cost] if number else []
                bar.advance(1)
    return costs


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Fit a power law and return its exponent: 1 where the cost doubles with the size, 0 where it stays."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def _figures(axes: Mapping[str, Sequence[int]], costs: Mapping[str, Sequence[Cost]]) -> dict[str, float]:
    figures = {f"{name}: GB at most": max(cost.peak_bytes for cost in each) / 1e9 for name, each in costs.items()}
    for axis, sizes in axes.items():
        seconds = [median(cost.seconds for cost in costs[f"{axis} {size}"]) for size in sizes]
        gigabytes = [figures[f"{axis} {size}: GB at most"] for size in sizes]
        figures[f"exponent of seconds by {axis}"] = exponent(sizes, seconds)
        figures[f"exponent of GB by {axis}"] = exponent(sizes, gigabytes)
    return figures
