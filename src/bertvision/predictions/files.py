"""Prediction folders, in run_qa's formats, with the logits beside them."""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
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
    """Give each number as `json.dumps` writes it, in a quarter of the time.

    Pydantic's encoder gives the same digits, the fewest that are read back as the same number, but has exponents of one
    digit, none from 1e-5 to 1e-4, and from 1e16 on a plus in them or not, depending on its version.
    """
    if not numbers:
        return []
    encoded, sizes = to_json(numbers).decode()[1:-1].split(","), np.abs(numbers)
    for place in np.flatnonzero((sizes >= 1e-9) & (sizes < 1e-5)).tolist():
        encoded[place] = encoded[place].replace("e-", "e-0")
    for place in np.flatnonzero((sizes >= 1e-5) & (sizes < 1e-4) | ~(sizes < 1e16)).tolist():
        encoded[place] = json.dumps(numbers[place])
    return encoded


def _encode_candidates(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Give every question's candidates as JSON; a column at a time, which takes half as long as one by one."""
    candidates = [candidate for each in predictions for candidate in each.candidates]
    texts = [encode_basestring(candidate.text) for candidate in candidates]
    probabilities = encode_numbers([candidate.probability for candidate in candidates])
    starts = encode_numbers([candidate.start_logit for candidate in candidates])
    ends = encode_numbers([candidate.end_logit for candidate in candidates])
    encoded = [
        f'{{"text": {text}, "probability": {probability}, "start_logit": {start}, "end_logit": {end}}}'
        for text, probability, start, end in zip(texts, probabilities, starts, ends, strict=True)
    ]
    bounds = accumulate((len(each.candidates) for each in predictions), initial=0)
    return (f"[{', '.join(encoded[first:stop])}]" for first, stop in pairwise(bounds))
