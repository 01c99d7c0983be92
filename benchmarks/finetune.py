"""Fine-tuning: windows a second of our ways to take a step and of transformers' Trainer, on windows not seen before."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean, median
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, field_validator

from benchmarks.measuring import (
    Clock,
    Timing,
    clear,
    cudnn_attention,
    read_bench_data,
    short_name,
    subject,
)
from benchmarks.trainer import Flags, question_model, train_with_trainer
from bertvision.encoder import packed
from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.finetune import finetune_encoder
from bertvision.encoder.finetune_plan import FinetuneConfig, StepKind
from bertvision.encoder.load import Encoder
from bertvision.errors import SettingsError, TrainingError, reason_of
from bertvision.heads.config import output_head
from bertvision.heads.head import Head
from bertvision.heads.training import build_heads
from bertvision.progress import SILENT, Bar, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import Config, Precision
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.plan import BatchConfig, lengths_of
from bertvision.windows.window import Window

Step = StepKind | Literal["auto"]
WARM_UP = 0.25  # of a round's windows
# Sides whose name ends so run without cuDNN's attention; the others with it, as torch and Trainer come.
NO_CUDNN = "_no_cudnn"
COMPILED = "compiled"  # as long trainings are
STEPS: dict[str, Step] = {
    "eager": "eager",
    "bucketed": "bucketed",
    "packed": "packed",
    "auto": "auto",
    COMPILED: "auto",
}  # ours
TRAINERS = {
    "run_qa": Flags(windows=8, full=True, best=False),
    "trainer_padded": Flags(full=True),
    "trainer_dynamic": Flags(),
    "trainer_grouped": Flags(grouped=True),
    "trainer_compiled": Flags(full=True, compiled=True),
    "trainer_grouped_compiled": Flags(grouped=True, compiled=True),
}
BEST = ("trainer_padded", "trainer_grouped", "trainer_compiled", "trainer_grouped_compiled")
GPU_SIDES = (
    *("eager" + NO_CUDNN, "bucketed" + NO_CUDNN, "packed" + NO_CUDNN, COMPILED + NO_CUDNN, "run_qa"),
    *(name + ending for name in BEST for ending in ("", NO_CUDNN)),
)
CPU_SIDES = ("auto", "trainer_grouped", "trainer_dynamic", "trainer_padded")
SHARES = {"run_qa": 0.125}  # of a round's windows, for sides so slow that fewer will do


def split_names(given: object) -> object:
    """Read names that are written as a,b, or as a list."""
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(","))
    return tuple(given) if isinstance(given, list) else given


SideNames = Annotated[tuple[str, ...], BeforeValidator(split_names)]


class FinetuneBench(Config):
    """What is measured."""

    encoder: str | None = None  # a folder, bert-base, bert-large or mpnet-base; None: bert-base, on a CPU `default`
    tokenizer: str | None = None  # the encoder whose tokens random weights read, where `data` is a file
    data: str = "squad"  # squad: random tokens as long as its windows; or a SQuAD file
    windows: int | None = Field(None, ge=32)  # of a round; None: 6,000 on a GPU, 200 on a CPU
    tokens: int | None = Field(None, ge=384)  # of a step; None: 8,192 on a GPU, 2,048 on a CPU
    lr: float = Field(1e-4, gt=0)
    workers: int | None = Field(None, ge=0)  # of Trainer's loader; None: 6 on a GPU, 0 on a CPU
    sides: SideNames | None = None  # also as a,b; None: all of the device
    rounds: int = Field(2, ge=1)
    device: str = "auto"
    precision: Precision = "auto"

    @field_validator("sides")
    @classmethod
    def _are_known(cls, given: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_sides(given or (), [*STEPS, *TRAINERS])
        return given


@dataclass(frozen=True)
class Run:
    """One side in one round."""

    timing: Timing
    loss: float  # mean over the last quarter of its steps

    @property
    def speed(self) -> float:
        """Return windows a second."""
        return self.timing.windows / self.timing.seconds


Runs = dict[str, list[Run]]


def bench_finetune(config: FinetuneBench, progress: Progress = SILENT) -> BenchRecord:
    """Train the same encoder on each round's own windows, side after side; time the steps and keep the losses."""
    compute = choose_compute(config.device, config.precision)
    is_gpu = compute.device.type == "cuda"
    encoder = subject(config.encoder or ("bert-base" if is_gpu else "default"), config.tokenizer)
    size, tokens = config.windows or (6000 if is_gpu else 200), config.tokens or (8192 if is_gpu else 2048)
    data = read_bench_data(config.data, encoder, round(size * (config.rounds + WARM_UP)))
    parts = cut_parts(data.windows, size, config.rounds)
    workers = (6 if is_gpu else 0) if config.workers is None else config.workers
    work = FinetuneWork(encoder, tokens, config.lr, workers, compute)
    names = config.sides or (GPU_SIDES if is_gpu else CPU_SIDES)
    runs, left_out = measure(work, names, parts, progress)
    return BenchRecord(
        name="finetune",
        variant=f"{short_name(encoder)}-{tokens}" + ("" if config.precision == "auto" else f"-{config.precision}"),
        about="seconds of fine-tuning on 1,000 windows; every round has windows of its own, so that shapes are new",
        settings={
            **config.model_dump(mode="json", exclude={"data", "tokenizer"}),
            **{"data": data.name, "windows": len(parts[1]), "tokens": tokens, "workers": workers},
            **{f"{name} left out": why for name, why in left_out.items()},
        },
        sides=tuple(_side(name, each) for name, each in runs.items()),
        figures={**_figures(runs, encoder, parts[1], compute), **_compared(runs)},
        provenance=provenance(compute.name, compute.precision),
    )


def check_sides(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse the name of a side that there is not."""
    if unknown := [name for name in given if name.removesuffix(NO_CUDNN) not in known]:
        raise ValueError(f"no side {unknown[0]!r}; known: {', '.join(known)}, all with or without {NO_CUDNN}")


def cut_parts(windows: Sequence[Window], size: int, rounds: int) -> list[list[Window]]:
    """Deal windows out to a warm-up and to rounds of the same size, at random, as files are sorted by article."""
    size = min(size, int(len(windows) / (rounds + WARM_UP)))
    order = np.random.default_rng(0).permutation(len(windows))
    ends = [round(size * (WARM_UP + number)) for number in range(rounds + 1)]
    return [[windows[place] for place in part] for part in np.split(order, ends)[: rounds + 1]]


class FinetuneWork:
    """One encoder, fine-tuned again and again from the same weights."""

    def __init__(self, encoder: Encoder, tokens: int, lr: float, workers: int, compute: Compute) -> None:
        self._encoder, self._tokens, self._lr, self._workers, self._compute = encoder, tokens, lr, workers, compute

    def run(self, name: str, windows: Sequence[Window], seed: int) -> Run:
        """Let one side train on some windows."""
        own = name.removesuffix(NO_CUDNN)
        windows = windows[: max(32, round(len(windows) * SHARES.get(own, 1.0)))]
        with cudnn_attention(not name.endswith(NO_CUDNN)):
            if own in TRAINERS:
                run = self._run_trainer(TRAINERS[own], windows, seed)
            else:
                run = self._run_ours(own, windows, seed)
        clear(self._compute.device)
        return run

    def _config(self, step: Step) -> FinetuneConfig:
        return FinetuneConfig(fractions=(1.0,), batch=BatchConfig(tokens=self._tokens), lr=self._lr, step_mode=step)

    def _step_windows(self, windows: Sequence[Window]) -> int:
        return round(self._tokens / float(lengths_of(windows).mean()))

    def _clock(self, windows: Sequence[Window], size: int) -> Clock:
        """Start a clock that leaves out the first quarter of the steps, in which shapes are captured and compiled."""
        return Clock(self._compute.device, skipped=len(windows) // size // 4)

    def _run_ours(self, name: str, windows: Sequence[Window], seed: int) -> Run:
        encoder = replace(self._encoder, model=deepcopy(self._encoder.model))
        output = new_output(encoder, seed)
        watch = Watch(self._clock(windows, self._step_windows(windows)))
        with compiling(at_once=name == COMPILED):
            for _ in finetune_encoder(
                encoder, output, windows, self._config(STEPS[name]), seed=seed, compute=self._compute, progress=watch
            ):
                pass
        return Run(watch.clock.stop(), last_quarter(watch.losses()))

    def _run_trainer(self, flags: Flags, windows: Sequence[Window], seed: int) -> Run:
        model, size = question_model(self._encoder, new_output(self._encoder, seed)), self._step_windows(windows)
        clock = self._clock(windows, flags.windows or size)
        losses = train_with_trainer(
            model,
            self._encoder,
            windows,
            flags,
            lr=self._lr,
            seed=seed,
            step_windows=size,
            workers=self._workers,
            compute=self._compute,
            on_step=clock.step,
        )
        return Run(clock.stop(), last_quarter(losses))


@contextmanager
def compiling(*, at_once: bool) -> Iterator[None]:
    """Within this, blocks are compiled however few steps there are, or never."""
    usual, packed.MIN_STEPS_TO_COMPILE = packed.MIN_STEPS_TO_COMPILE, 0 if at_once else sys.maxsize
    try:
        yield
    finally:
        packed.MIN_STEPS_TO_COMPILE = usual


def new_output(encoder: Encoder, seed: int) -> Head:
    """Build the output layer that fine-tuning starts with."""
    config = output_head(None)
    return build_heads([config], shape_of_states(encoder), seed)[config.name]


class Watch:
    """Progress that tells a clock of every step, and keeps what each would say of its loss for the end."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._notes: list[Callable[[], str]] = []

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        """Watch a piece of work."""
        yield self

    def say(self, message: str) -> None:
        """Keep quiet."""

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Count a step; its loss is not asked for yet, as the host would have to wait for it."""
        if note is not None:
            self.clock.step(amount)
            self._notes.append(note)

    def losses(self) -> list[float]:
        """Return the loss of every step, to two digits as it is shown."""
        return [float(note().rpartition(" ")[2]) for note in self._notes]


def last_quarter(losses: Sequence[float]) -> float:
    """Return the mean of the last quarter; refuse a training that diverged, whose time says nothing."""
    mean = fmean(losses[-max(1, len(losses) // 4) :])
    if not isfinite(mean):
        raise TrainingError("the training diverged; try a lower lr")
    return mean


def measure(
    work: FinetuneWork, names: Sequence[str], parts: Sequence[Sequence[Window]], progress: Progress
) -> tuple[Runs, dict[str, str]]:
    """Run every side once a round, forwards and backwards in turn; one that fails is left out and said so."""
    runs: Runs = {name: [] for name in names}
    left_out: dict[str, str] = {}
    for number, windows in enumerate(parts):
        for name in list(names)[:: 1 if number % 2 else -1]:
            if name in left_out:
                continue
            try:
                run = work.run(name, windows, seed=number + 1)
            except Exception as error:  # whatever it is, the other sides' times are not to be lost with it
                left_out[name] = reason_of(error)
                progress.say(f"{name} is left out: {left_out[name]}")
                continue
            progress.say(f"round {number}, {name}: {run.speed:,.0f} windows/s, loss {run.loss:.3f}")
            runs[name] += [run] if number else []
    if len(left_out) == len(names):
        raise SettingsError(f"no side could be measured, such as {names[0]}: {left_out[names[0]]}")
    return {name: each for name, each in runs.items() if name not in left_out}, left_out


def _side(name: str, runs: Sequence[Run]) -> Side:
    return Side(name=name, seconds=tuple(round(1000 / run.speed, 6) for run in runs))


def _figures(runs: Runs, encoder: Encoder, windows: Sequence[Window], compute: Compute) -> dict[str, float]:
    """Return every side's speed, loss and costs, the middle of its rounds."""
    flops = training_flops(encoder, windows) / len(windows)
    peak = compute.peak
    figures = {"tokens of a window": float(lengths_of(windows).mean()), "GFLOP of a window": flops / 1e9}
    for name, each in runs.items():
        speed = median(run.speed for run in each)
        timings = [run.timing for run in each]
        figures[f"{name}: windows a second"] = speed
        figures[f"{name}: loss of the last quarter"] = fmean(run.loss for run in each)
        figures[f"{name}: seconds before"] = median(timing.before for timing in timings)
        if peak is not None:
            figures[f"{name}: per cent of the peak"] = 100 * flops * speed / peak
        figures[f"{name}: GB at most"] = max(timing.peak_bytes for timing in timings) / 1e9
        if joules := [1000 * timing.joules / timing.windows for timing in timings if timing.joules is not None]:
            figures[f"{name}: joules of 1,000 windows"] = median(joules)
    return figures


def training_flops(encoder: Encoder, windows: Sequence[Window]) -> float:
    """Return the operations of training on some windows without padding: forward, and twice as many backward.

    A weight multiplies and adds once for each token; attention does so with every pair of a window's tokens, twice.
    """
    lengths, config = lengths_of(windows), encoder.model.config
    apart = ("embeddings", "pooler")
    weights = sum(own.numel() for name, own in encoder.model.named_parameters() if name.split(".")[0] not in apart)
    pairs: float = config.num_hidden_layers * config.hidden_size * float((lengths**2).sum())
    return 6 * weights * float(lengths.sum()) + 12 * pairs


def _compared(runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Return how many times as fast our fastest side is as Trainer's fastest."""
    speeds = {name: median(run.speed for run in each) for name, each in runs.items()}
    trainers = {name: speed for name, speed in speeds.items() if name.removesuffix(NO_CUDNN) in TRAINERS}
    ours = {name: speed for name, speed in speeds.items() if name not in trainers}
    rivals = {
        "Trainer's fastest as it comes": [name for name in trainers if not name.endswith(NO_CUDNN)],
        "Trainer's fastest without cuDNN's attention": [name for name in trainers if name.endswith(NO_CUDNN)],
    }
    best = max(ours.values(), default=None)
    return {
        f"our fastest / {rival}": best / max(speeds[name] for name in names)
        for rival, names in rivals.items()
        if names and best is not None
    }
