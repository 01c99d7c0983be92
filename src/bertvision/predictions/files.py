"""Prediction folders, in run_qa's formats, with the logits beside them."""

from collections.abc import Sequence
from pathlib import Path

from bertvision.files import write_json_rows
from bertvision.predictions.prediction import Prediction


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write `predictions.json`, `nbest_predictions.json` and, where "no answer" is possible, `null_odds.json`."""
    write_json_rows(folder / "predictions.json", {each.question_id: each.text for each in predictions})
    write_json_rows(folder / "nbest_predictions.json", {each.question_id: _candidates(each) for each in predictions})
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    if odds:
        write_json_rows(folder / "null_odds.json", odds)


def _candidates(prediction: Prediction) -> list[dict[str, str | float]]:
    return [
        {
            "text": candidate.text,
            "probability": candidate.probability,
            "start_logit": candidate.start_logit,
            "end_logit": candidate.end_logit,
        }
        for candidate in prediction.candidates
    ]
