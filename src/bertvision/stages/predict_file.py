"""A trained model on anybody's file: OUT gets the same prediction files as a run."""

from pathlib import Path
from typing import NamedTuple

from bertvision.encoder.encode import freeze
from bertvision.features.windows import cut_windows
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import grid_of, save_logits
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.spans import predict_spans
from bertvision.progress import SILENT, Progress
from bertvision.settings import Config, Settings, merge, validate
from bertvision.stages.logits import token_logits
from bertvision.stages.model_folder import load_model
from bertvision.stages.paper_scores import paper_gold, paper_scores
from bertvision.stages.questions import read_questions
from bertvision.training.device import Precision, choose_compute


class PredictConfig(Config):
    """What may be changed when a model is used."""

    answers: AnswerConfig
    device: str = "auto"
    precision: Precision = "auto"


class Answered(NamedTuple):
    """What came out."""

    predictions: list[Prediction]
    scores: Scores | None  # None where the file has no answers to compare with


def predict_file(
    model_folder: Path, data: str, out: Path, settings: Settings | None = None, progress: Progress = SILENT
) -> Answered:
    """Answer a SQuAD file with the model of a MODEL_DIR, and score the answers where the file has golds."""
    model = load_model(model_folder)
    defaults = {"answers": model.config.answers.model_dump(mode="json")}
    config = validate(PredictConfig, merge(defaults, settings or {}), "--set")
    asked = read_questions(data)
    questions = asked.questions
    windows = cut_windows(questions, model.encoder.tokenizer, model.config.windows, labelled=False, progress=progress)
    paper = paper_gold(config.answers, windows, questions, model.encoder.tokenizer)
    compute = choose_compute(config.device, config.precision)
    grid = grid_of(windows, [question.id for question in questions])
    heads, tokens = {"model": model.head}, config.answers.tokens
    logits = token_logits(freeze(model.encoder, compute), heads, windows, compute, progress, tokens)["model"]
    has_null = model.config.task == "squad2"
    contexts = [question.context for question in questions]
    predictions = predict_spans(grid, logits, contexts, config.answers, has_null=has_null)
    write_predictions(out, predictions)
    save_logits(out / "logits.safetensors", grid, logits)
    if not asked.can_be_scored(has_null=has_null):
        return Answered(predictions, None)
    official = score_predictions(questions, predictions, config.answers.null_threshold)
    return Answered(predictions, official | paper_scores(grid, logits, paper))
