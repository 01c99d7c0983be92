"""A trained model on anybody's file: OUT gets the same prediction files as a run."""

from pathlib import Path
from typing import Any, NamedTuple

from bertvision.calibration.calibration import Decision
from bertvision.encoder.encode import freeze
from bertvision.errors import DataError
from bertvision.files import write_json_rows
from bertvision.metrics.squad import Scores
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config, Settings, merge, validate
from bertvision.stages.answering import Answering, open_answering
from bertvision.stages.logits import logits_of
from bertvision.stages.model_folder import ModelConfig, load_model
from bertvision.stages.questions import read_questions
from bertvision.stages.reader_scores import given_answers, reader_scores
from bertvision.stages.span_answering import SpanAnswering
from bertvision.stages.use_config import Calibration, read_calibration_file
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.read import read_labelled
from bertvision.tasks.task import DataConfig, Split, Task
from bertvision.training.device import Precision, choose_compute

READER_PREDICTIONS = "reader_predictions.json"


class PredictConfig(Config):
    """What may be changed when a model is used."""

    answers: AnswerConfig
    data: DataConfig = DataConfig()  # how the file is laid out
    device: str = "auto"
    precision: Precision = "auto"


class Answered(NamedTuple):
    """What came out."""

    predictions: list[Any]  # as the kind of task has them
    scores: Scores | None  # None where the file has no answers to compare with

    @property
    def summary(self) -> str:
        """Say in a few words what was answered."""
        if not isinstance(self.predictions[0], Prediction):
            return f"{len(self.predictions):,} examples"
        declined = sum(not each.text for each in self.predictions)
        return f"{len(self.predictions):,} questions, {declined:,} declined"


def predict_file(
    model_folder: Path, data: str, out: Path, settings: Settings | None = None, progress: Progress = SILENT
) -> Answered:
    """Answer a file with the model of a MODEL_DIR, and score the answers where the file has golds."""
    model = load_model(model_folder)
    calibration = read_calibration_file(model_folder)
    config = read_settings(model.config, settings, calibration)
    split, can_be_scored = _read(model.config, data, config.data)
    task = Task(model.config.task, TASKS[model.config.task].kind, split, split, model.config.labels)
    compute = choose_compute(config.device, config.precision)
    answering = open_answering(
        task, split, model.encoder.tokenizer, model.config.windows, config.answers, progress=progress
    )
    heads, per, tokens = {"model": model.head}, model.config.objective.per, config.answers.tokens
    encoder = freeze(model.encoder, compute)
    logits = logits_of(encoder, heads, answering.windows, per, compute, progress, tokens)["model"]
    predictions = answering.answer(logits)
    answering.write(out, predictions, logits)
    scores = answering.score(predictions, logits) if can_be_scored else None
    reader = _read_by_reader(answering, logits, calibration or Calibration(), out, can_be_scored)
    return Answered(predictions, None if scores is None else scores | reader)


def _read_by_reader(
    answering: Answering, logits: Logits, calibration: Calibration, out: Path, can_be_scored: bool
) -> Scores:
    """Write the answers of the decoder `reader` too, where `answers.decoders` asks for it, and return its scores."""
    answers = answering.reader_answers(logits) if isinstance(answering, SpanAnswering) else None
    if answers is None:
        return {}
    decision = Decision(calibration.threshold, calibration.temperature)
    write_json_rows(out / READER_PREDICTIONS, given_answers(answers, decision.threshold))
    return reader_scores(answers, decision) if can_be_scored else {}


def read_settings(
    model: ModelConfig, settings: Settings | None, calibration: Calibration | None = None
) -> PredictConfig:
    """Lay changed settings over those that a model was trained with, and over how it was calibrated."""
    own = {"answers": model.answers.model_dump(mode="json"), "data": model.data.model_dump(mode="json")}
    if calibration is not None:
        own["answers"]["null_threshold"] = calibration.null_threshold
    return validate(PredictConfig, merge(own, settings or {}), "--set")


def _read(model: ModelConfig, source: str, data: DataConfig) -> tuple[Split[Any], bool]:
    """Read a file, and tell whether it says what the answers are."""
    if TASKS[model.task].kind in ("span", "answerable"):
        asked = read_questions(source)
        return asked.split, asked.can_be_scored(has_null=model.task != "squad1")
    try:
        return read_labelled(model.task, source, data, model.labels, can_drop=False).split, True
    except DataError:  # either it has no labels, or the file is bad, which the second reading will say
        return read_labelled(model.task, source, data, model.labels, needs_labels=False, can_drop=False).split, False
