"""Every benchmark by name, and the command that runs one: `make bench NAME=heads`."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.costs import bench_costs
from benchmarks.decode import DecodeBench, bench_decode
from benchmarks.finetune import FinetuneBench, bench_finetune
from benchmarks.heads import HeadsBench, bench_heads
from benchmarks.inference import InferenceBench, bench_inference
from benchmarks.memory import MemoryBench, bench_memory
from benchmarks.processes import ProcessesBench, bench_processes
from benchmarks.search import SearchBench, bench_search
from benchmarks.serve import ServeBench, bench_serve
from benchmarks.shards import ShardsBench, bench_shards
from benchmarks.startup import StartupBench, bench_startup
from benchmarks.states import StatesBench, bench_states
from benchmarks.tables import bench_tables
from benchmarks.windows import WindowsBench, bench_windows
from bertvision.cli.console import (
    Json,
    Quiet,
    Set,
    in_one_line,
    messages,
    print_json,
    print_table,
    progress_for,
    results,
)
from bertvision.errors import SettingsError
from bertvision.files import check_folder
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, write_bench_record
from bertvision.settings import Config, validate, with_overrides
from studies.cost_records import COSTS_FOLDER
from studies.costs import costs_table


class Bench(NamedTuple):
    """A benchmark: its settings, and what runs it."""

    settings: type[Config]
    run: Callable[[Any, Progress], BenchRecord]


BENCHES = {
    "heads": Bench(HeadsBench, bench_heads),
    "states": Bench(StatesBench, bench_states),
    "finetune": Bench(FinetuneBench, bench_finetune),
    "search": Bench(SearchBench, bench_search),
    "decode": Bench(DecodeBench, bench_decode),
    "inference": Bench(InferenceBench, bench_inference),
    "shards": Bench(ShardsBench, bench_shards),
    "memory": Bench(MemoryBench, bench_memory),
    "processes": Bench(ProcessesBench, bench_processes),
    "serve": Bench(ServeBench, bench_serve),
    "startup": Bench(StartupBench, bench_startup),
    "windows": Bench(WindowsBench, bench_windows),
}


COSTS = "costs"  # not of a method beside others but of an experiment's variants: its records are the report's


def run_bench(name: str, overrides: Iterable[str] = (), progress: Progress = SILENT) -> BenchRecord:
    """Run a benchmark with `key=value` settings."""
    if name not in BENCHES:
        raise SettingsError(f"no benchmark {name!r}; known: {', '.join([*BENCHES, COSTS])}")
    bench = BENCHES[name]
    return bench.run(validate(bench.settings, with_overrides({}, overrides), f"bench {name}"), progress)


@in_one_line
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join([*BENCHES, COSTS])}.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the record.")] = Path("runs/bench"),
    overrides: Set = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure speeds side by side.

    heads: many heads in one pass, against the bare encoder, plain code and a pass for each head. states: live
    states against those in memory, extracted and the papers' padded ones. finetune: windows a second of our steps
    and of transformers' Trainer. search: head trials in groups, against one after another. decode: logits to
    scored answers, against run_qa's algorithm. inference: a reader on the CPU in torch, ONNX and int8, with their
    scores, and its head against the bare encoder. shards: predictions of files of any size, by one process, several
    and Ray. memory: peaks of every stage at 1x and 10x as much data. processes: a run in one process and in two.
    serve: a server under load, over its limit, and at its end. startup: CPU seconds of --help, score and ask.
    windows: cutting a file, against datasets.map. costs: what every variant of --set config=EXPERIMENT.yaml costs to
    tune, train and run, into OUT/costs, which `python -m studies report OUT` draws.
    In turns, after a warm-up; prints ratios and writes a record.
    """
    if name == COSTS:
        measured = bench_costs(overrides or (), check_folder(out), progress_for(quiet))
        if as_json:
            print_json([each.model_dump(mode="json") for each in measured])
            return
        print_table(costs_table(measured))
        results.print(f"milliseconds are of one window; costs: {out / COSTS_FOLDER}", markup=False)
        return
    record = run_bench(name, overrides or (), progress_for(quiet))
    path = write_bench_record(check_folder(out), record)
    if as_json:
        print_json(record.model_dump(mode="json"))
        return
    results.print(f"{record.name}, {record.variant} on {record.provenance.device}: {record.about}", markup=False)
    for table in bench_tables(record):
        print_table(table)
    messages.print(f"record: {path}", markup=False)


if __name__ == "__main__":
    typer.run(bench)
