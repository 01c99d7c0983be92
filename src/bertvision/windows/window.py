"""Question and context -> overlapping windows, keeping character offsets.

Question and context are tokenised once and the windows are cut here from those ids: the overflow call of the
tokenizers library gave 12,134 windows for SQuAD 2.0 dev in one version and 12,083 in another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from bertvision.data.example import Question
from bertvision.errors import DataError
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config
from bertvision.windows.tokens import Int32s, Layout, Tokenizer, read_layout, slices, token_ids, tokenise

Label = int | float | tuple[int, ...] | Int32s
IGNORED = -100  # the label of a token that has none, as torch's cross-entropy has it
NO_WORD = -1


class WindowConfig(Config):
    """How long texts are cut."""

    max_length: int = Field(384, ge=8)
    stride: int = Field(128, ge=0)  # if not given: a third of max_length, at most 128
    stride_as: Literal["overlap", "step"] = "overlap"  # tokens shared by two windows, or between two windows' starts
    max_question_length: int | None = Field(64, ge=1)  # longer questions lose their end; null: never
    mask_question: bool = False  # spans: training leaves out what can be no answer, question and separators
    document_context: bool = False  # tags: fill a sentence's window up with its neighbours in the document

    @model_validator(mode="before")
    @classmethod
    def _has_a_stride(cls, given: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
        """Let short windows, which most tasks have, share a third where nobody says how much."""
        if not isinstance(given, dict) or "stride" in given or not isinstance(given.get("max_length"), int):
            return given
        return {**given, "stride": min(128, given["max_length"] // 3)}

    @model_validator(mode="after")
    def _leaves_room(self) -> "WindowConfig":
        if self.stride_as == "overlap" and self.stride >= self.max_length - 4:
            raise ValueError(
                f"an overlap (stride) of {self.stride} leaves no room in windows of {self.max_length} tokens"
            )
        if self.stride_as == "step" and self.stride == 0:
            raise ValueError("a step (stride) of 0 never reaches the end of a context")
        return self


@dataclass(frozen=True, slots=True)
class Window:
    """One row for the encoder: a slice of a question's context behind the question, one or two texts, or words."""

    example: int  # which example of the split
    ids: Int32s
    context_at: int  # position of the first token of the context or second text; the length where there is none
    offsets: Int32s  # characters [start, end) in the context of each context token; of no token for other tasks
    start: int = 0  # label: positions of the answer's first and last token; 0, 0 where this window does not hold it
    end: int = 0
    # Its class, the right ending, its number, a 0 or 1 for each label, or for each token its tag (or IGNORED). Where a
    # window was made of an unlabelled example, it means nothing.
    label: Label = 0
    tokens_left_out: int = 0  # of its texts, which were longer than the window and lost their end
    words: Int32s | None = None  # for tags: of each token, the word whose tag is read from it, or NO_WORD
    first: int = 0  # which token of a text that is cut into several windows this one begins with

    def __len__(self) -> int:
        return len(self.ids)


def cut_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    config: WindowConfig,
    *,
    labelled: bool = True,
    answerable: bool = False,
    progress: Progress = SILENT,
) -> list[Window]:
    """Cut every question's context into windows of at most `max_length` tokens, labelled with the first answer.

    With `answerable` a window's class is told too: 0 where it holds the answer, 1 where it does not.
    """
    layout = read_layout(tokenizer)
    contexts = {text: None for question in questions for text in (question.context,)}
    offsets_by_context: dict[str, tuple[Int32s, Int32s]] = {}
    windows: list[Window] = []
    with progress.bar("tokenise", len(contexts) + len(questions)) as bar:
        for texts in slices(list(contexts)):
            offsets_by_context.update(zip(texts, tokenise(tokenizer, texts), strict=True))
            bar.advance(len(texts))
        numbers = count()
        for part in slices(questions):
            tokenised = token_ids(tokenizer, [question.text.lstrip() for question in part])
            for question, question_ids in zip(part, tokenised, strict=True):
                ids, offsets = offsets_by_context[question.context]
                windows += _cut(
                    question, next(numbers), question_ids, ids, offsets, layout, config, labelled, answerable
                )
            bar.advance(len(part))
    return windows


def window_starts(length: int, capacity: int, config: WindowConfig) -> range:
    """Return the first context token of each window: every token is in one, and the last one ends the context."""
    step = capacity - config.stride if config.stride_as == "overlap" else min(config.stride, capacity)
    return range(0, max(length - capacity, 0) + step, step)


def answer_tokens(offsets: Int32s, start: int, end: int) -> tuple[int, int] | None:
    """Find the first and last token that hold characters [start, end); None where no token does."""
    first = int(offsets[:, 1].searchsorted(start, side="right"))
    last = int(offsets[:, 0].searchsorted(end, side="left")) - 1
    return (first, last) if first <= last else None


def _cut(
    question: Question,
    number: int,
    question_ids: Int32s,
    ids: Int32s,
    offsets: Int32s,
    layout: Layout,
    config: WindowConfig,
    labelled: bool,
    answerable: bool,
) -> list[Window]:
    if len(ids) == 0:
        raise DataError(
            f"question {question.id!r}: its context {question.context[:40]!r} holds no token of this encoder"
        )
    question_ids = question_ids[: config.max_question_length]
    capacity = config.max_length - layout.special - len(question_ids)
    overlap = config.stride if config.stride_as == "overlap" else 0
    if capacity <= overlap:
        raise DataError(
            f"question {question.id!r} has {len(question_ids)} tokens, which leaves {max(capacity, 0)} of "
            f"{config.max_length} for its context and an overlap of {overlap}; raise windows.max_length, or lower "
            "windows.stride or windows.max_question_length"
        )
    label = _label(question, offsets) if labelled else None
    head = np.concatenate([layout.before, question_ids, layout.between])
    windows = []
    for first in window_starts(len(ids), capacity, config):
        part = slice(first, first + capacity)
        start, end = _within(label, first, min(first + capacity, len(ids)), len(head))
        row = np.concatenate([head, ids[part], layout.after])
        is_without = int(answerable and start == 0)
        windows.append(Window(number, row, len(head), offsets[part], start, end, is_without, first=first))
    return windows


def _label(question: Question, offsets: Int32s) -> tuple[int, int] | None:
    if question.is_impossible:
        return None
    answer = question.answers[0]
    text = answer.text.strip()
    start = answer.start + answer.text.index(text)
    tokens = answer_tokens(offsets, start, start + len(text))
    if tokens is None:
        raise DataError(
            f"question {question.id!r}: no token of this encoder holds its answer {answer.text!r}; "
            "drop the question or choose another encoder"
        )
    return tokens


def _within(label: tuple[int, int] | None, first: int, stop: int, context_at: int) -> tuple[int, int]:
    if label is None or label[0] < first or label[1] >= stop:
        return 0, 0
    return label[0] - first + context_at, label[1] - first + context_at
