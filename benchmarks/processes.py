"""The stages of a small run in one process and in two, one thread each."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from pydantic import Field
from torch import distributed

from benchmarks.measuring import RANDOM, save_random, write_questions
from bertvision.files import read_json, write_json
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, RunRecord, Side, provenance, read_records
from bertvision.settings import Config, Settings
from bertvision.training.distributed import join_processes, launch

ONE_THREAD = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
TRIES = 10  # of adding up


def _encoder(name: str, folder: Path) -> str:
    return save_random(name, folder) if name in RANDOM else name


class ProcessesBench(Config):
    """A small run, done in one process and in several; each has one thread."""

    encoder: str = "bert-6x384"  # random weights, or a folder
    data: str = "sample:train"
    questions: int = Field(240, ge=8)
    tokens: int = Field(2048, ge=512)  # of a step
    count: int = Field(2, ge=2)


def bench_processes(config: ProcessesBench, progress: Progress = SILENT) -> BenchRecord:
    """Do a run in one process and in several, and measure how fast they add up."""
    with tempfile.TemporaryDirectory() as name, progress.bar("measure", 3) as bar:
        folder = Path(name)
        write_json(folder / "run.yaml", _small_run(config, folder))
        link = _measure_link(config.count, folder / "link.json")
        bar.advance(1)
        seconds: dict[int, Mapping[str, float]] = {}
        for count in (1, config.count):
            _bertvision("run", folder / "run.yaml", "--out", folder / str(count), "--processes", count, "--quiet")
            seconds[count] = _seconds_of(read_records(folder / str(count)))
            bar.advance(1)
    return BenchRecord(
        name="processes",
        variant=Path(config.encoder).name,
        about="the stages of a small run in one process and in several (gloo), one thread each",
        settings={**config.model_dump(mode="json"), "data": Path(config.data).name},
        sides=tuple(
            Side(name=f"{stage}, {count}", seconds=(seconds[count][stage],))
            for stage in seconds[1]
            for count in seconds
        ),
        figures={f"link: {what}": value for what, value in link.items()},
        provenance=provenance("cpu (1 thread a process)", "float32"),
    )


def _small_run(config: ProcessesBench, folder: Path) -> Settings:
    batch = {"tokens": config.tokens}
    return {
        "data": {
            "train": write_questions(folder / "train.json", config.data, config.questions),
            "dev": "sample:dev",
        },
        "encoder": _encoder(config.encoder, folder / "encoder"),
        "finetune": {"fractions": [1], "batch": batch},
        "heads": {"train": ["adapter_64_shared"], "batch": batch},
        "states": "live",
        "device": "cpu",
    }


def _bertvision(*given: object) -> None:
    command = [sys.executable, "-m", "bertvision", *map(str, given)]
    env = {**os.environ, **ONE_THREAD}
    subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env)


def _seconds_of(records: list[RunRecord]) -> dict[str, float]:
    """Return what each stage took."""
    seconds = next(record for record in records if record.kind == "head").seconds
    return {"fine-tune": seconds.finetune, "heads": seconds.heads or 0.0, "predict": seconds.predict}


def _measure_link(count: int, path: Path) -> dict[str, float]:
    """Let so many processes add up nothing and a lot, as training does."""
    launch(count, [sys.executable, "-m", "benchmarks.processes", str(path)])
    found: dict[str, float] = read_json(path)
    return found


def measure_link(path: Path) -> None:
    """Write how fast this process and its others add up: gigabytes a second, and microseconds of a message."""
    processes = join_processes(torch.device("cpu"))
    messages = 2 * (processes.count - 1)
    little, much = torch.zeros(1), torch.zeros(20_000_000)
    message = _seconds(lambda: distributed.all_reduce(little)) / messages
    sent = messages / processes.count * 4 * len(much)
    seconds = _seconds(lambda: distributed.all_reduce(much)) - messages * message
    if processes.is_main:
        write_json(path, {"GB/s": round(sent / seconds / 1e9, 4), "microseconds a message": round(1e6 * message, 1)})


def _seconds(work: Callable[[], object]) -> float:
    work()  # to warm up
    started = time.perf_counter()
    for _ in range(TRIES):
        work()
    return (time.perf_counter() - started) / TRIES


if __name__ == "__main__":
    measure_link(Path(sys.argv[1]))
