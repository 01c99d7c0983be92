"""A split that is to be answered: its examples, cut into windows."""

from typing import Any

from bertvision.data.example import Split
from bertvision.kinds.kind import Answering
from bertvision.predictions.prediction import AnswerConfig
from bertvision.progress import SILENT, Progress
from bertvision.tasks import Task
from bertvision.windows.tokens import Tokenizer
from bertvision.windows.window import WindowConfig


def open_answering(
    task: Task,
    split: Split[Any],
    tokenizer: Tokenizer,
    windows: WindowConfig,
    answers: AnswerConfig,
    *,
    part: str = "",
    progress: Progress = SILENT,
) -> Answering:
    """Cut a split and get it ready to be answered; `part` names one beside dev, such as `mismatched`."""
    cut = task.kind.cut(split.examples, task.labels, tokenizer, windows, labelled=False, progress=progress)
    extra = None if part else task.kind.extra_golds(answers, cut, split.examples, tokenizer)
    return Answering(task.name, task.info, task.labels, split, cut, answers, part, extra)
