"""A trained model on anybody's file: OUT gets the same prediction files as a run."""

from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, Split
from bertvision.encoder.encode import freeze
from bertvision.evaluate.calibration import Decision
from bertvision.evaluate.golds import AskedFile, read_asked
from bertvision.evaluate.reader_scores import given_answers, reader_answers_of, reader_scores
from bertvision.files import given_folder, write_json_rows
from bertvision.heads.logits import logits_of
from bertvision.kinds.kind import Answering
from bertvision.metrics.squad import Scores
from bertvision.model_config import Calibration, read_calibration_file
from bertvision.model_folder import Model, ModelConfig, find_model, load_model
from bertvision.predictions.files import PREDICTION_FILES, READER_PREDICTIONS
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config, Settings, merge, validate
from bertvision.tasks import Task, open_answering
from bertvision.training.device import Precision, choose_compute


class PredictConfig(Config):
    """What may be changed when a model is used."""

    answers: AnswerConfig
    data: DataConfig = DataConfig()  # how the file is laid out
    device: str = "auto"
    precision: Precision = "auto"


class FilePredictions(NamedTuple):
    """What came out."""

    predictions: list[Any]  # as the kind of task has them
    scores: Scores | None  # None where the file has no answers to compare with
    summary: str  # in a few words


def predict_file(
    model_folder: Path,
    data: str,
    out: Path,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
) -> FilePredictions:
    """Answer a file with the model of a MODEL_DIR, and score the answers where the file has golds."""
    model_folder = find_model(model_folder)  # its calibration lies there too
    model = load_model(model_folder, allow_outside=allow_outside)
    calibration = read_calibration_file(model_folder)
    config = read_settings(model.config, settings, calibration)
    asked = read_asked(model.config.task, data, config.data, labels=model.config.labels)
    split: Split[Any] = Split(data, tuple(asked.golds.examples), 0, None)
    task = Task(model.config.task, split, split, model.config.labels)
    with given_folder(out, PREDICTION_FILES) as beside:
        return _answer(model, asked, task, config, calibration or Calibration(), beside, progress)


def _answer(
    model: Model,
    asked: AskedFile,
    task: Task,
    config: PredictConfig,
    calibration: Calibration,
    out: Path,
    progress: Progress,
) -> FilePredictions:
    compute = choose_compute(config.device, config.precision)
    answering = open_answering(
        task, task.dev, model.encoder.tokenizer, model.config.windows, config.answers, progress=progress
    )
    heads, per, tokens = {"model": model.head}, model.config.objective.per, config.answers.tokens
    encoder = freeze(model.encoder, compute)
    logits = logits_of(encoder, heads, answering.windows, per, compute, progress, tokens)["model"]
    predictions = answering.answer(logits)
    answering.write(out, predictions, logits)
    scores = answering.score(predictions, logits) if asked.can_be_scored(predictions) else None
    reader = _read_by_reader(answering, logits, calibration, out, scores is not None)
    summary = task.kind.summarise(predictions)
    return FilePredictions(predictions, None if scores is None else scores | reader, summary)


def _read_by_reader(
    answering: Answering, logits: Logits, calibration: Calibration, out: Path, can_be_scored: bool
) -> Scores:
    """Write the answers of the decoder `reader` too, where `answers.decoders` asks for it, and return its scores."""
    answers = reader_answers_of(answering, logits)
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
