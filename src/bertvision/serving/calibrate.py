"""A model and questions with answers -> the null threshold and temperature that suit it, written beside it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.data.example import Question
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.calibrate import CalibrationReport, reader_answers
from bertvision.evaluate.score import read_questions
from bertvision.files import locked, write_json, write_text
from bertvision.hub import CARD
from bertvision.manifest import changed_file
from bertvision.model_config import CALIBRATION, CONFIG, Calibration
from bertvision.progress import SILENT, Progress
from bertvision.scoring.calibration import Decision, answers_of, fit_decision, judge, scores_at, tune_threshold
from bertvision.scoring.confidence import Answers
from bertvision.serving.card_tables import settings_table
from bertvision.serving.load import load
from bertvision.serving.model import ServedModel
from bertvision.serving.reader import Reader
from bertvision.tables import Page

FEW = 100  # questions: of so many, a share has a standard error of up to 5 points


@dataclass(frozen=True)
class ModelCalibration:
    """What was fitted on all questions, what it is worth, and where it was written."""

    fitted: Calibration
    report: CalibrationReport
    written: Path | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        written = None if self.written is None else str(self.written)
        return {"calibration": self.fitted.model_dump(mode="json"), "written": written, **self.report.as_dict()}

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        page = self.report.as_page()
        fitted = (
            f"on all of them: threshold {self.fitted.threshold:.4f}, temperature {self.fitted.temperature:.4f}, "
            f"threshold of predict {self.fitted.null_threshold:.4f}"
        )
        written = "nothing was written to the model" if self.written is None else f"written to {self.written}"
        asked = "1 question is" if self.report.questions == 1 else f"{self.report.questions} questions are"
        few = f"{asked} few, and what fits them may be chance; give {FEW} or more"
        cautions = (few,) if self.report.questions < FEW else ()
        return page._replace(head=(*page.head, fitted, *cautions, written))


def calibrate_model(
    model: str,
    data: str,
    *,
    min_accuracy: float | None = None,
    write: bool = False,
    device: str = "auto",
    allow_outside: bool = False,
    progress: Progress = SILENT,
) -> ModelCalibration:
    """Fit a model's null thresholds and temperature on questions that it did not learn from; write them if asked to.

    Thresholds are those of the best F1, or with `min_accuracy` those at which answers that are given are exactly right
    at least that often (see `threshold_of_accuracy`).
    """
    if min_accuracy is not None and not 0 < min_accuracy < 1:
        raise SettingsError(f"`min_accuracy` lies between 0 and 1, such as 0.9, got {min_accuracy:g}")
    if write and not _is_own(Path(model)):
        raise SettingsError(f"{model}: `write` needs a folder of your own; save the model first (`bertvision save`)")
    reader = load(model, device=device, allow_outside=allow_outside)
    if not isinstance(reader, Reader) or not reader.has_null:
        raise SettingsError(
            f"{model}: is a model of {reader.served.config.task}, which has no null threshold; calibrate one of squad2"
        )
    asked = read_questions(data)
    if not asked.has_golds:
        raise DataError(
            f"{data}: not all of its questions say what the answers are; give a SQuAD 2.0 file with answers"
        )
    fitted, report = _fit(reader, asked.questions, model, min_accuracy, progress)
    if write:
        _write(reader, fitted)
    return ModelCalibration(fitted, report, reader.served.folder / CALIBRATION if write else None)


def _is_own(model: Path) -> bool:
    """Return whether a model is a folder that a calibration can be written into."""
    if (model / CONFIG).is_file():
        return True
    from bertvision.model_folder import is_checkpoint  # torch

    return is_checkpoint(model)


def _fit(
    reader: Reader, questions: Sequence[Question], name: str, min_accuracy: float | None, progress: Progress
) -> tuple[Calibration, CalibrationReport]:
    served = reader.served
    answering = served.answering(questions, progress)
    logits = served.logits(answering.windows, progress)
    official = answers_of(questions, answering.answer(logits))
    answers = reader_answers(questions, answering.layout, logits, served.config.answers, has_null=True)
    decision = fit_decision(answers, min_accuracy)
    threshold = fit_decision(official, min_accuracy).threshold
    fitted = Calibration(**decision._asdict(), official_threshold=threshold, min_accuracy=min_accuracy)
    before = Decision(served.calibration.threshold, served.calibration.temperature)
    return fitted, _report(answers, before, decision, name, min_accuracy)


def _report(
    answers: Answers, before: Decision, fitted: Decision, name: str, min_accuracy: float | None
) -> CalibrationReport:
    """Judge by halves of the paragraphs, each with what the other half would choose: nothing judges itself."""
    halves = [answers.take(places) for places in _halves(answers.questions) if len(places)]
    try:
        decisions = [fit_decision(half, min_accuracy) for half in reversed(halves)]
    except DataError:  # half of the questions do not show the accuracy that all of them do
        halves = []
    fitted_on = "after: each half of the paragraphs is tuned on the other half"
    if len(halves) != 2:
        decisions, fitted_on = [fitted], "after: judged on the very questions that it was fitted on"
    return CalibrationReport(
        folder=name,
        questions=len(answers.questions),
        fitted_on=fitted_on,
        decisions=decisions,
        before=judge([answers], [before]),
        after=judge(halves if len(halves) == 2 else [answers], decisions),
        best_f1=scores_at(answers, 0.0)["best_f1"],
        best_threshold=tune_threshold(answers),
        decision_before=before,
        min_accuracy=min_accuracy,
    )


def _halves(questions: Sequence[Question]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    is_first = np.array([hashlib.sha256(each.context.encode()).digest()[0] < 128 for each in questions])
    return [np.flatnonzero(is_first), np.flatnonzero(~is_first)]


def _write(reader: Reader, fitted: Calibration) -> None:
    """Write the calibration, and put it into the card's table of settings where that is as this project wrote it."""
    served = reader.served
    with locked(served.folder):
        _write_card(served.folder / CARD, served, fitted)
        with changed_file(served.folder, CALIBRATION):
            write_json(served.folder / CALIBRATION, fitted.model_dump(mode="json"))


def _write_card(card: Path, served: ServedModel, fitted: Calibration) -> None:
    if card.is_file():
        old, new = ("\n".join(settings_table(served.config, each)) for each in (served.calibration, fitted))
        write_text(card, card.read_text(encoding="utf-8").replace(old, new))
