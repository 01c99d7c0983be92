"""Several models' logits -> one's, where they scored the same tokens or rows; else several models' answers -> one's.

The latter by the characters of the context, for models whose tokens differ; members are read from prediction folders.
"""

import math
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.predictions.logits import Logits, TextGrid, TokenGrid, load_logits, sigmoid, text_grid
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.spans import Ranking, choose_answers, decode_spans, first_of_each, rank_nothing, rank_spans

How = Literal["max", "mean", "logits", "weighted"]
Weights = Sequence[float] | None  # one for each member, where they are `weighted`
Floats = npt.NDArray[np.float64]
LEAST = 1e-12  # a probability that is written as 0 or 1 has no logit
LOGITS = "logits.safetensors"
SPANS_OF_A_MEMBER = 20  # at least, so that asking for fewer candidates does not change what members agree on
MemberScores = npt.NDArray[np.float64]  # [answer, member]


def combine_logits(grid: TokenGrid, members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Combine models that scored the same tokens.

    With p the softmax of a member's starts (or ends) over the tokens of a window, and w its share of the weights:

    - `max`: log max p, the largest of the members' probabilities, token by token (the papers' way);
    - `mean`: log (sum of p / number of members);
    - `weighted`: log (sum of w p), where the shares w are the weights divided by their sum;
    - `logits`: the mean of the logits as they are.

    Probabilities are handed back as logarithms, so that decoding adds them like logits.
    """
    if any(member.shape[1] > 2 for member in members):
        raise SettingsError(
            "a member of the ensemble scores pairs of start and end (readout: joint), which cannot be combined token "
            "by token; leave it out"
        )
    shares = shares_of(how, weights, len(members))
    combined: Logits
    if how == "logits":
        combined = np.mean(members, axis=0, dtype=np.float32)
    elif how == "max":
        combined = np.maximum.reduce([log_softmax(grid, member) for member in members])
    else:
        logs = zip(members, np.log(shares).astype(np.float32), strict=True)
        combined = np.logaddexp.reduce([log_softmax(grid, member) + log for member, log in logs])
    return combined


def combine_softmax(members: Sequence[Logits], how: How, weights: Weights = None, group: int | None = None) -> Logits:
    """Combine models that scored the same rows, [row, column], as `combine_logits` does for spans.

    Probabilities are a softmax over a row's columns, or over the `group` rows of a choice.
    """
    shares = shares_of(how, weights, len(members))
    stacked = np.stack(members).astype(np.float64)
    if how == "logits":
        return _float32(np.einsum("m,mrc->rc", shares, stacked))
    rows = stacked if group is None else stacked.reshape(len(members), -1, group)
    powers = np.exp(rows - rows.max(axis=2, keepdims=True))
    joined = _join(powers / powers.sum(axis=2, keepdims=True), how, shares)
    return _float32(np.log(np.maximum(joined, LEAST)).reshape(members[0].shape))


def combine_sigmoid(members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Combine models that scored the same labels, [row, label], each of which has a probability of its own."""
    shares = shares_of(how, weights, len(members))
    stacked = np.stack(members).astype(np.float64)
    if how == "logits":
        return _float32(np.einsum("m,mrc->rc", shares, stacked))
    joined = np.clip(_join(sigmoid(stacked), how, shares), LEAST, 1 - LEAST)
    return _float32(np.log(joined / (1 - joined)))


def combine_numbers(members: Sequence[Logits], how: How, weights: Weights = None) -> Logits:
    """Average models' numbers, [row, 1], by weights if there are any; they have no probabilities."""
    if how == "max":
        raise SettingsError("numbers have no probabilities whose largest could be taken; use method: mean or weighted")
    shares = shares_of(how, weights, len(members))
    return _float32(np.einsum("m,mrc->rc", shares, np.stack(members).astype(np.float64)))


def shares_of(how: How, weights: Weights, members: int) -> npt.NDArray[np.float64]:
    """Return what each member counts for, one in sum: the same for all, unless they are `weighted`."""
    if how != "weighted" and weights is not None:
        raise SettingsError(f"`{how}` takes no weights; leave them out or choose `weighted`")
    if weights is None:
        if how == "weighted":
            raise SettingsError(f"`weighted` needs weights, one for each of the {members} members")
        return np.full(members, 1 / members)
    if len(weights) != members:
        raise SettingsError(f"got {len(weights)} weights for {members} members; give one for each")
    if bad := [weight for weight in weights if not 0 < weight < math.inf]:
        raise SettingsError(f"the weight {bad[0]:g} is no positive number; leave out a member that should not count")
    return np.array(weights, dtype=np.float64) / sum(weights)


def log_softmax(grid: TokenGrid, logits: Logits) -> Logits:
    """Normalise starts and ends within every window."""
    at, lengths = grid.window_at[:-1], np.diff(grid.window_at)
    shifted = logits - np.repeat(np.maximum.reduceat(logits, at), lengths, axis=0)
    totals = np.log(np.add.reduceat(np.exp(shifted), at))
    normalised: Logits = (shifted - np.repeat(totals, lengths, axis=0)).astype(np.float32)
    return normalised


def _join(probabilities: Floats, how: How, shares: Floats) -> Floats:
    joined: Floats = probabilities.max(axis=0) if how == "max" else np.einsum("m,mrc->rc", shares, probabilities)
    return joined


def _float32(values: Floats) -> Logits:
    return values.astype(np.float32)


class ScoredText(NamedTuple):
    """One model's logits, on a grid of its own."""

    grid: TextGrid
    logits: Logits


class SpanMember(NamedTuple):
    """One model's logits for a file's questions."""

    folder: Path
    texts: TextGrid
    logits: Logits
    has_null: bool

    def answers(self, config: AnswerConfig) -> list[Prediction]:
        """Answer the questions with this model alone."""
        return decode_spans(self.texts, self.logits, config, has_null=self.has_null)


class _United(NamedTuple):
    """Every answer that a member lists, once, sorted by question; "no answer" has the characters 0 to 0."""

    answers: Ranking
    listed_at: npt.NDArray[np.int64]  # where it stands first in the members' lists, one list after the other
    scores: MemberScores  # -inf where the member does not list it


def combine_spans(
    members: Sequence[ScoredText],
    how: How,
    config: AnswerConfig,
    weights: Weights = None,
    *,
    has_null: bool,
) -> list[Prediction]:
    """Combine models of any tokenizers, windows and readouts that answered the same questions.

    For every question each member lists its best spans, exactly searched, as many as `n_best` but at least 20, and "no
    answer". Spans with the same characters are one. With p the softmax of a member's scores over its list, and 0 for
    what it does not list, an answer's probability is

    - `max`: the largest p of the members;
    - `mean`: the sum of p, divided by the number of members;
    - `weighted`: the sum of w p, where the shares w are the weights divided by their sum.

    The null odds are log p("no answer") - log p(best span). Half of log p stands as start and as end logit, because
    such an answer's score does not come from a start and an end.
    """
    if how == "logits":
        raise SettingsError(
            "logits of different tokenizers, windows or readouts have no common scale; choose max, mean or weighted"
        )
    shares = shares_of(how, weights, len(members))
    grid = members[0].grid
    for member in members[1:]:
        if (member.grid.tokens.question_ids, member.grid.text) != (grid.tokens.question_ids, grid.text):
            raise DataError("members of an ensemble answered different questions; combine answers to one file")
    united = _unite([_list_answers(member, config, has_null) for member in members])
    logs = _log_softmax(united.scores, united.answers.questions)
    combined = logs.max(axis=1) if how == "max" else np.logaddexp.reduce(logs + np.log(shares), axis=1)
    ranked = _with_scores(united.answers, combined)
    is_null = ranked.bounds[:, 1] == 0
    order = np.lexsort((united.listed_at, -combined, ranked.questions))
    spans = _cut(ranked.take(order[~is_null[order]]), config.n_best)
    return choose_answers(grid, spans, ranked.take(np.flatnonzero(is_null)) if has_null else None, config)


def _list_answers(member: ScoredText, config: AnswerConfig, has_null: bool) -> Ranking:
    listed = config.model_copy(update={"n_best": max(config.n_best, SPANS_OF_A_MEMBER)})
    spans = rank_spans(member.grid, member.logits, listed)
    return spans.with_more(rank_nothing(member.grid.tokens, member.logits)) if has_null else spans


def _unite(lists: Sequence[Ranking]) -> _United:
    """Put the members' lists side by side; a span that two windows show keeps its higher score."""
    member = np.repeat(np.arange(len(lists)), [len(each.questions) for each in lists])
    whole = reduce(Ranking.with_more, lists)
    order = np.lexsort((*whole.bounds.T, whole.questions))  # stable: of equal spans the first listed is the first
    keys = np.column_stack([whole.questions, whole.bounds])[order]
    is_new = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))
    scores = np.full((int(is_new.sum()), len(lists)), -np.inf)
    np.maximum.at(scores, (np.cumsum(is_new) - 1, member[order]), whole.scores[order])
    return _United(whole.take(order[is_new]), order[is_new], scores)


def _log_softmax(scores: MemberScores, questions: npt.NDArray[np.int64]) -> MemberScores:
    """Normalise each member's scores within every question."""
    at = first_of_each(questions)
    shifted = scores - np.maximum.reduceat(scores, at)[questions]
    normalised: MemberScores = shifted - np.log(np.add.reduceat(np.exp(shifted), at))[questions]
    return normalised


def _with_scores(answers: Ranking, scores: npt.NDArray[np.float64]) -> Ranking:
    return answers._replace(logits=np.stack([scores / 2, scores / 2, np.zeros_like(scores)], axis=1))


def _cut(ranked: Ranking, count: int) -> Ranking:
    """Keep the first answers of every question."""
    place = np.arange(len(ranked.questions)) - first_of_each(ranked.questions)[ranked.questions]
    return ranked.take(np.flatnonzero(place < count))


def read_members(folders: Sequence[Path], data: str, questions: Sequence[Question]) -> list[SpanMember]:
    """Read prediction folders; `questions` are those of the file `data`, which they must have answered."""
    members: list[SpanMember] = []
    for folder in folders:
        grid, logits = _read_logits(folder)
        if members:
            _check_same_questions(members[0], folder, grid)
        else:
            _check_answered(folder, grid, data, questions)
        _check_contexts(folder, grid, data, questions)
        texts = _shared_texts(grid, questions, members)
        members.append(SpanMember(folder, texts, logits, (folder / "null_odds.json").exists()))
    _check_same_task(members)
    return members


def _read_logits(folder: Path) -> tuple[TokenGrid, Logits]:
    grid, logits = load_logits(folder / LOGITS)
    if len(logits) != len(grid.offsets) or len(grid.offsets) != grid.window_at[-1]:
        raise FolderError(f"{folder / LOGITS}: its logits do not fit its tokens; predict again")
    return grid, logits


def _shared_texts(grid: TokenGrid, questions: Sequence[Question], others: Sequence[SpanMember]) -> TextGrid:
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


def _check_same_questions(first: SpanMember, folder: Path, grid: TokenGrid) -> None:
    if first.texts.tokens.question_ids != grid.question_ids:
        raise DataError(f"{folder} and {first.folder} answer different questions; give folders of one question file")


def _check_same_task(members: Sequence[SpanMember]) -> None:
    without = [member for member in members if not member.has_null]
    if without and len(without) < len(members):
        raise DataError(
            f"{without[0].folder}: has no null_odds.json, as for SQuAD 1.1, and other members have; "
            "combine models of one task"
        )
