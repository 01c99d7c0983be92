"""A model on shards of questions: documents and tokens a second of one process, of several, and of Ray's actors."""

import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

from pydantic import Field

from bertvision.data.squad import read_squad
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.serving.shards import ShardCounts, read_counts
from bertvision.settings import Config
from bertvision.training.device import Compute, choose_compute

Way = Literal["plain", "processes", "ray"]
GPU = {"questions": 40_000, "shards": 8}  # some seconds
CPU = {"questions": 512, "shards": 8}  # some 20 seconds of the default model on two cores


class ShardsBench(Config):
    """What is measured."""

    model: str = "default"
    data: str = "sample:dev"  # or a SQuAD file: its questions are asked again and again
    questions: int | None = Field(None, ge=1)  # in all; None: 512 on a CPU, 40,000 on a GPU
    shards: int | None = Field(None, ge=1)  # None: 8
    workers: int = Field(2, ge=2)  # processes, or Ray's actors
    ways: tuple[Way, ...] | None = None  # None: plain, and on a CPU the others too (Ray where it is installed)
    rounds: int = Field(1, ge=1)
    device: str = "auto"


class Answered(NamedTuple):
    """What one command took."""

    seconds: float  # from its start to its end
    shards: list[ShardCounts]

    def answering(self, workers: int) -> float:
        """Return the seconds that each of so many workers spent on its shards: neither start nor end."""
        return sum(each.seconds for each in self.shards) / workers


def bench_shards(config: ShardsBench, progress: Progress = SILENT) -> BenchRecord:
    """Let the command answer the same shards in every way, in turns; each call is a process that starts anew."""
    compute = choose_compute(config.device)
    ways = config.ways or _ways_of(compute)
    size = GPU if compute.device.type == "cuda" else CPU
    questions, shards = config.questions or size["questions"], config.shards or size["shards"]
    found: dict[Way, list[Answered]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder, progress.bar("measure", len(ways) * config.rounds) as bar:
        _write(config.data, Path(folder) / "shards", questions, shards)
        for number in range(config.rounds):
            for way in ways:
                out = Path(folder) / f"{way}-{number}"
                found[way].append(_answer(config, way, Path(folder) / "shards", out))
                bar.advance(1)
    named = {_name(way, config.workers): (_workers(way, config), each) for way, each in found.items()}
    return BenchRecord(
        name="shards",
        variant=Path(config.model).name,
        about="the command `bertvision predict` on shards of packed JSON lines, from its start to its end",
        settings={
            **config.model_dump(mode="json"),
            **{"model": Path(config.model).name, "data": Path(config.data).name},
            **{"questions": questions, "shards": shards, "ways": list(ways)},
        },
        sides=tuple(Side(name=name, seconds=tuple(a.seconds for a in each)) for name, (_, each) in named.items()),
        figures=_figures(named),
        provenance=provenance(compute.name, compute.precision),
    )


def _ways_of(compute: Compute) -> tuple[Way, ...]:
    """Return what one machine has: several processes would share its one GPU."""
    if compute.device.type == "cuda":
        return ("plain",)
    return ("plain", "processes", "ray") if find_spec("ray") is not None else ("plain", "processes")


def _name(way: Way, workers: int) -> str:
    return {"plain": "one process", "processes": f"{workers} processes", "ray": f"Ray, {workers} actors"}[way]


def _workers(way: Way, config: ShardsBench) -> int:
    return 1 if way == "plain" else config.workers


def _write(data: str, folder: Path, questions: int, shards: int) -> None:
    folder.mkdir()
    asked = read_squad(data, answers="optional").examples
    for shard in range(shards):
        with gzip.open(folder / f"{shard}.jsonl.gz", "wt", encoding="utf-8", compresslevel=1) as file:
            for number in range(shard, questions, shards):
                each = asked[number % len(asked)]
                file.write(json.dumps({"id": str(number), "question": each.text, "context": each.context}) + "\n")


def _answer(config: ShardsBench, way: Way, folder: Path, out: Path) -> Answered:
    command = [sys.executable, "-m", "bertvision", "predict", config.model, "--data", str(folder), "--out", str(out)]
    command += ["--set", f"device={config.device}", "--quiet"]
    command += [] if way == "plain" else ["--processes", str(config.workers)]
    command += ["--ray"] if way == "ray" else []
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Answered(round(time.perf_counter() - started, 3), read_counts([str(folder)], out).shards)


def _figures(named: Mapping[str, tuple[int, Sequence[Answered]]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, (workers, each) in named.items():
        rows, tokens = (sum(getattr(shard, what) for shard in each[0].shards) for what in ("rows", "tokens"))
        answering = median(answered.answering(workers) for answered in each)
        figures |= {
            f"{name}: documents": rows,
            f"{name}: documents a second": round(rows / answering, 1),
            f"{name}: tokens a second": round(tokens / answering),
            f"{name}: seconds of start and end": round(median(a.seconds for a in each) - answering, 1),
        }
    return figures
