"""A split that is to be answered: what becomes of logits, for each kind of task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from transformers import PreTrainedTokenizerBase

from bertvision.features.cut import cut_examples
from bertvision.features.windows import Window, WindowConfig
from bertvision.metrics.squad import Scores
from bertvision.predictions.ensemble import How
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.progress import SILENT, Progress
from bertvision.stages.paper_scores import paper_gold
from bertvision.stages.row_answering import RowAnswering, TagAnswering
from bertvision.stages.span_answering import SpanAnswering
from bertvision.tasks.task import Split, Task


@runtime_checkable
class Answering(Protocol):
    """Examples in windows, and the way from their logits to answers, files and scores."""

    @property
    def split(self) -> Split[Any]:
        """Give the examples."""
        ...

    @property
    def windows(self) -> Sequence[Window]:
        """Give their windows."""
        ...

    def combine(self, members: Sequence[Logits], how: How, weights: Sequence[float] | None) -> Logits:
        """Make one model's logits of several."""
        ...

    def answer(self, logits: Logits) -> Any:  # noqa: ANN401 (what the kind of task calls an answer)
        """Give an answer to every example."""
        ...

    def write(self, folder: Path, answers: Any, logits: Logits) -> None:  # noqa: ANN401 (what `answer` gave)
        """Write a prediction folder."""
        ...

    def score(self, answers: Any, logits: Logits, how: How | None = None) -> Scores:  # noqa: ANN401 (from `answer`)
        """Compare answers with the golds; `how` tells in which way an ensemble's logits were made."""
        ...


def open_answering(
    task: Task,
    split: Split[Any],
    tokenizer: PreTrainedTokenizerBase,
    windows: WindowConfig,
    answers: AnswerConfig,
    *,
    part: str = "",
    progress: Progress = SILENT,
) -> Answering:
    """Cut a split and get it ready to be answered; `part` names one beside dev, such as `mismatched`."""
    cut = cut_examples(task.kind, split.examples, task.labels, tokenizer, windows, labelled=False, progress=progress)
    match task.kind:
        case "span":
            gold = paper_gold(answers, cut, split.examples, tokenizer) if not part else None
            return SpanAnswering(split, cut, answers, task.has_null, gold)
        case "tags":
            return TagAnswering(split, cut, task.labels)
        case _:
            return RowAnswering(split, cut, task.name, task.labels, part)
