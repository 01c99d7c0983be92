"""Prediction folders, in run_qa's formats, with the logits beside them."""

from collections.abc import Sequence
from pathlib import Path

from bertvision.files import write_json_rows
from bertvision.predictions.prediction import Prediction


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write `predictions.json` and `nbest_predictions.json`; where "no answer" is possible, `null_odds.json` too."""
    write_json_rows(folder / "predictions.json", {each.question_id: each.text for each in predictions})
    write_json_rows(folder / "nbest_predictions.json", {each.question_id: _candidates(each) for each in predictions})
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    if odds:
        write_json_rows(folder / "null_odds.json", odds)
        # What a sweep over thresholds needs: the best answer also of questions that were declined.
        write_json_rows(folder / "best_spans.json", {each.question_id: each.best_span for each in predictions})


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
