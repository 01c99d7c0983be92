"""How long the command line takes to start: CPU seconds of whole processes, and whether they import torch."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from pydantic import Field

from bertvision.progress import SILENT, Bar, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.settings import Config
from bertvision.training.device import choose_compute

PYTHON, HELP, SCORE, ASK = "python alone", "bertvision --help", "bertvision score", "bertvision ask"
CONTEXT = "The weir was built in 1887 by Hannah Coyle."


class StartupBench(Config):
    """What is measured."""

    model: str = "default"  # that is asked
    rounds: int = Field(10, ge=1)


def bench_startup(config: StartupBench, progress: Progress = SILENT) -> BenchRecord:
    """Run every command as a process of its own, in turns, and note its CPU seconds."""
    compute = choose_compute("cpu", "float32")
    with tempfile.TemporaryDirectory() as folder:
        commands = _commands(config, Path(folder))
        with progress.bar("measure", (config.rounds + 1) * len(commands)) as bar:
            torch = {f"{name}: imports torch": _imports_torch(command, bar) for name, command in commands.items()}
            cpu, wall = _measure(commands, config.rounds, bar)
    seconds = {f"{name}: seconds by the clock": round(median(taken), 3) for name, taken in wall.items()}
    return BenchRecord(
        name="startup",
        variant=Path(config.model).name,
        about="CPU seconds of a command, from the start of its process to its end",
        settings={**config.model_dump(mode="json"), "model": Path(config.model).name},
        sides=tuple(Side(name=name, seconds=tuple(taken)) for name, taken in cpu.items()),
        figures=seconds | torch,
        provenance=provenance(compute.name, compute.precision),
    )


def _commands(config: StartupBench, folder: Path) -> dict[str, list[str]]:
    """Return the commands, and write what `score` reads."""
    answers = [{"text": "1887", "answer_start": CONTEXT.index("1887")}]
    asked = {"id": "q", "question": "When was the weir built?", "answers": answers}
    gold = {"data": [{"title": "weir", "paragraphs": [{"context": CONTEXT, "qas": [asked]}]}]}
    (folder / "gold.json").write_text(json.dumps(gold))
    (folder / "predictions.json").write_text(json.dumps({"q": "1887"}))
    verb = [sys.executable, "-m", "bertvision"]
    files = ["--gold", str(folder / "gold.json"), "--predictions", str(folder / "predictions.json")]
    question = ["--question", str(asked["question"]), "--context", CONTEXT]
    return {
        HELP: [*verb, "--help"],
        SCORE: [*verb, "score", "squad1", *files],
        ASK: [*verb, "ask", "--model", config.model, *question],
        PYTHON: [sys.executable, "-c", "pass"],
    }


Seconds = dict[str, list[float]]


def _measure(commands: Mapping[str, Sequence[str]], rounds: int, bar: Bar) -> tuple[Seconds, Seconds]:
    """Return the CPU seconds and the seconds by the clock of every command in every round."""
    cpu: Seconds = {name: [] for name in commands}
    wall: Seconds = {name: [] for name in commands}
    for number in range(rounds):
        for name in list(commands)[:: -1 if number % 2 else 1]:
            before, started = _cpu_of_children(), time.perf_counter()
            _run(commands[name])
            cpu[name].append(round(_cpu_of_children() - before, 6))
            wall[name].append(time.perf_counter() - started)
            bar.advance(1)
    return cpu, wall


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _imports_torch(command: Sequence[str], bar: Bar) -> float:
    """Run a command to warm up, with -X importtime, which names every module on standard error."""
    told = _run([command[0], "-X", "importtime", *command[1:]]).stderr
    bar.advance(1)
    return float(any(line.rpartition("|")[2].strip() == "torch" for line in told.splitlines()))


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=True)
