"""Heads on states that are computed each time, in memory, in an extracted folder, or stored as the papers did."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
import torch
from pydantic import Field

from benchmarks.measuring import BenchData, measure_in_turns, read_bench_data, short_name, subject
from bertvision.encoder.encode import StateBatch, StateSource, freeze, shape_of_states
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.model_config import Pooling
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.settings import Config, Precision
from bertvision.states.folder import DTYPE, open_folder, write_states
from bertvision.states.live import LiveStates, states_in_order_of_length
from bertvision.states.memory import StateRequest, StateStore, StoredStates, keep_in_memory
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.batches import collate
from bertvision.windows.plan import BatchConfig, StepPlan, lengths_of
from bertvision.windows.window import Window

PAPERS = "padded"
LENGTH = 386  # tokens of every padded window, as in 2020
Made = TypeVar("Made")


class StatesBench(Config):
    """What is measured."""

    encoder: str = "default"
    data: str = "squad"  # squad: random tokens as long as its windows; or a SQuAD file, or a GLUE .tsv of pairs
    windows: int = Field(5000, ge=16)  # at most
    heads: tuple[str, ...] = ("learned_pooling", "adapter_64_shared")
    tokens: int = Field(16384, ge=512)  # of a step
    padded: bool = True  # also the papers' way
    rounds: int = Field(2, ge=1)
    folder: str | None = None  # for files; None: the system's place for temporary ones
    device: str = "auto"
    precision: Precision = "auto"


def bench_states(config: StatesBench, progress: Progress = SILENT) -> BenchRecord:
    """Time one epoch of each head on each source of states, and how long making it takes."""
    compute = choose_compute(config.device, config.precision)
    encoder = freeze(subject(config.encoder), compute)
    data = read_bench_data(config.data, encoder, config.windows, spare=2 * config.windows)
    with tempfile.TemporaryDirectory(prefix="bertvision-bench-", dir=config.folder) as folder:
        work = _Work(config, encoder, data, compute, Path(folder))
        work.build(progress)
        sides: dict[str, Callable[[], object]] = {
            f"{head}, {name}": partial(work.train_on, head, name) for head in config.heads for name in work.sources
        }
        measured = measure_in_turns(sides, config.rounds, compute.device, progress, work.renew)
    seconds = {side.name: median(side.seconds) for side in measured}
    return BenchRecord(
        name="states",
        variant=f"{short_name(encoder)}-{data.name}",
        about="one epoch of training a head on the states of a frozen encoder",
        settings=config.model_dump(mode="json", exclude={"folder", "data"}),
        sides=measured,
        figures={
            "windows": float(len(data.windows)),
            "tokens": float(lengths_of(data.windows).sum()),
            **work.figures,
            **_speedups(config.heads, seconds),
        },
        provenance=provenance(compute.name, compute.precision),
    )


class _Work:
    """The same windows' states from different places."""

    def __init__(self, config: StatesBench, encoder: Encoder, data: BenchData, compute: Compute, folder: Path) -> None:
        self._config, self._encoder, self._data, self._compute, self._folder = config, encoder, data, compute, folder
        self._batch = BatchConfig(tokens=config.tokens)
        pooling: Pooling | None = "first" if data.objective.per == "row" else None
        self._request = StateRequest(encoder, data.windows, compute, pooling=pooling)
        self.sources: dict[str, StateSource] = {}
        self.figures: dict[str, float] = {}
        self._draws = 0

    def build(self, progress: Progress) -> None:
        """Keep the states in every way, and note how long that takes and how much room."""
        request, folder = self._request, self._folder / "states"
        self.renew()
        in_memory = partial(keep_in_memory, request, DTYPE, progress)
        self.sources["memory"] = self._stored(self._timed("memory", in_memory))
        self._timed("folder", partial(write_states, request, folder, {}, progress))
        self.sources["folder"] = self._stored(
            self._timed("opening the folder", partial(open_folder, request, folder, {}, progress))
        )
        self.figures["GB in memory"] = request.num_bytes(DTYPE) / 1e9
        self.figures["GB in the folder"] = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        if self._config.padded and request.pooling is None:
            padded = partial(PaddedStates, self._folder / "padded", self._encoder, request.windows, self._compute)
            self.sources[PAPERS] = store = self._timed(PAPERS, padded)
            self.figures["GB padded, float16"] = store.num_bytes / 1e9
            self.figures["GB padded, float32"] = 2 * store.num_bytes / 1e9

    def renew(self) -> None:
        """Let the live source have other windows: batches whose shapes come again would be faster than a run's."""
        self._draws += 1
        windows, pooling = self._data.draw(self._draws), self._request.pooling
        self.sources["live"] = LiveStates(self._encoder, windows, self._batch, 0, self._compute, pooling=pooling)

    def train_on(self, head: str, source: str) -> None:
        """Train one head for one epoch on the source of a name."""
        self.train(head, self.sources[source])

    def train(self, head: str, source: StateSource) -> None:
        """Train one head for one epoch."""
        train = (HeadConfig.model_validate(head),)
        settings = HeadsConfig(train=train, batch=self._batch)
        shape = shape_of_states(self._encoder, pooling=self._request.pooling)
        objective = self._data.objective
        heads = build_heads(train, shape, seed=1, objective=objective)
        for _ in train_heads_together(heads, source, settings, seed=1, compute=self._compute, objective=objective):
            pass

    def _stored(self, store: StateStore) -> StoredStates:
        pad_id = self._encoder.tokenizer.pad_token_id
        return StoredStates(store, self._data.windows, self._batch, 0, self._compute, pad_id=pad_id)

    def _timed(self, name: str, make: Callable[[], Made]) -> Made:
        started = time.perf_counter()
        made = make()
        self.figures[f"seconds of {name} before the first epoch"] = round(time.perf_counter() - started, 3)
        return made


def _speedups(heads: Sequence[str], seconds: Mapping[str, float]) -> dict[str, float]:
    """Return how many times faster an epoch on kept states is than on live ones."""
    return {
        f"{head}: live / {name}": seconds[f"{head}, live"] / seconds[f"{head}, {name}"]
        for head in heads
        for name in ("memory", "folder", PAPERS)
        if f"{head}, {name}" in seconds
    }


class PaddedStates:
    """The papers' way: a file of padded float16 states by window; a step reads 16 windows from anywhere in it."""

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
        """Return how large the file is."""
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
