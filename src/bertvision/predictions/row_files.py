"""Prediction folders of all tasks but spans: JSON by id, GLUE's files for its test sets, CoNLL columns for tags."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.errors import DataError
from bertvision.files import write_json_rows, write_text
from bertvision.predictions.files import read_object
from bertvision.predictions.labels import RowPrediction
from bertvision.predictions.tags import TagPrediction
from bertvision.tasks.catalog import TASKS
from bertvision.tasks.task import Kind, Sentence, TaskName

PREDICTIONS, PROBABILITIES, CONLL = "predictions.json", "probabilities.json", "predictions.conll"
PAPER = "paper_v1_predictions.json"
HEADER = ("index", "prediction")  # of GLUE's files
SCORE_RANGE = (0.0, 5.0)  # of STS-B, outside of which GLUE takes no number


def write_rows(
    folder: Path, name: TaskName, labels: Sequence[str], predictions: Sequence[RowPrediction], part: str = ""
) -> None:
    """Write predictions by id and, where there are any, probabilities by id and label.

    For a task of GLUE also what its site takes.
    `part` names a further split, such as `mismatched`, whose file has another name there.
    """
    info = TASKS[name]
    write_json_rows(folder / PREDICTIONS, {each.id: _value(info.kind, each.label, labels) for each in predictions})
    if sure := [each for each in predictions if each.probabilities]:
        shares = {each.id: dict(zip(labels, each.probabilities, strict=True)) for each in sure}
        write_json_rows(folder / PROBABILITIES, shares)
    if info.kind == "answerable":
        paper = {each.id: labels[each.paper_label] for each in predictions if each.paper_label is not None}
        write_json_rows(folder / PAPER, paper)
    if part in info.submission:
        rows = [HEADER, *((each.id, _submitted(name, each, labels)) for each in predictions)]
        write_text(folder / info.submission[part], "".join(f"{index}\t{text}\n" for index, text in rows))


def write_tags(folder: Path, sentences: Sequence[Sentence], predictions: Sequence[TagPrediction]) -> None:
    """Write tags by sentence, and as columns: word, tag (where it is known) and predicted tag, as conlleval reads."""
    write_json_rows(folder / PREDICTIONS, {each.id: each.tags for each in predictions})
    columns = (
        "".join(f"{' '.join(word)}\n" for word in zip(*_columns(sentence, found), strict=True))
        for sentence, found in zip(sentences, predictions, strict=True)
    )
    write_text(folder / CONLL, "\n".join(columns))


def read_values(path: Path) -> dict[str, Any]:
    """Read predictions as they are written, by id: JSON, a folder that holds it, or GLUE's file for a test set."""
    if path.suffix == ".tsv":
        return dict(_read_submission(path))
    return read_object(path / PREDICTIONS if path.is_dir() else path)


def read_rows(path: Path, name: TaskName, labels: Sequence[str]) -> list[RowPrediction]:
    """Read what `write_rows` wrote or another program in its format."""
    found = {key: _label(path, key, name, value, labels) for key, value in read_values(path).items()}
    shares = {key: _shares(path, key, value, labels) for key, value in _beside(path, PROBABILITIES).items()}
    paper = {key: _label(path, key, name, value, labels) for key, value in _beside(path, PAPER).items()}
    return [RowPrediction(key, label, shares.get(key, ()), paper.get(key)) for key, label in found.items()]


def read_tags(path: Path, sentences: Sequence[Sentence]) -> list[TagPrediction]:
    """Read what `write_tags` wrote: a tag for each word of each sentence."""
    words = {sentence.id: len(sentence.words) for sentence in sentences}
    found = []
    for key, value in read_values(path).items():
        if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
            raise DataError(f"{path}: sentence {key!r}: expected a list of tags, got {value!r:.80}")
        if (wanted := words.get(key, len(value))) != len(value):
            raise DataError(f"{path}: sentence {key!r}: {len(value)} tags for {wanted} words; predict again")
        found.append(TagPrediction(key, tuple(value)))
    return found


def _value(kind: Kind, label: Any, labels: Sequence[str]) -> Any:  # noqa: ANN401 (a label, as its kind has it)
    match kind:
        case "class" | "answerable":
            return labels[label]
        case "labels":
            return [name for name, is_on in zip(labels, label, strict=True) if is_on]
        case _:
            return label


def _label(path: Path, key: str, name: TaskName, value: Any, labels: Sequence[str]) -> Any:  # noqa: ANN401 (checked)
    has_numbers = TASKS[name].hub is not None
    match TASKS[name].kind:
        case "number":
            return _number(path, key, value)
        case "labels" if isinstance(value, list):
            taken = {_class(path, key, each, labels, has_numbers) for each in value}
            return tuple(int(place in taken) for place in range(len(labels)))
        case "labels":
            raise DataError(f"{path}: {key!r}: expected a list of labels, got {value!r:.80}")
        case _:
            return _class(path, key, value, labels, has_numbers)


def _class(path: Path, key: str, value: Any, labels: Sequence[str], has_numbers: bool) -> int:  # noqa: ANN401 (checked)
    """Give a class by its name or, as GLUE's files write some, by its number."""
    name = str(value) if isinstance(value, (str, int)) else ""
    if name in labels:
        return labels.index(name)
    if has_numbers and name.isdecimal() and int(name) < len(labels):
        return int(name)
    raise DataError(f"{path}: {key!r}: {value!r:.80} is no label; expected {', '.join(map(repr, labels))}")


def _shares(path: Path, key: str, value: Any, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ANN401 (checked)
    if isinstance(value, dict) and value.keys() == set(labels):
        value = [value[label] for label in labels]
    if not isinstance(value, list):  # as they were written without the labels' names
        expected = f"a probability for each of {', '.join(map(repr, labels))}"
        raise DataError(f"{path}: {key!r}: expected {expected}, got {value!r:.80}; predict again")
    return tuple(_number(path, key, each) for each in value)


def _number(path: Path, key: str, value: Any) -> float:  # noqa: ANN401 (checked here)
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise DataError(f"{path}: {key!r}: expected a number, got {value!r:.80}")
    return found


def _submitted(name: TaskName, prediction: RowPrediction, labels: Sequence[str]) -> str:
    if TASKS[name].kind == "number":
        low, high = SCORE_RANGE
        assert isinstance(prediction.label, (int, float))
        return f"{min(max(prediction.label, low), high):.3f}"
    return str(_value("class", prediction.label, labels) if TASKS[name].submits_names else prediction.label)


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


def _beside(path: Path, name: str) -> Mapping[str, Any]:
    place = (path if path.is_dir() else path.parent) / name
    return read_object(place) if (path.is_dir() or path.name == PREDICTIONS) and place.exists() else {}


def _columns(sentence: Sentence, found: TagPrediction) -> list[Sequence[str]]:
    return [sentence.words, *([sentence.tags] if sentence.tags is not None else []), found.tags]
