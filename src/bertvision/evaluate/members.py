"""Prediction folders with logits -> members of an ensemble, checked to have answered the same questions."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertvision.errors import DataError, FolderError
from bertvision.predictions.logits import Logits, TokenGrid, load_logits
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.spans import decode_spans
from bertvision.predictions.texts import TextGrid, text_grid
from bertvision.tasks.task import Question

LOGITS = "logits.safetensors"


class Member(NamedTuple):
    """One model's logits for a file's questions."""

    folder: Path
    texts: TextGrid
    logits: Logits
    has_null: bool

    def answers(self, config: AnswerConfig) -> list[Prediction]:
        """Answer the questions with this model alone."""
        return decode_spans(self.texts, self.logits, config, has_null=self.has_null)


def read_members(folders: Sequence[Path], data: str, questions: Sequence[Question]) -> list[Member]:
    """Read prediction folders; `questions` are those of the file `data`, which they must have answered."""
    members: list[Member] = []
    for folder in folders:
        grid, logits = _read_logits(folder)
        if members:
            _check_same_questions(members[0], folder, grid)
        else:
            _check_answered(folder, grid, data, questions)
        _check_contexts(folder, grid, data, questions)
        texts = _texts(grid, questions, members)
        members.append(Member(folder, texts, logits, (folder / "null_odds.json").exists()))
    _check_same_task(members)
    return members


def short_names(folders: Sequence[Path]) -> list[str]:
    """Name different folders by as many of their last parts as tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    lengths = range(1, max(map(len, parts)))
    enough = next((length for length in lengths if len({each[-length:] for each in parts}) == len(parts)), None)
    return [str(Path(*(each if enough is None else each[-enough:]))) for each in parts]


def _read_logits(folder: Path) -> tuple[TokenGrid, Logits]:
    if not (folder / LOGITS).is_file():
        raise FolderError(
            f"{folder}: no {LOGITS} in it; give OUT/predictions/FRACTION/ROW or what `bertvision predict --out` wrote"
        )
    grid, logits = load_logits(folder / LOGITS)
    if len(logits) != len(grid.offsets) or len(grid.offsets) != grid.window_at[-1]:
        raise FolderError(f"{folder / LOGITS}: its logits do not fit its tokens; predict again")
    return grid, logits


def _texts(grid: TokenGrid, questions: Sequence[Question], others: Sequence[Member]) -> TextGrid:
    """Join a grid with its contexts, or take what another member with the same grid has."""
    for other in others:
        if grid.difference(other.texts.tokens) is None:
            return other.texts
    return text_grid(grid, [question.context for question in questions])


def _check_answered(folder: Path, grid: TokenGrid, data: str, questions: Sequence[Question]) -> None:
    asked = tuple(question.id for question in questions)
    if odd := set(asked) ^ set(grid.question_ids):
        has = "has no" if min(odd) in asked else "has an"
        raise DataError(
            f"{data}: not the file that {folder} answered, which {has} answer to question {min(odd)!r}; give that file"
        )
    if asked != grid.question_ids:
        raise DataError(f"{data}: has the questions in another order than {folder} answered them; predict again")


def _check_contexts(folder: Path, grid: TokenGrid, data: str, questions: Sequence[Question]) -> None:
    """Refuse tokens that lie beyond the end of their context."""
    lengths = np.array([len(question.context) for question in questions])
    last = np.maximum.reduceat(grid.offsets[:, 1], grid.window_at[:-1])
    if len(beyond := np.flatnonzero(last > lengths[grid.question_of])):
        question = grid.question_ids[grid.question_of[beyond[0]]]
        raise DataError(f"{data}: the context of question {question!r} is not the one {folder} answered; predict again")


def _check_same_questions(first: Member, folder: Path, grid: TokenGrid) -> None:
    if first.texts.tokens.question_ids != grid.question_ids:
        raise DataError(f"{folder} and {first.folder} answer different questions; give folders of one question file")


def _check_same_task(members: Sequence[Member]) -> None:
    without = [member for member in members if not member.has_null]
    if without and len(without) < len(members):
        raise DataError(
            f"{without[0].folder}: has no null_odds.json, as for SQuAD 1.1, and other members have; "
            "combine models of one task"
        )
