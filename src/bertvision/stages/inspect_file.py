"""Data and a tokenizer -> what training on them would mean."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertvision.encoder.load import load_tokenizer
from bertvision.experiment import build_experiment
from bertvision.features.batches import BatchConfig, lengths_of, padding_share, plan_epoch
from bertvision.features.windows import cut_windows
from bertvision.progress import SILENT, Progress
from bertvision.tasks.squad import read_squad

PERCENTILES = (1, 5, 25, 50, 75, 95, 99, 100)


@dataclass(frozen=True)
class Inspection:
    """Counts of one file under one tokenizer."""

    name: str
    questions: int
    unanswerable: int
    dropped: int
    contexts: int
    windows: int
    questions_with_several_windows: int
    windows_without_answer: int
    mean_tokens: float
    padding: dict[str, float]  # share of computed tokens, by batch
    lengths: dict[str, list[int]]  # percentiles of tokens

    @property
    def percentiles(self) -> tuple[str, ...]:
        """Name the columns of the lengths."""
        return tuple("max" if each == 100 else f"{each}%" for each in PERCENTILES)

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON values."""
        return {**asdict(self), "percentiles": list(PERCENTILES)}

    def as_rows(self) -> list[tuple[str, str]]:
        """Give the counts as a table."""
        share = 100 * self.unanswerable / self.questions
        return [
            ("questions", f"{self.questions:,}"),
            ("unanswerable", f"{self.unanswerable:,} ({share:.1f}%)"),
            ("bad questions left out", f"{self.dropped:,}"),
            ("contexts", f"{self.contexts:,}"),
            ("windows", f"{self.windows:,}"),
            ("questions with several windows", f"{self.questions_with_several_windows:,}"),
            ("windows labelled as no answer", f"{self.windows_without_answer:,}"),
            ("mean tokens a window", f"{self.mean_tokens:.1f}"),
            *((f"padding with batch {batch}", f"{100 * share:.1f}%") for batch, share in self.padding.items()),
        ]

    def length_rows(self) -> list[tuple[str, ...]]:
        """Give the percentiles as a table."""
        return [(what, *(f"{value:,}" for value in values)) for what, values in self.lengths.items()]


def inspect_file(data: str, encoder: str, overrides: Sequence[str] = (), progress: Progress = SILENT) -> Inspection:
    """Read and cut a file as an experiment with these settings would."""
    experiment = build_experiment({}, overrides, "--set")
    split = read_squad(data, on_bad=experiment.data.on_bad)
    windows = cut_windows(split.examples, load_tokenizer(encoder), experiment.windows, progress=progress)
    lengths = lengths_of(windows)
    per_question = Counter(window.example for window in windows)
    whole = {window.example: window.context_at for window in windows}
    batches = {"{tokens: 16384}": BatchConfig(tokens=16384), "{windows: 4}": BatchConfig(windows=4)}
    return Inspection(
        name=split.name,
        questions=len(split.examples),
        unanswerable=sum(question.is_impossible for question in split.examples),
        dropped=split.dropped,
        contexts=len({question.context for question in split.examples}),
        windows=len(windows),
        questions_with_several_windows=sum(count > 1 for count in per_question.values()),
        windows_without_answer=sum(window.end == 0 for window in windows),
        mean_tokens=float(lengths.mean()),
        padding={name: padding_share(lengths, plan_epoch(lengths, batch, 1, 0)) for name, batch in batches.items()},
        lengths={"window": _percentiles(lengths), "question and special tokens": _percentiles(list(whole.values()))},
    )


def _percentiles(values: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    return [int(value) for value in np.percentile(values, PERCENTILES, method="higher")]
