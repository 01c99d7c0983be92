"""Every benchmark by name."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.decode import DecodeBench, bench_decode
from benchmarks.heads import HeadsBench, bench_heads
from benchmarks.inference import InferenceBench, bench_inference
from benchmarks.serve import ServeBench, bench_serve
from benchmarks.states import StatesBench, bench_states
from bertvision.bench_record import BenchRecord
from bertvision.errors import SettingsError
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config, validate, with_overrides


class Bench(NamedTuple):
    """A benchmark: its settings, and what runs it."""

    settings: type[Config]
    run: Callable[[Any, Progress], BenchRecord]


BENCHES = {
    "heads": Bench(HeadsBench, bench_heads),
    "states": Bench(StatesBench, bench_states),
    "decode": Bench(DecodeBench, bench_decode),
    "inference": Bench(InferenceBench, bench_inference),
    "serve": Bench(ServeBench, bench_serve),
}


def run_bench(name: str, overrides: Iterable[str] = (), progress: Progress = SILENT) -> BenchRecord:
    """Run a benchmark with `key=value` settings."""
    if name not in BENCHES:
        raise SettingsError(f"no benchmark {name!r}; known: {', '.join(BENCHES)}")
    bench = BENCHES[name]
    return bench.run(validate(bench.settings, with_overrides({}, overrides), f"bench {name}"), progress)
