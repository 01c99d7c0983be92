"""Data and a tokenizer -> what training on them would mean."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertvision.experiment import build_experiment
from bertvision.kinds.kind import Cutting
from bertvision.progress import SILENT, Progress
from bertvision.stages.prepare import alike_labels
from bertvision.tables import Table
from bertvision.tasks import TASKS, read_labelled, task_name
from bertvision.windows.plan import BatchConfig, lengths_of, padding_share, plan_epoch

PERCENTILES = (1, 5, 25, 50, 75, 95, 99, 100)


@dataclass(frozen=True)
class Inspection:
    """Counts of one file under one tokenizer."""

    name: str
    task: str
    examples: int
    dropped: int
    windows: int
    examples_with_several_windows: int
    longer_than_a_window: int  # examples that lose their end
    labels: dict[str, int]  # examples (or, for tags, words) of each; empty for numbers
    contexts: int | None  # of questions
    windows_without_answer: int | None
    mean_tokens: float
    padding: dict[str, float]  # share of computed tokens, by batch
    lengths: dict[str, list[int]]  # percentiles of tokens
    notes: list[str]  # on what may be slips

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**asdict(self), "percentiles": list(PERCENTILES)}

    def as_tables(self) -> tuple[Table, Table]:
        """Lay out the counts, and the percentiles of lengths."""
        percentiles = ("max" if each == 100 else f"{each}%" for each in PERCENTILES)
        lengths = tuple((what, *(f"{value:,}" for value in values)) for what, values in self.lengths.items())
        return Table("", ("what", "value"), tuple(self._counts())), Table("", ("tokens", *percentiles), lengths)

    def _counts(self) -> list[tuple[str, str]]:
        total = sum(self.labels.values()) if TASKS[task_name(self.task)].kind.labels_words else self.examples
        labels = [
            (f"labelled {label}", f"{count:,} ({100 * count / total:.1f}%)") for label, count in self.labels.items()
        ]
        counts: dict[str, int | None] = {
            "examples": self.examples,
            "bad examples left out": self.dropped,
            "contexts": self.contexts,
            "windows": self.windows,
            "examples with several windows": self.examples_with_several_windows,
            "examples that lose their end": self.longer_than_a_window,
            "windows labelled as no answer": self.windows_without_answer,
        }
        return [
            *((what, f"{count:,}") for what, count in counts.items() if count is not None),
            *labels,
            ("mean tokens a window", f"{self.mean_tokens:.1f}"),
            *((f"padding with batch {batch}", f"{100 * share:.1f}%") for batch, share in self.padding.items()),
        ]


def inspect_file(
    data: str, encoder: str, task: str = "squad2", overrides: Sequence[str] = (), progress: Progress = SILENT
) -> Inspection:
    """Read and cut a file as an experiment with these settings would."""
    experiment = build_experiment({"task": task, "heads": {"train": []}}, overrides, "settings")
    name, kind = experiment.task, TASKS[experiment.task].kind
    split, labels = read_labelled(name, data, experiment.data, hub_split="train")
    from bertvision.encoder.load import load_tokenizer  # transformers: the file is checked before it

    how = Cutting(load_tokenizer(encoder), experiment.windows, progress=progress)
    windows = kind.cut(split.examples, labels, how)
    lengths, group = lengths_of(windows), kind.group(labels)
    per_example = Counter(window.example for window in windows)
    batches = {"{tokens: 16384}": BatchConfig(tokens=16384), "{windows: 4}": BatchConfig(windows=4)}
    asks = kind.asks_questions
    whole = {window.example: window.context_at for window in windows}
    return Inspection(
        name=split.name,
        task=name,
        examples=len(split.examples),
        dropped=split.dropped,
        windows=len(windows),
        examples_with_several_windows=sum(count > group for count in per_example.values()),
        longer_than_a_window=len({window.example for window in windows if window.tokens_left_out}),
        labels=kind.count_labels(split.examples, labels),
        contexts=len({question.context for question in split.examples}) if asks else None,
        windows_without_answer=sum(window.end == 0 for window in windows) if asks else None,
        mean_tokens=float(lengths.mean()),
        padding={
            batch: padding_share(lengths, plan_epoch(lengths, size, 1, 0, group)) for batch, size in batches.items()
        },
        lengths={"window": _percentiles(lengths)}
        | ({"question and special tokens": _percentiles(list(whole.values()))} if asks else {}),
        notes=alike_labels(labels),
    )


def _percentiles(values: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    return [int(value) for value in np.percentile(values, PERCENTILES, method="higher")]
