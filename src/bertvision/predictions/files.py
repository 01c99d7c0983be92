"""Prediction folders, in run_qa's formats, with the logits beside them."""

import json
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring
from pathlib import Path

import numpy as np
from pydantic_core import to_json

from bertvision.files import write_encoded_rows, write_json_rows
from bertvision.predictions.prediction import Prediction


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write `predictions.json` and `nbest_predictions.json`; where "no answer" is possible, `null_odds.json` too."""
    write_json_rows(folder / "predictions.json", {each.question_id: each.text for each in predictions})
    ids = (each.question_id for each in predictions)
    write_encoded_rows(folder / "nbest_predictions.json", dict(zip(ids, _encode_candidates(predictions), strict=True)))
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    if odds:
        write_json_rows(folder / "null_odds.json", odds)
        # What a sweep over thresholds needs: the best answer also of questions that were declined.
        write_json_rows(folder / "best_spans.json", {each.question_id: each.best_span for each in predictions})


def encode_numbers(numbers: Sequence[float]) -> list[str]:
    """Give each number as `json.dumps` writes it, in a third of the time.

    Between 1e-4 and 1e16, where neither writes exponents, pydantic's encoder gives the same digits: the fewest that
    are read back as the same number.
    """
    if not numbers:
        return []
    encoded = to_json(numbers).decode()[1:-1].split(",")
    sizes = np.abs(numbers)
    others = np.flatnonzero(~((sizes >= 1e-4) & (sizes < 1e16))).tolist()
    for place, each in zip(others, json.dumps([numbers[place] for place in others])[1:-1].split(", "), strict=False):
        encoded[place] = each
    return encoded


def _encode_candidates(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Give every question's candidates as JSON; all their numbers are encoded in one go."""
    numbers = iter(
        encode_numbers(
            [
                number
                for each in predictions
                for _, start, end, probability, _ in each.candidates
                for number in (probability, start, end)
            ]
        )
    )
    for each in predictions:
        candidates = [
            f'{{"text": {encode_basestring(candidate.text)}, "probability": {probability}, '
            f'"start_logit": {start}, "end_logit": {end}}}'
            for candidate, probability, start, end in zip(each.candidates, numbers, numbers, numbers, strict=False)
        ]
        yield f"[{', '.join(candidates)}]"
