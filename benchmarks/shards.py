"""A reader on shards of questions: documents and tokens a second, and whether memory grows with their number."""

import gzip
import json
import tempfile
from pathlib import Path
from statistics import median

from pydantic import Field

from bertvision.data.squad import read_squad
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import Config
from bertvision.steps.predict_shards import ShardCounts, predict_shards
from bertvision.training.accounting import Costs, Meter
from bertvision.training.device import choose_compute

SHARDS = 2


class ShardsBench(Config):
    """What is measured."""

    model: str = "default"
    data: str = "sample:dev"  # or a SQuAD file: its questions are asked again and again
    rows: int = Field(512, ge=1)  # of a shard at 1x: more than are in memory at once, on a CPU
    times: tuple[int, ...] = (1, 10)  # as many rows
    rounds: int = Field(1, ge=1)
    device: str = "auto"


def bench_shards(config: ShardsBench, progress: Progress = SILENT) -> BenchRecord:
    """Predict few rows and many, in turns after a warm-up, and read time and peak memory of each."""
    compute = choose_compute(config.device)
    found: dict[int, list[tuple[ShardCounts, Costs]]] = {times: [] for times in config.times}
    with tempfile.TemporaryDirectory() as folder, progress.bar("measure", len(found) * config.rounds + 1) as bar:
        for times in config.times:
            _write(config, Path(folder) / str(times), times)
        for number in range(config.rounds + 1):
            for times in config.times[:1] if number == 0 else config.times:
                out = Path(folder) / f"out-{number}-{times}"
                measured = _predict(config, Path(folder) / str(times), out)
                found[times] += [measured] if number else []
                bar.advance(1)
    sides = {f"{times}x": each for times, each in found.items()}
    return BenchRecord(
        name="shards",
        variant=Path(config.model).name,
        about="predictions of shards of packed JSON lines, from files to files",
        settings={**config.model_dump(mode="json"), "model": Path(config.model).name, "data": Path(config.data).name},
        sides=tuple(Side(name=name, seconds=tuple(costs.seconds for _, costs in each)) for name, each in sides.items()),
        figures={key: value for name, each in sides.items() for key, value in _figures(name, each).items()},
        provenance=provenance(compute.name, compute.precision),
    )


def _write(config: ShardsBench, folder: Path, times: int) -> None:
    folder.mkdir()
    questions = read_squad(config.data).examples
    for shard in range(SHARDS):
        with gzip.open(folder / f"{shard}.jsonl.gz", "wt", encoding="utf-8") as file:
            for number in range(config.rows * times):
                asked = questions[number % len(questions)]
                row = {"id": f"{shard}-{number}", "question": asked.text, "context": asked.context}
                file.write(json.dumps(row) + "\n")


def _predict(config: ShardsBench, folder: Path, out: Path) -> tuple[ShardCounts, Costs]:
    meter = Meter(choose_compute(config.device).device)
    meter.go()
    found = predict_shards(Path(config.model), [str(folder)], out, {"device": config.device})
    costs = meter.stop()
    tokens = sum(each.tokens for each in found.shards)
    return ShardCounts(source=str(folder), source_bytes=0, rows=found.rows, tokens=tokens), costs


def _figures(name: str, measured: list[tuple[ShardCounts, Costs]]) -> dict[str, float]:
    counts, costs = zip(*measured, strict=True)
    seconds = median(each.seconds for each in costs)
    return {
        f"{name}: documents": counts[0].rows,
        f"{name}: documents a second": round(counts[0].rows / seconds, 1),
        f"{name}: tokens a second": round(counts[0].tokens / seconds),
        f"{name}: peak memory of the process, MB": round(max(each.peak_process_bytes for each in costs) / 1e6, 1),
    }
