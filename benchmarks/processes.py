"""What `bertvision plan --processes` foresees: for large machines, and beside what two processes on this CPU take."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import distributed

from benchmarks.heads import head_variants
from benchmarks.measuring import RANDOM, save_random, write_questions
from benchmarks.plan import ANSWERED, LINK, MESSAGE, Stage, plan_processes
from bertvision.experiment import build_experiment
from bertvision.files import read_json, write_json
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, RunRecord, Side, provenance, read_records
from bertvision.settings import Config, Settings
from bertvision.training.device import choose_compute
from bertvision.training.processes import join_processes, launch

SQUAD = 130_319  # questions of SQuAD 2.0's training set
ASKED = 4096  # questions that answering is measured on
ONE_THREAD = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
TRIES = 10  # of adding up


class PlanBench(Config):
    """A large run that is planned from what this machine does in one process."""

    encoder: str = "bert-large"  # random weights, or a folder
    data: str = "sample:train"  # or a SQuAD file with answers: its questions come again and again
    questions: int = Field(SQUAD, ge=1)
    epochs: int = Field(2, ge=1)  # of fine-tuning; heads have one
    tokens: int = Field(32768, ge=512)  # of a step
    device: str = "auto"


def bench_plan(config: PlanBench, progress: Progress = SILENT) -> BenchRecord:
    """Measure tuning, 20 heads in one pass and answering, and foresee all of it in one process."""
    compute = choose_compute(config.device)
    batch = {"tokens": config.tokens}
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "data": {
                "train": write_questions(Path(folder) / "train.json", config.data, config.questions),
                "dev": write_questions(Path(folder) / "dev.json", config.data, min(ASKED, config.questions)),
            },
            "encoder": _encoder(config.encoder, Path(folder) / "encoder"),
            "finetune": {"fractions": [config.epochs], "batch": batch},
            "heads": {"train": [head.model_dump(mode="json") for head in head_variants()], "batch": batch},
            "device": config.device,
        }
        plan = plan_processes(build_experiment(settings), Path(folder) / "out", 2, progress=progress)
    return BenchRecord(
        name="plan",
        variant=Path(config.encoder).name,
        about="a run on one device as `bertvision plan` foresees it, from steps that were measured",
        settings={**config.model_dump(mode="json"), "data": Path(config.data).name, "link": LINK, "message": MESSAGE},
        sides=tuple(Side(name=stage.name, seconds=(round(stage.seconds, 3),)) for stage in plan.stages),
        figures={key: value for stage in plan.stages for key, value in _sizes(stage).items()},
        provenance=provenance(compute.name, compute.precision),
    )


def _sizes(stage: Stage) -> dict[str, float]:
    return {f"{stage.name}: steps": stage.steps, f"{stage.name}: MB of gradients": stage.num_bytes / 1e6}


def _encoder(name: str, folder: Path) -> str:
    return save_random(name, folder) if name in RANDOM else name


class ProcessesBench(Config):
    """A small run that is planned, and then done in one process and in two; each has one thread."""

    encoder: str = "bert-6x384"  # random weights, or a folder
    data: str = "sample:train"
    questions: int = Field(240, ge=8)
    tokens: int = Field(2048, ge=512)  # of a step
    count: int = Field(2, ge=2)


class Foreseen(NamedTuple):
    """The stages of a plan by the names of what they take in a run, and at which speed gradients are added up."""

    stages: dict[str, Stage]
    link: float

    def seconds(self, name: str, count: int) -> float:
        """Return what a stage was said to take in so many processes."""
        return self.stages[name].seconds_in(count, self.link)


def bench_processes(config: ProcessesBench, progress: Progress = SILENT) -> BenchRecord:
    """Foresee a run from one process and the measured link, do it, and compare the seconds of its stages."""
    with tempfile.TemporaryDirectory() as name, progress.bar("measure", 4) as bar:
        folder = Path(name)
        write_json(folder / "run.yaml", _small_run(config, folder))
        link = _measure_link(config.count, folder / "link.json")
        bar.advance(1)
        given = ("plan", folder / "run.yaml", "--out", folder / "plan", "--json", "--processes", config.count)
        planned = json.loads(_bertvision(*given, "--link", f"{link['GB/s']:.4f}"))["scaled"]
        bar.advance(1)
        taken: dict[int, Mapping[str, float]] = {}
        for count in (1, config.count):
            _bertvision("run", folder / "run.yaml", "--out", folder / str(count), "--processes", count, "--quiet")
            taken[count], num_windows = _seconds_of(read_records(folder / str(count)))
            bar.advance(1)
    foreseen = _foreseen(planned, num_windows)
    sides = {f"{stage}, {count}": (stage, count) for stage in foreseen.stages for count in taken}
    return BenchRecord(
        name="processes",
        variant=Path(config.encoder).name,
        about="the stages of a small run in one process and in several (gloo), one thread each, beside their plan",
        settings={**config.model_dump(mode="json"), "data": Path(config.data).name},
        sides=tuple(Side(name=side, seconds=(taken[count][stage],)) for side, (stage, count) in sides.items()),
        figures={
            **{f"{side}: foreseen seconds": round(foreseen.seconds(*each), 3) for side, each in sides.items()},
            **{
                f"{side}: measured / foreseen": round(taken[count][stage] / foreseen.seconds(stage, count), 3)
                for side, (stage, count) in sides.items()
            },
            **{f"link: {what}": value for what, value in link.items()},
            **{f"{stage}: MB of gradients": each.num_bytes / 1e6 for stage, each in foreseen.stages.items()},
        },
        provenance=provenance("cpu (1 thread a process)", "float32"),
    )


def _small_run(config: ProcessesBench, folder: Path) -> Settings:
    batch = {"tokens": config.tokens}
    return {
        "data": {"train": write_questions(folder / "train.json", config.data, config.questions)},
        "encoder": _encoder(config.encoder, folder / "encoder"),
        "finetune": {"fractions": [1], "batch": batch},
        "heads": {"train": ["adapter_64_shared"], "batch": batch},
        "states": "live",
        "device": "cpu",
    }


def _bertvision(*given: object) -> str:
    command = [sys.executable, "-m", "bertvision", *map(str, given)]
    env = {**os.environ, **ONE_THREAD}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def _seconds_of(records: list[RunRecord]) -> tuple[dict[str, float], int]:
    """Return what each stage took, and how many windows were answered."""
    head = next(record for record in records if record.kind == "head")
    seconds = head.seconds
    return (
        {"fine-tune": seconds.finetune, "heads": seconds.heads or 0.0, "predict": seconds.predict},
        head.data["dev"].windows,
    )


def _foreseen(planned: Mapping[str, Any], num_windows: int) -> Foreseen:
    fields = [{key: each[key] for key in Stage._fields} for each in planned["stages"]]
    tuning, heads, answering = (Stage(**each) for each in fields)
    answering = answering._replace(seconds=answering.seconds * num_windows / ANSWERED)
    return Foreseen({"fine-tune": tuning, "heads": heads, "predict": answering}, planned["link"])


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
