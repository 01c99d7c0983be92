"""What benchmarks share: sides timed in turns, encoders of given or random weights, windows as long as SQuAD's."""

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModel,
    BertConfig,
    MPNetConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from bertvision.data.example import DataConfig
from bertvision.data.squad import read_squad
from bertvision.encoder.load import Encoder, fuse_attention, load_encoder, load_tokenizer, quiet_transformers
from bertvision.kinds.labels import CLASSES
from bertvision.progress import SILENT, Progress
from bertvision.records import Side
from bertvision.tasks import read_labelled
from bertvision.training.accounting import Meter, device_joules, peak_bytes
from bertvision.training.device import wait_for
from bertvision.training.objective import SPANS, Objective
from bertvision.windows.cut import cut_rows
from bertvision.windows.window import Window, WindowConfig, cut_windows

RANDOM = {
    "bert-large": BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    "bert-base": BertConfig(),
    "bert-12x384": BertConfig(hidden_size=384, num_attention_heads=12, intermediate_size=1536),  # as gte-small
    "bert-6x384": BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    "bert-2x32": BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64),
    "mpnet-base": MPNetConfig(max_position_embeddings=514),
}
STATUS = Path("/proc/self/status")
SECONDS_BETWEEN = 0.02  # two readings of memory
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def measure_in_turns(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device,
    progress: Progress = SILENT,
    renew: Callable[[], object] = lambda: None,
) -> tuple[Side, ...]:
    """Time every side once a round, forwards in one round and backwards in the next; the first round is a warm-up.

    `renew` is called before each of them, outside the time: it may lay out other work of the same size.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with progress.bar("measure", (rounds + 1) * len(sides)) as bar:
        for number in range(rounds + 1):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                renew()
                taken = _seconds(sides[name], device)
                if number:
                    seconds[name].append(round(taken, 6))
                bar.advance(1, lambda name=name: name)  # type: ignore[misc]
    return tuple(Side(name=name, seconds=tuple(taken)) for name, taken in seconds.items())


def _seconds(side: Callable[[], object], device: torch.device) -> float:
    wait_for(device)
    started = time.perf_counter()
    side()
    wait_for(device)
    return time.perf_counter() - started


@contextmanager
def cudnn_attention(is_on: bool) -> Iterator[None]:
    """Let cuDNN's attention, which plans every new shape anew, take part or not."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(is_on)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


class Timing(NamedTuple):
    """What the steps of a training took, without the first ones."""

    seconds: float
    windows: int
    before: float  # seconds until then: models moved, graphs captured, code compiled
    peak_bytes: int  # of the device, all steps included; of the process where the device has no memory of its own
    joules: float | None


class Clock:
    """Times a training's steps from a given one on: what comes before is paid once, however long the training."""

    def __init__(self, device: torch.device, skipped: int) -> None:
        self._device, self._skipped, self._steps, self._windows = device, skipped, 0, [0, 0]
        wait_for(device)
        Meter(device).go()  # from here on peaks are counted
        self._peak = 0
        self._opened = self._started = time.perf_counter()
        self._joules = device_joules(device)

    def step(self, windows: int) -> None:
        """Count one step over so many windows; the host waits for the device at the last of the skipped ones alone."""
        self._steps += 1
        self._windows[self._steps > self._skipped] += windows
        if self._steps <= self._skipped:  # a training's own meter may forget the peaks at its end
            self._peak = max(self._peak, peak_bytes(self._device))
        if self._steps == self._skipped:
            wait_for(self._device)
            self._started, self._joules = time.perf_counter(), device_joules(self._device)

    def stop(self) -> Timing:
        """Return what the steps took; of a training that had no others, the first ones."""
        wait_for(self._device)
        ended, joules = time.perf_counter(), device_joules(self._device)
        skipped, timed = self._windows
        return Timing(
            seconds=ended - (self._started if timed else self._opened),
            windows=timed or skipped,
            before=self._started - self._opened,
            peak_bytes=max(self._peak, peak_bytes(self._device)),
            joules=None if joules is None or self._joules is None else joules - self._joules,
        )


def subject(name: str, tokenizer: str | None = None) -> Encoder:
    """Load an encoder, or build known shapes with random weights, which run as fast as trained ones.

    These have the tokenizer of another encoder, or of none: enough for windows of random tokens.
    """
    if name not in RANDOM:
        return load_encoder(name)
    model = _random_model(name)
    if model.config.model_type == "mpnet":
        fuse_attention(model)  # as `load_encoder` does
    return Encoder(name, model, blank_tokenizer() if tokenizer is None else load_tokenizer(tokenizer))


def save_random(name: str, folder: Path) -> str:
    """Save a known shape with random weights, as large as the default vocabulary; return its folder."""
    pieces, model = load_tokenizer("default"), _random_model(name)
    with torch.random.fork_rng(), quiet_transformers():
        torch.manual_seed(0)
        model.resize_token_embeddings(len(pieces))
        model.save_pretrained(folder)
    pieces.save_pretrained(folder)
    return str(folder)


def _random_model(name: str) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModel.from_config(RANDOM[name], trust_remote_code=False)
    return model


def write_questions(path: Path, data: str, count: int) -> str:
    """Write a SQuAD file of so many questions: those of another, again and again, about contexts that differ."""
    questions, articles = read_squad(data).examples, []
    for copy in range(-(-count // len(questions))):
        paragraphs: dict[str, list[dict[str, Any]]] = {}
        for number, each in enumerate(questions[: count - copy * len(questions)]):
            answers = [{"text": answer.text, "answer_start": answer.start} for answer in each.answers]
            asked = {"id": f"{copy}-{number}", "question": each.text, "is_impossible": not answers, "answers": answers}
            paragraphs.setdefault(f"{each.context} {copy}", []).append(asked)
        articles.append([{"context": context, "qas": qas} for context, qas in paragraphs.items()])
    whole = {"version": "v2.0", "data": [{"title": str(n), "paragraphs": each} for n, each in enumerate(articles)]}
    path.write_text(json.dumps(whole), encoding="utf-8")
    return str(path)


def clear(device: torch.device) -> None:
    """Let the next side start from nothing: no memory held, no code compiled (after eight models no more is)."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class MemoryWatch:
    """Reads the memory of this process again and again, and keeps the most of it; bytes.

    A training's own meter forgets the peaks that the kernel and torch keep, and nobody keeps that of anonymous memory.
    """

    def __init__(self) -> None:
        self.peak = self.anonymous = 0  # with files that are mapped; and what is no copy of a file
        self.device: int | None = None  # of a GPU
        self._is_over, self._watcher = threading.Event(), threading.Thread(target=self._watch)

    def __enter__(self) -> "MemoryWatch":
        self._look()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()
        self._look()

    def _watch(self) -> None:
        while not self._is_over.wait(SECONDS_BETWEEN):
            self._look()

    def _look(self) -> None:
        status = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        self.peak = max(self.peak, 1024 * int(status["VmHWM"].split()[0]))
        self.anonymous = max(self.anonymous, 1024 * int(status["RssAnon"].split()[0]))
        if torch.cuda.is_initialized():
            self.device = max(self.device or 0, torch.cuda.max_memory_allocated())


def file_name(data: str) -> str:
    """Return what a record's name calls a file of questions."""
    return Path(data).name.removesuffix(".gz").removesuffix(".json").replace(":", "-")


def short_name(encoder: Encoder) -> str:
    """Return the last part of an encoder's place, for a record's name."""
    return encoder.name.rstrip("/").rpartition("/")[2]


def blank_tokenizer() -> PreTrainedTokenizerBase:
    """Make the least that an encoder needs: it knows what padding is."""
    words = WordLevel({piece: number for number, piece in enumerate(SPECIALS)}, unk_token="[UNK]")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="[PAD]")


def windows_like_squad(count: int, vocabulary: int, seed: int = 0) -> list[Window]:
    """Make windows of random tokens whose lengths are spread as those of SQuAD 2.0's training set.

    Its mean is 171 tokens and its 98th percentile 348 (SPEC 4.1): a log-normal of deviation 0.37, cut at 384.
    """
    random = np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(np.log(160), 0.37, size=count), 40, 384).astype(int)
    windows = []
    for number, length in enumerate(lengths.tolist()):
        ids = random.integers(len(SPECIALS), vocabulary, size=length).astype(np.int32)
        start = int(random.integers(15, length))
        windows.append(Window(number, ids, 15, np.zeros((length - 15, 2), np.int32), start, min(start + 2, length - 1)))
    return windows


class BenchData(NamedTuple):
    """Windows to measure on, and others of the same kind."""

    name: str
    windows: list[Window]
    objective: Objective = SPANS
    spare: Sequence[Window] = ()

    def draw(self, seed: int) -> list[Window]:
        """Return as many windows, drawn from all: batches of these have shapes that those of others had not."""
        windows = [*self.windows, *self.spare]
        drawn = np.random.default_rng(seed).permutation(len(windows))[: len(self.windows)]
        return [windows[place] for place in drawn]


def read_bench_data(data: str, encoder: Encoder, count: int, spare: int = 0) -> BenchData:
    """Make windows like SQuAD's, or read the first of a SQuAD file or of RTE (train.tsv).

    So many more are `spare`, as far as a file has them.
    """
    name, objective, every = Path(data).name.split(".")[0], SPANS, count + spare
    if data == "squad":
        windows = windows_like_squad(every, encoder.model.config.vocab_size)
    elif Path(data).suffix == ".tsv":
        read = read_labelled("rte", data, DataConfig())
        windows = cut_rows(read.split.examples[:every], encoder.tokenizer, 384, "class")
        name, objective = "rte", Objective(CLASSES, len(read.labels))
    else:
        questions = read_squad(data).examples[:every]
        windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    return BenchData(name, windows[:count], objective, windows[count:every])
