"""A prediction folder and a gold file -> how good its threshold and probabilities are, before and after tuning.

And the reader decoder's answers to questions whose golds are known: what they score; `fit_decision` calibrates them.
Needs no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question, Split
from bertvision.data.split import hold_out
from bertvision.data.squad import read_squad
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.kinds.kind import Answering
from bertvision.predictions.files import PredictionFolder, read_prediction_folder
from bertvision.predictions.logits import Logits, TextGrid
from bertvision.predictions.pooled import pool_answers
from bertvision.predictions.prediction import AnswerConfig
from bertvision.run_folder import parse_run_path
from bertvision.scoring.answers import score_answers
from bertvision.scoring.calibration import (
    BINS,
    Bin,
    Decision,
    Judgement,
    fit_decision,
    judge,
    scores_at,
    tune_threshold,
)
from bertvision.scoring.confidence import Answers, Bools, build_answers
from bertvision.scoring.squad import Scores, answer_worths, score_squad1
from bertvision.tables import Page, Table, counted, number_cell


class HeldOut(NamedTuple):
    """A model's answers to questions that it did not learn from, and their golds."""

    folder: Path
    gold: str


@dataclass(frozen=True)
class CalibrationReport:
    """A model's answers judged as they are and as tuning on other questions makes them."""

    folder: str
    questions: int
    fitted_on: str  # a sentence
    decisions: list[Decision]  # one, or one for each half
    before: Judgement
    after: Judgement
    best_f1: float
    best_threshold: float
    decision_before: Decision = Decision()
    min_accuracy: float | None = None  # that the threshold was chosen for; None: the best F1

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "folder": self.folder,
            "questions": self.questions,
            "fitted_on": self.fitted_on,
            "before": _plain(self.before, [self.decision_before]),
            "after": _plain(self.after, self.decisions),
            "best_f1": self.best_f1,
            "best_f1_thresh": self.best_threshold,
            "tuned_below_best_f1": self.best_f1 - self.after.f1,
        }

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        head = (counted(self.questions, "question"), self.folder, self.fitted_on)
        return Page(head, [self._scores(), _bins_section(self.before.bins, self.after.bins)], [])

    def _scores(self) -> Table:
        note = (
            f"The tuned threshold's F1 is {self.best_f1 - self.after.f1:.2f} points below the best, "
            f"{self.best_f1:.2f} at {self.best_threshold:.2f}, which nobody knows without these very answers. ECE: "
            "expected calibration error; AURC: mean share of wrong answers among the most confident ones, over all "
            "coverages; both from 0 (best) to 1."
        )
        header: tuple[str, ...] = ("", "threshold", "EM", "F1", "ECE", "AURC", "temperature")
        rows: tuple[tuple[str, ...], ...] = (
            _row("before", self.before, [self.decision_before]),
            _row("after", self.after, self.decisions),
        )
        if self.min_accuracy is not None:
            header = (*header, "answered", "right")
            rows = tuple((*row, *_given(each)) for row, each in zip(rows, (self.before, self.after), strict=True))
            note += " Answered: percent of the questions that are given an answer; right: percent of these answers."
        return Table("Threshold and probabilities", header, rows, note)


def calibrate_folder(
    folder: Path, gold: str, held_out: Path | None = None, held_out_gold: str | None = None
) -> CalibrationReport:
    """Tune threshold and temperature on held-out answers, or on one half of the articles for the other."""
    split = read_squad(gold, answers="texts", hub_split="validation")
    model = _read_folder(folder)
    answers = _answers(model, split.examples)
    if (other := _find_held_out(folder, held_out, held_out_gold)) is not None:
        decisions = [fit_decision(_held_out_answers(other, split.examples))]
        parts, fitted_on = [answers], f"tuned on {other.folder}"
    else:
        parts = [_answers(model, half, is_part=True) for half in _halves(gold, split)]
        decisions = [fit_decision(part) for part in reversed(parts)]
        fitted_on = "no held-out answers: each half of the articles is tuned on the other half"
    return CalibrationReport(
        folder=str(folder),
        questions=len(split.examples),
        fitted_on=fitted_on,
        decisions=decisions,
        before=judge([answers], [Decision()]),
        after=judge(parts, decisions),
        best_f1=scores_at(answers, 0.0)["best_f1"],
        best_threshold=tune_threshold(answers),
    )


def _read_folder(path: Path) -> PredictionFolder:
    folder = read_prediction_folder(path)
    if folder.null_odds is None:
        raise FolderError(f"{path}: no null_odds.json in it, so there is no threshold to tune; predict with squad2")
    if folder.candidates is None:
        raise FolderError(
            f"{path}: no nbest_predictions.json in it, which probabilities come from; give a folder of the official "
            "decoder: of a run, or the one called `official` that `bertvision predict` wrote"
        )
    return folder


def _answers(folder: PredictionFolder, questions: Sequence[Question], *, is_part: bool = False) -> Answers:
    assert folder.null_odds is not None
    assert folder.candidates is not None
    if not is_part:
        score_answers(str(folder.path), questions, folder.answers)  # refuses those of other data
    spans = folder.best_spans
    if spans is None:  # run_qa writes none, but lists the candidates best first
        spans = {name: next((each.text for each in row if each.text), "") for name, row in folder.candidates.items()}
    return build_answers(questions, spans, folder.null_odds, folder.candidates)


def _find_held_out(folder: Path, held_out: Path | None, gold: str | None) -> HeldOut | None:
    """Return the held-out answers that were named, or those that lie in the same run folder."""
    if (held_out is None) != (gold is None):
        raise SettingsError("`held_out` and `held_out_gold` go together; give both or neither")
    if held_out is not None and gold is not None:
        return HeldOut(held_out, gold)
    place = parse_run_path(folder) or parse_run_path(folder.resolve())
    if place is None or place.is_model or place.is_held_out or place.part:
        return None
    if not place.held_out_predictions.is_dir() or not place.held_out.is_file():
        return None
    return HeldOut(place.held_out_predictions, str(place.held_out))


def _held_out_answers(held_out: HeldOut, judged: Sequence[Question]) -> Answers:
    questions = read_squad(held_out.gold, answers="texts").examples
    known = {question.id for question in judged}
    if shared := [question.id for question in questions if question.id in known]:
        raise DataError(
            f"{held_out.gold}: {len(shared):,} of its questions, such as {shared[0]!r}, are in `gold` too; "
            "hold out questions of other articles"
        )
    return _answers(_read_folder(held_out.folder), questions)


def _halves(gold: str, split: Split[Question]) -> list[tuple[Question, ...]]:
    try:
        return [half.examples for half in hold_out(split, 0.5)]
    except DataError:
        raise DataError(
            f"{gold}: its articles cannot be parted into two halves; give `held_out` and `held_out_gold`"
        ) from None


def _plain(judgement: Judgement, decisions: Sequence[Decision]) -> dict[str, Any]:
    return {
        "thresholds": [each.threshold for each in decisions],
        "temperatures": [each.temperature for each in decisions],
        "exact": judgement.exact,
        "f1": judgement.f1,
        "answered": judgement.answered,
        "right": judgement.right,
        "ece": judgement.error,
        "brier": judgement.brier,
        "risk_coverage_area": judgement.area,
        "reliability": [each._asdict() for each in judgement.bins],
    }


def _row(name: str, judgement: Judgement, decisions: Sequence[Decision]) -> tuple[str, ...]:
    return (
        name,
        " / ".join(f"{each.threshold:.2f}" for each in decisions),
        *(number_cell(value, 2) for value in (judgement.exact, judgement.f1)),
        *(number_cell(value, 3) for value in (judgement.error, judgement.area)),
        " / ".join(f"{each.temperature:.2f}" for each in decisions),
    )


def _given(judgement: Judgement) -> tuple[str, str]:
    return number_cell(judgement.answered, 1), number_cell(judgement.right, 1)


def _bins_section(before: Sequence[Bin], after: Sequence[Bin]) -> Table:
    header = ("confidence", "answers", "mean", "right", "answers after", "mean", "right")
    rows = [
        (f"{place / BINS:.2f} to {(place + 1) / BINS:.2f}", *_bin_cells(place, before), *_bin_cells(place, after))
        for place in range(BINS)
    ]
    note = "mean: mean confidence of the answers; right: share of them that is exactly right. They should be equal."
    return Table("Reliability, before and after", header, tuple(rows), note)


def _bin_cells(place: int, bins: Sequence[Bin]) -> tuple[str, str, str]:
    found = next((each for each in bins if each.place == place), None)
    if found is None:
        return "0", "", ""
    return f"{found.size:,}", f"{found.confidence:.3f}", f"{found.right:.3f}"


SCORES = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh")


def reader_answers(
    questions: Sequence[Question], grid: TextGrid, logits: Logits, config: AnswerConfig, *, has_null: bool
) -> Answers:
    """Decode logits of questions as the reader does; without "no answer" all null odds are -inf."""
    pooled = pool_answers(grid, logits, config, has_null=has_null)
    shares, rows = pooled.shares(0.0, 1.0), pooled.questions
    bounds = pooled.spans.bounds[pooled.span_at[shares.best]].tolist()
    spans = {each.id: grid.text[start:end] for each, (start, end) in zip(questions, bounds, strict=True)}
    exact, f1 = answer_worths(questions, spans)
    columns = np.arange(len(rows)) - pooled.answer_at[rows] + 1  # "no answer" comes first
    scores = np.full((len(questions), int(columns.max()) + 1), -np.inf)
    scores[rows, columns], scores[:, 0] = pooled.scores, pooled.null_scores
    return Answers(
        questions,
        spans,
        dict(zip(spans, shares.null_odds.tolist(), strict=True)),
        shares.null_odds,
        scores,
        is_null=_marks(scores.shape, np.zeros(len(questions), np.int64)),
        is_best=_marks(scores.shape, columns[shares.best]),
        exact=np.array(list(exact.values()), np.float64),
        f1=np.array(list(f1.values()), np.float64),
        is_impossible=np.array([each.is_impossible for each in questions]),
    )


def reader_scores(answers: Answers, before: Decision, after: Decision | None = None) -> Scores:
    """Return what a record holds on the reader; `after` was fitted on other questions, if at all."""
    if np.isneginf(answers.odds).all():
        scores = score_squad1(answers.questions, answers.best_spans)
    else:
        scores = _decision_scores(answers, before)
    if after is not None:
        tuned = _decision_scores(answers, after)
        scores |= {"tuned_threshold": after.threshold, "temperature": after.temperature}
        scores |= {f"tuned_{name}": tuned[name] for name in SCORES[:4] if name in tuned}
        scores |= {f"{name}_calibrated": tuned[name] for name in ("ece", "brier")}
    return {f"reader_{name}": score for name, score in scores.items()}


def _decision_scores(answers: Answers, decision: Decision) -> Scores:
    """Return official scores at a decision and at the best threshold, and how good its probabilities are."""
    official, judged = scores_at(answers, decision.threshold), judge([answers], [decision])
    return {name: official[name] for name in SCORES if name in official} | {"ece": judged.error, "brier": judged.brier}


def _marks(shape: tuple[int, ...], columns: npt.NDArray[np.int64]) -> Bools:
    """Mark one column of every row."""
    marks: Bools = np.arange(shape[1]) == columns[:, None]
    return marks


def reader_answers_of(asked: Answering, logits: Logits) -> Answers | None:
    """Return the answers of the decoder `reader`; None where `answers.decoders` does not ask for it."""
    kind = asked.info.kind
    if "reader" not in asked.config.decoders or not kind.in_context:
        return None
    return reader_answers(asked.split.examples, asked.layout, logits, asked.config, has_null=kind.has_null)
