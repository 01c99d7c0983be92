"""Questions and contexts -> windows, beside run_qa's way: the tokenizer's overflow call through `datasets.map`.

That way is written plainly below, as transformers' `run_qa.py` has it. Peak memory is that of a process of its own.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field
from transformers import PreTrainedTokenizerBase

from benchmarks.measuring import file_name, measure_in_turns
from bertvision.data.example import Question
from bertvision.data.squad import read_squad
from bertvision.encoder.load import load_tokenizer
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.settings import Config
from bertvision.training.device import choose_compute
from bertvision.windows.window import WindowConfig, cut_windows

OURS, PADDED, BEST = "windows cut", "run_qa's way", "run_qa's way, best flags"
Columns = dict[str, list[Any]]


class WindowsBench(Config):
    """What is measured."""

    data: str = "sample:dev"  # or a SQuAD file with answers
    encoder: str = "default"  # whose tokenizer cuts the windows
    processes: int = Field(2, ge=1)  # of `datasets.map` with its best flags
    rounds: int = Field(3, ge=1)


def bench_windows(config: WindowsBench, progress: Progress = SILENT) -> BenchRecord:
    """Time cutting a whole file, and read the peak memory of each way, the file included."""
    compute = choose_compute("cpu", "float32")
    ways = _ways(config)
    counts: dict[str, int] = {}
    measured = measure_in_turns(
        {name: _counting(counts, name, way) for name, way in ways.items()}, config.rounds, compute.device, progress
    )
    names = {"data": Path(config.data).name, "encoder": Path(config.encoder).name}  # the folders are this machine's
    figures = {f"{name}: windows": float(count) for name, count in counts.items()}
    figures |= {f"{side.name}: windows a second": counts[side.name] / median(side.seconds) for side in measured}
    figures |= {f"{name}: peak memory, MB, file and libraries included": _peak_alone(config, name) for name in ways}
    return BenchRecord(
        name="windows",
        variant=f"{names['encoder']}-{file_name(config.data)}",
        about="from questions and contexts in memory to labelled windows of 384 tokens",
        settings={**config.model_dump(mode="json"), **names},
        sides=measured,
        figures={name: round(value, 1) for name, value in figures.items()},
        provenance=provenance(compute.name, compute.precision),
    )


def _ways(config: WindowsBench) -> dict[str, Callable[[], int]]:
    """Return every way of cutting a file; each gives the number of its windows."""
    from datasets.utils.logging import disable_progress_bar  # here alone: a GPU's machine may be without it

    disable_progress_bar()
    questions, tokenizer = read_squad(config.data).examples, load_tokenizer(config.encoder)
    columns = columns_of(questions)
    return {
        OURS: lambda: len(cut_windows(questions, tokenizer, WindowConfig())),
        PADDED: lambda: map_windows(columns, tokenizer, "max_length", None),
        BEST: lambda: map_windows(columns, tokenizer, False, config.processes),
    }


def _counting(counts: dict[str, int], name: str, way: Callable[[], int]) -> Callable[[], object]:
    return lambda: counts.update({name: way()})


def _peak_alone(config: WindowsBench, name: str) -> float:
    """Cut the file once in a new process, and return the most memory that it held, without processes of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_peak, config, name).result()


def _peak(config: WindowsBench, name: str) -> float:
    _ways(config)[name]()
    # Not getrusage: its maximum outlives exec, so that a new process would show its parent's.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def columns_of(questions: Sequence[Question]) -> Columns:
    """Lay questions out as the data set that run_qa reads."""
    answers = [
        {"text": [each.text for each in question.answers], "answer_start": [each.start for each in question.answers]}
        for question in questions
    ]
    texts, contexts = [question.text for question in questions], [question.context for question in questions]
    return {"question": texts, "context": contexts, "answers": answers}


def map_windows(
    columns: Columns, tokenizer: PreTrainedTokenizerBase, padding: bool | str, processes: int | None
) -> int:
    """Cut windows run_qa's way, into a file of their own, and count them."""
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        found = Dataset.from_dict(columns).map(
            lambda rows: features_of(rows, tokenizer, padding),
            batched=True,
            num_proc=processes,
            remove_columns=list(columns),
            load_from_cache_file=False,
            cache_file_name=str(Path(folder) / "windows.arrow"),
        )
        return len(found)


def features_of(rows: Mapping[str, list[Any]], tokenizer: PreTrainedTokenizerBase, padding: bool | str) -> Columns:
    """Cut some questions as run_qa's `prepare_train_features` does."""
    cut = tokenizer(
        [question.lstrip() for question in rows["question"]],
        rows["context"],
        truncation="only_second",
        max_length=384,
        stride=128,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=padding,
    )
    samples, offsets = cut.pop("overflow_to_sample_mapping"), cut.pop("offset_mapping")
    labels = [
        _label(spans, cut.sequence_ids(place), rows["answers"][sample])
        for place, (spans, sample) in enumerate(zip(offsets, samples, strict=True))
    ]
    cut["start_positions"], cut["end_positions"] = map(list, zip(*labels, strict=True))
    return dict(cut)


def _label(offsets: list[tuple[int, int]], sides: list[int | None], answers: Mapping[str, Any]) -> tuple[int, int]:
    """Find an answer's tokens by walking inwards from both ends of the context; 0, 0 where the window lacks it."""
    if not answers["answer_start"]:
        return 0, 0
    start = answers["answer_start"][0]
    stop = start + len(answers["text"][0])
    first, last = sides.index(1), len(sides) - 1
    while sides[last] != 1:
        last -= 1
    if not (offsets[first][0] <= start and offsets[last][1] >= stop):
        return 0, 0
    while first < len(offsets) and offsets[first][0] <= start:
        first += 1
    while offsets[last][1] >= stop:
        last -= 1
    return first - 1, last + 1
