"""Prediction folders: answers in run_qa's formats, labels as JSON by id, GLUE's files for its test sets.

What they say of labels is checked, and put in the order of the examples.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from bertvision.data.tables import finite_number
from bertvision.errors import DataError, FolderError
from bertvision.files import parse_json, write_encoded_rows, write_json_rows
from bertvision.manifest import MANIFEST, check_manifest
from bertvision.predictions.prediction import Candidate, Prediction

PREDICTIONS = "predictions.json"
OFFICIAL = "official"  # a folder: the answers of the official decoder, beside those of a model in use
# Whatever a prediction folder may hold: what replaces one leaves no other model's file in it.
PREDICTION_FILES = (
    PREDICTIONS,
    OFFICIAL,
    "best_spans.json",
    "ensemble.json",
    "logits.safetensors",
    "mistakes.json",
    "nbest_predictions.json",
    "null_odds.json",
    "paper_v1_predictions.json",
    "predictions.conll",
    "probabilities.json",
    MANIFEST,
    *(f"{name}.tsv" for name in ("CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI")),
)
DIVERGED = "give finite numbers (has the model diverged?)"
HEADER = ("index", "prediction")  # of GLUE's files
WHERE = "give OUT/predictions/FRACTION/ROW or a folder that `predict` wrote"
PROBABILITIES = "probabilities.json"
PAPER_FILE = "paper_v1_predictions.json"


@dataclass(frozen=True)
class PredictionFolder:
    """What a prediction folder holds, by question; None for a file that it lacks or that was not asked for."""

    path: Path
    answers: dict[str, str]
    best_spans: dict[str, str] | None
    null_odds: dict[str, float] | None
    candidates: dict[str, tuple[Candidate, ...]] | None  # best first

    @property
    def logits_path(self) -> Path:
        """Name the file of the logits, which may be absent."""
        return self.path / "logits.safetensors"


def read_prediction_folder(path: Path, *, with_candidates: bool = True) -> PredictionFolder:
    """Read what `write_predictions` wrote; all files must be about the same questions."""
    answers = read_answers(_checked_folder(path))
    spans_path, odds_path = path / "best_spans.json", path / "null_odds.json"
    spans = read_mapping(spans_path, str) if spans_path.exists() else None
    odds = read_null_odds(odds_path) if odds_path.exists() else None
    candidates = _read_candidates(path / "nbest_predictions.json") if with_candidates else None
    for name, content in (("best_spans", spans), ("null_odds", odds), ("nbest_predictions", candidates)):
        _check_same_questions(path, name, content, answers)
    return PredictionFolder(path, answers, spans, odds, candidates)


def read_answers(path: Path) -> dict[str, str]:
    """Read the answers of a `predictions.json` or of a folder that holds one."""
    return read_mapping(_checked_folder(path) / "predictions.json" if path.is_dir() else path, str)


def read_null_odds(path: Path) -> dict[str, float]:
    """Read a `null_odds.json`."""
    odds = read_mapping(path, float)
    for question, value in odds.items():
        if not math.isfinite(value):
            raise DataError(f"{path}: the odds of question {question!r} are {value}; {DIVERGED}")
    return odds


def read_mapping(path: Path, kind: type) -> dict[str, Any]:
    """Read a JSON object of texts or numbers by question id."""
    content = read_object(path)
    for key, value in content.items():
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise DataError(f"{path}: question {key!r}: expected {kind.__name__}, got {type(value).__name__}")
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise DataError(f"{path}: question {key!r}: its number is too large")
    return content


def read_values(path: Path) -> dict[str, Any]:
    """Read predictions as they are written, by id: JSON, a folder that holds it, or GLUE's file for a test set."""
    if path.suffix == ".tsv":
        return dict(_read_submission(path))
    return read_object(path / PREDICTIONS if path.is_dir() else path)


def read_beside(path: Path, name: str) -> dict[str, Any]:
    """Read a file that lies beside a folder's predictions, by id; empty where there is none."""
    place = (path if path.is_dir() else path.parent) / name
    return read_object(place) if (path.is_dir() or path.name == PREDICTIONS) and place.exists() else {}


def write_predictions(folder: Path, predictions: Sequence[Prediction]) -> None:
    """Write `predictions.json` with what goes with it.

    Of the official decoder `nbest_predictions.json`, of the reader `probabilities.json`; where "no answer" is possible,
    `null_odds.json` and `best_spans.json` too.
    """
    write_json_rows(folder / "predictions.json", {each.question_id: each.text for each in predictions})
    if any(each.candidates for each in predictions):
        encoded = zip((each.question_id for each in predictions), _encode_candidates(predictions), strict=True)
        write_encoded_rows(folder / "nbest_predictions.json", dict(encoded))
    else:
        names = ("probability", "no_answer_probability")
        found = {each.question_id: {name: getattr(each, name) for name in names} for each in predictions}
        write_json_rows(folder / PROBABILITIES, found)
    odds = {each.question_id: each.null_odds for each in predictions if each.null_odds is not None}
    if odds:
        write_json_rows(folder / "null_odds.json", odds)
        # What a sweep over thresholds needs: the best answer also of questions that the model abstains from.
        write_json_rows(folder / "best_spans.json", {each.question_id: each.best_span for each in predictions})


def to_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return lines of a table as CSV, with their names above; all have the same ones."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def _encode_candidates(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Return every question's candidates as JSON; a column at a time, which takes half as long as one by one."""
    candidates = [candidate for each in predictions for candidate in each.candidates]
    texts = [encode_basestring(candidate.text) for candidate in candidates]
    probabilities = _encode([candidate.probability for candidate in candidates])
    starts = _encode([candidate.start_logit for candidate in candidates])
    ends = _encode([candidate.end_logit for candidate in candidates])
    encoded = [
        f'{{"text": {text}, "probability": {probability}, "start_logit": {start}, "end_logit": {end}}}'
        for text, probability, start, end in zip(texts, probabilities, starts, ends, strict=True)
    ]
    bounds = accumulate((len(each.candidates) for each in predictions), initial=0)
    return (f"[{', '.join(encoded[first:stop])}]" for first, stop in pairwise(bounds))


def _encode(numbers: Sequence[float]) -> list[str]:
    return json.dumps(numbers)[1:-1].split(", ") if numbers else []


def _checked_folder(path: Path) -> Path:
    if not path.is_dir():
        raise FolderError(f"{path}: no such folder; {WHERE}")
    if not (path / "predictions.json").exists():
        raise FolderError(f"{path}: no predictions.json in it; {WHERE}")
    return path


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object whose keys are ids."""
    if path.exists():
        check_manifest(path.parent, [path.name])
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {WHERE}") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON that can be read ({error}); predict again, or fix the file") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object with question ids as keys, got {type(content).__name__}")
    return content


def _read_candidates(path: Path) -> dict[str, tuple[Candidate, ...]] | None:
    if not path.exists():
        return None
    return {question: _candidates_of(path, question, rows) for question, rows in read_object(path).items()}


def _candidates_of(path: Path, question: str, rows: Any) -> tuple[Candidate, ...]:  # noqa: ANN401 (checked here)
    try:
        found = [(row["text"], row["start_logit"], row["end_logit"], row["probability"]) for row in rows]
    except (TypeError, KeyError):
        found = [(None, None, None, None)]
    if not all(isinstance(text, str) and all(map(_is_finite, numbers)) for text, *numbers in found):
        raise DataError(
            f"{path}: question {question!r}: expected a list of text, probability, start_logit and end_logit, "
            "all numbers finite; predict again"
        )
    return tuple(Candidate(*each) for each in found)


def _is_finite(value: Any) -> bool:  # noqa: ANN401 (checked here)
    return type(value) in (float, int) and abs(value) <= sys.float_info.max


def _check_same_questions(
    path: Path, name: str, content: Mapping[str, object] | None, answers: Mapping[str, str]
) -> None:
    if content is not None and (odd := content.keys() ^ answers.keys()):
        raise FolderError(
            f"{path}: {name}.json and predictions.json hold different questions, such as {min(odd)!r}; predict again"
        )


def _read_submission(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    seen = set()
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t")
        if len(fields) != 2 or (number == 1) != (tuple(fields) == HEADER) or fields[0] in seen:
            raise DataError(f"{path}: line {number}: expected `index` and `prediction`, and each index once")
        seen.add(fields[0])
        if number > 1:
            yield fields[0], fields[1]


def known_gold(identity: str, gold: Any) -> Any:  # noqa: ANN401 (of its kind)
    """Return a gold; refuse an example without one."""
    if gold is None:
        raise DataError(f"example {identity!r} has no label to compare with; score a labelled file")
    return gold


def in_order(examples: Sequence[Any], predictions: Sequence[Any], where: str = "") -> list[Any]:
    """Return each example's prediction; every example needs exactly one. `where` begins the error message."""
    by_id = {each.id: each for each in predictions}
    prefix = f"{where}: " if where else ""
    missing = [example.id for example in examples if example.id not in by_id]
    if missing:
        raise DataError(
            f"{prefix}no prediction for {len(missing)} of {len(examples)} examples, such as {missing[0]!r}; "
            "predict again"
        )
    if len(by_id) > len(examples) or len(by_id) < len(predictions):
        known_ids = {example.id for example in examples}
        odd = next((each.id for each in predictions if each.id not in known_ids), "one that is given twice")
        raise DataError(
            f"{prefix}a prediction for {odd!r}, which the examples do not have; give the file that was predicted"
        )
    return [by_id[example.id] for example in examples]


def class_of(where: str, value: Any, labels: Sequence[str], *, has_numbers: bool) -> int:  # noqa: ANN401 (checked)
    """Return a class by its name or, as GLUE's files write some, by its number."""
    name = str(value) if isinstance(value, (str, int)) else ""
    if name in labels:
        return labels.index(name)
    if has_numbers and name.isdecimal() and int(name) < len(labels):
        return int(name)
    raise DataError(f"{where}: {value!r:.80} is no label; expected {', '.join(map(repr, labels))}")


def number_of(where: str, value: Any) -> float:  # noqa: ANN401 (checked here)
    """Return a finite number that a file holds."""
    if (found := finite_number(value)) is None:
        raise DataError(f"{where}: expected a number, got {value!r:.80}")
    return found


def read_shares(path: Path, key: str, value: Any, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ANN401 (checked)
    """Return a probability for each label; those of labels that nobody asks for are left out."""
    if isinstance(value, dict) and value.keys() >= set(labels):  # a model may know labels that nobody asks for
        value = [value[label] for label in labels]
    if not isinstance(value, list):  # as another program may write them, without the labels' names
        expected = f"a probability for each of {', '.join(map(repr, labels))}"
        raise DataError(f"{path}: {key!r}: expected {expected}, got {value!r:.80}; predict again")
    return tuple(number_of(f"{path}: {key!r}", each) for each in value)
