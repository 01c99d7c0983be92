"""A trained model on anybody's file: OUT gets the same prediction files as a run."""

from pathlib import Path
from typing import Any, NamedTuple

from bertvision.encoder.encode import freeze
from bertvision.errors import DataError
from bertvision.evaluate.questions import read_questions
from bertvision.metrics.squad import Scores
from bertvision.predictions.prediction import AnswerConfig, Prediction, without_collecting
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config, Settings, merge, validate
from bertvision.stages.answering import open_answering
from bertvision.stages.logits import logits_of
from bertvision.stages.model_folder import ModelConfig, load_model
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.read import read_labelled
from bertvision.tasks.task import DataConfig, Split, Task
from bertvision.training.device import Precision, choose_compute


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
    config = read_settings(model.config, settings)
    split, can_be_scored = _read(model.config, data, config.data)
    task = Task(model.config.task, TASKS[model.config.task].kind, split, split, model.config.labels)
    compute = choose_compute(config.device, config.precision)
    answering = open_answering(
        task, split, model.encoder.tokenizer, model.config.windows, config.answers, progress=progress
    )
    heads, per, tokens = {"model": model.head}, model.config.objective.per, config.answers.tokens
    encoder = freeze(model.encoder, compute)
    logits = logits_of(encoder, heads, answering.windows, per, compute, progress, tokens)["model"]
    with without_collecting():
        predictions = answering.answer(logits)
        answering.write(out, predictions, logits)
        return Answered(predictions, answering.score(predictions, logits) if can_be_scored else None)


def read_settings(model: ModelConfig, settings: Settings | None) -> PredictConfig:
    """Lay changed settings over those that a model was trained with."""
    own = {"answers": model.answers.model_dump(mode="json"), "data": model.data.model_dump(mode="json")}
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
