"""Whether memory grows with the data: the peak of a process of its own for every stage, at 1x and 10x as many rows."""

import gzip
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from benchmarks.measuring import RANDOM, MemoryWatch, save_random, write_questions
from bertvision.data.squad import read_squad
from bertvision.encoder.load import load_tokenizer
from bertvision.errors import SettingsError
from bertvision.experiment import Experiment, build_experiment
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.serving.predict import predict_file
from bertvision.serving.shards import predict_shards
from bertvision.settings import Config
from bertvision.stages.encode import encode
from bertvision.stages.run import run_finetune, run_train_heads
from bertvision.training.device import choose_compute
from bertvision.windows.window import Window, WindowConfig, cut_windows


class MemoryBench(Config):
    """What is measured."""

    encoder: str = "bert-2x32"  # random weights, or a folder
    data: str = "sample:train"  # or a SQuAD file with answers: its questions come again and again
    rows: int = Field(1000, ge=1)  # questions at 1x
    times: tuple[int, int] = (1, 10)  # as many
    stages: tuple[str, ...] = ()  # empty: all
    device: str = "auto"


class Given(NamedTuple):
    """What the stages work on."""

    encoder: str
    model: str
    data: str  # a SQuAD file
    shards: str  # the same questions
    device: str

    def experiment(self, **settings: Any) -> Experiment:  # noqa: ANN401 (settings)
        """Return an experiment that trains on all questions."""
        files = {"train": self.data, "dev": "sample:dev"}
        return build_experiment({"data": files, "encoder": self.encoder, "device": self.device, **settings})


class Held(NamedTuple):
    """What a stage took, and held at most in bytes."""

    seconds: float
    peak: int  # of the process, files that it has mapped included
    anonymous: int  # of it, what is no copy of a file, so that the system cannot drop it
    device: int | None  # of a GPU


def bench_memory(config: MemoryBench, progress: Progress = SILENT) -> BenchRecord:
    """Run every stage in a new process for each size, and read its peaks."""
    if unknown := set(config.stages) - set(STAGES):
        raise SettingsError(f"no stage {min(unknown)!r}; known: {', '.join(STAGES)}")
    compute, stages = choose_compute(config.device), config.stages or tuple(STAGES)
    found: dict[str, dict[int, Held]] = {stage: {} for stage in stages}
    with tempfile.TemporaryDirectory() as name, progress.bar("measure", len(found) * len(config.times)) as bar:
        for times in config.times:
            given = _write(config, Path(name) / f"{times}x", times)
            for stage in stages:
                found[stage][times] = _in_new_process(stage, given, Path(name) / f"{times}x" / stage)
                bar.advance(1)
    sides = {f"{stage}, {times}x": held for stage, by_size in found.items() for times, held in by_size.items()}
    names = {"data": Path(config.data).name, "encoder": Path(config.encoder).name}  # the folders are this machine's
    only = f"-{re.sub('[^a-z]+', '-', stages[0])}" if len(stages) == 1 else ""
    return BenchRecord(
        name="memory",
        variant=names["encoder"] + only,
        about="peak memory of a new process, libraries and model included, at two sizes of the data",
        settings={**config.model_dump(mode="json"), **names},
        sides=tuple(Side(name=side, seconds=(round(held.seconds, 2),)) for side, held in sides.items()),
        figures={
            **{key: value for side, held in sides.items() for key, value in _figures(side, held).items()},
            **{f"{stage}: kB a question": _growth(by_size, config.rows) for stage, by_size in found.items()},
        },
        provenance=provenance(compute.name, compute.precision),
    )


def _figures(side: str, held: Held) -> dict[str, float]:
    found = {"peak MB": held.peak, "anonymous MB": held.anonymous, "GPU MB": held.device}
    return {f"{side}: {what}": round(value / 1e6, 1) for what, value in found.items() if value is not None}


def _growth(by_size: Mapping[int, Held], rows: int) -> float:
    """Return by how much the anonymous memory grows with every question."""
    (few, small), (many, large) = sorted(by_size.items())
    return round((large.anonymous - small.anonymous) / (rows * (many - few)) / 1000, 2)


def _write(config: MemoryBench, folder: Path, times: int) -> Given:
    folder.mkdir()
    data = write_questions(folder / "train.json", config.data, times * config.rows)
    with gzip.open(folder / "questions.jsonl.gz", "wt", encoding="utf-8", compresslevel=1) as file:
        for each in read_squad(data).examples:
            file.write(json.dumps({"id": each.id, "question": each.text, "context": each.context}) + "\n")
    is_random = config.encoder in RANDOM
    encoder = save_random(config.encoder, folder / "encoder") if is_random else config.encoder
    untuned = {"encoder": encoder, "finetune": {"fractions": [0]}, "heads": {"train": []}, "device": config.device}
    (model,) = run_finetune(build_experiment(untuned), folder / "model")
    return Given(encoder, str(model), data, str(folder / "questions.jsonl.gz"), config.device)


def _in_new_process(stage: str, given: Given, out: Path) -> Held:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, stage, given, out).result()


def _measure(stage: str, given: Given, out: Path) -> Held:
    started = time.perf_counter()
    with MemoryWatch() as held:
        STAGES[stage](given, out)
    return Held(time.perf_counter() - started, held.peak, held.anonymous, held.device)


def _cut(given: Given) -> list[Window]:
    return cut_windows(read_squad(given.data).examples, load_tokenizer(given.encoder), WindowConfig())


def _tokenise(given: Given, out: Path) -> None:
    _cut(given)


def _extract(given: Given, out: Path) -> None:
    encode(given.data, out, task="squad2", encoder=given.encoder, settings={"device": given.device})


def _tune(given: Given, out: Path) -> None:
    run_finetune(given.experiment(finetune={"fractions": [1]}, heads={"train": []}), out)


def _train_heads(given: Given, out: Path, *, extracted: bool = False) -> None:
    heads = {"train": ["learned_pooling"], "epochs": 2}
    if extracted:
        _extract(given, out / "states")
    states = {"folder": str(out / "states")} if extracted else {"source": "live"}
    run_train_heads(given.experiment(finetune={"fractions": []}, heads=heads, states=states), out)


def _predict_shards(given: Given, out: Path) -> None:
    predict_shards(Path(given.model), [given.shards], out, {"device": given.device})


def _predict_file(given: Given, out: Path) -> None:
    predict_file(Path(given.model), given.data, out, {"device": given.device})


STAGES: dict[str, Callable[[Given, Path], object]] = {
    "tokenise": _tokenise,
    "extract": _extract,
    "fine-tune": _tune,
    "heads, live": _train_heads,
    "heads, folder": partial(_train_heads, extracted=True),
    "predict shards": _predict_shards,
    "predict a file": _predict_file,
}
