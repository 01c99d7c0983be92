"""Examples of any kind of task -> windows."""

from collections.abc import Sequence
from typing import Any

from bertvision.features.choices import cut_choices
from bertvision.features.sentences import cut_rows
from bertvision.features.tokens import Tokenizer
from bertvision.features.windows import Window, WindowConfig, cut_windows
from bertvision.features.words import cut_words
from bertvision.progress import SILENT, Progress
from bertvision.tasks.task import Kind


def cut_examples(
    kind: Kind,
    examples: Sequence[Any],
    labels: Sequence[str],
    tokenizer: Tokenizer,
    config: WindowConfig,
    *,
    labelled: bool = True,
    progress: Progress = SILENT,
) -> list[Window]:
    """Cut examples as their kind of task wants them; without `labelled` their labels are not looked at where they may
    be missing or new.
    """
    match kind:
        case "span" | "answerable":
            is_class = kind == "answerable"
            return cut_windows(
                examples, tokenizer, config, labelled=labelled, answerable=is_class and labelled, progress=progress
            )
        case "class" | "labels" | "number":
            return cut_rows(examples, tokenizer, config.max_length, kind, progress)
        case "choice":
            return cut_choices(examples, tokenizer, config.max_length, progress)
        case "tags":
            return cut_words(
                examples,
                labels,
                tokenizer,
                config,
                document_context=config.document_context,
                labelled=labelled,
                progress=progress,
            )
