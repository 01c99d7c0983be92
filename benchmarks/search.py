"""Head trials of a search in groups that share a pass over the states, against one after another; live and kept."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from pydantic import Field

from benchmarks.measuring import BenchData, measure_in_turns, read_bench_data, short_name, subject
from bertvision.encoder.encode import StateSource, freeze
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.kinds.spans import SQUAD2
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.search.trials import Trial, head_of
from bertvision.search_space import Range, SearchConfig, Space, Value, space_of
from bertvision.settings import Config, Precision
from bertvision.states.folder import DTYPE
from bertvision.states.live import LiveStates
from bertvision.states.memory import StateRequest, StoredStates, keep_in_memory
from bertvision.training.device import Compute, choose_compute
from bertvision.windows.plan import BatchConfig, lengths_of


class SearchBench(Config):
    """What is measured."""

    encoder: str = "default"
    windows: int = Field(24, ge=1)
    trials: int = Field(48, ge=1)
    group: int = Field(8, ge=1)
    epochs: int = Field(1, ge=1)
    tokens: int = Field(4096, ge=384)  # of a step
    rounds: int = Field(2, ge=1)
    device: str = "auto"
    precision: Precision = "auto"


def bench_search(config: SearchBench, progress: Progress = SILENT) -> BenchRecord:
    """Time the trainings of as many trials, drawn from the default space, on windows drawn anew."""
    compute = choose_compute(config.device, config.precision)
    encoder = freeze(subject(config.encoder), compute)
    data = read_bench_data("squad", encoder, config.windows, spare=4 * config.windows)
    work = _Work(encoder, data, config, compute)
    together, alone = f"groups of {config.group}", "one after another"
    sides = {
        f"{together}, live": partial(work.train, config.group, kept=False),
        f"{alone}, live": partial(work.train, 1, kept=False),
        f"{together}, kept": partial(work.train, config.group, kept=True),
        f"{alone}, kept": partial(work.train, 1, kept=True),
    }
    return BenchRecord(
        name="search",
        variant=short_name(encoder),
        about=f"training of {config.trials} head trials; `kept` counts keeping the states once for all of them",
        settings=config.model_dump(mode="json"),
        sides=measure_in_turns(sides, config.rounds, compute.device, progress, work.renew),
        figures={"tokens": float(lengths_of(data.windows).sum()), "windows": float(len(data.windows))},
        provenance=provenance(compute.name, compute.precision),
    )


def draw_trials(count: int) -> list[HeadConfig]:
    """Draw heads from the default space of questions, all on all layers."""
    space, random = space_of(SearchConfig(layers=("all",)), SQUAD2, (1,)), np.random.default_rng(1)
    return [head_of(space, Trial(number, _draw(space, random))) for number in range(count)]


def _draw(space: Space, random: np.random.Generator) -> dict[str, Value]:
    drawn: dict[str, Value] = {}
    for name, values in space.values.items():
        if isinstance(values, Range):
            drawn[name] = float(np.exp(random.uniform(np.log(values.low), np.log(values.high))))
        else:
            drawn[name] = values[int(random.integers(len(values)))]
    return drawn


class _Work:
    """The same trials on windows of the same number, in different ways."""

    def __init__(self, encoder: Encoder, data: BenchData, config: SearchBench, compute: Compute) -> None:
        self._encoder, self._data, self._compute = encoder, data, compute
        self._trials, self._windows, self._draws = draw_trials(config.trials), data.windows, 0
        self._settings = HeadsConfig(train=(), epochs=config.epochs, batch=BatchConfig(tokens=config.tokens))

    def renew(self) -> None:
        """Draw other windows: shapes that come again would be faster than a run's."""
        self._draws += 1
        self._windows = self._data.draw(self._draws)

    def train(self, group: int, *, kept: bool) -> None:
        """Train all trials, so many from each pass."""
        source = self._keep() if kept else self._live()
        for first in range(0, len(self._trials), group):
            self._train(source, self._trials[first : first + group])

    def _train(self, source: StateSource, trials: Sequence[HeadConfig]) -> None:
        settings = self._settings.model_copy(update={"train": tuple(trials)})
        heads = build_heads(trials, self._encoder.shape, seed=1)
        for _ in train_heads_together(heads, source, settings, seed=1, compute=self._compute):
            pass

    def _live(self) -> StateSource:
        return LiveStates(self._encoder, self._windows, self._settings.batch, 0, self._compute)

    def _keep(self) -> StateSource:
        store = keep_in_memory(StateRequest(self._encoder, self._windows, self._compute), DTYPE)
        pad_id = self._encoder.tokenizer.pad_token_id
        return StoredStates(store, self._windows, self._settings.batch, 0, self._compute, pad_id=pad_id)
