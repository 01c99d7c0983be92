"""SQuAD 1.1 and 2.0 (files, and rows of the hub's data sets) -> questions with contexts and answers."""

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from bertvision.data.example import GoldAnswer, OnBad, Question, Split
from bertvision.data.sources import (
    CAN_DROP,
    BadExampleError,
    Found,
    collect,
    is_unicode,
    load_hub_rows,
    parse_hub_id,
    parse_source,
    read_bytes,
    take_part,
)
from bertvision.errors import DataError
from bertvision.files import exists, parse_json, sha256_of

SAMPLES = {"sample:train": "train.json", "sample:dev": "dev.json"}
EXPECTED = "a SQuAD .json or .json.gz"
Need = Literal["placed", "texts", "optional"]


def read_squad(
    source: str,
    *,
    on_bad: OnBad = "fail",
    hub_split: str = "train",
    answers: Need = "placed",
    advice: str | None = None,
) -> Split[Question]:
    """Read SQuAD questions from a `.json` or `.json.gz` file, the shipped sample, or a data set on the hub.

    Training needs answers that stand where they say (`placed`), scoring only their `texts`, and for prediction they are
    `optional`.
    """
    return take_part(_read_whole(parse_source(source).whole, on_bad, hub_split, answers, advice), source)


def _read_whole(source: str, on_bad: OnBad, hub_split: str, answers: Need, advice: str | None) -> Split[Question]:
    if source in SAMPLES:
        return read_squad_file(Path(str(files("bertvision.sample") / SAMPLES[source])), on_bad, answers, name=source)
    if exists(source) or source.endswith((".json", ".gz", ".jsonl")):
        return read_squad_file(Path(source), on_bad, answers, advice=advice)
    if hub := parse_hub_id(source):
        rows = load_hub_rows(hub.dataset, hub.config, hub.split or hub_split)
        return read_squad_rows(rows, source, on_bad, answers, advice)
    raise DataError(
        f"{source}: no such file; give a SQuAD .json or .json.gz, {' or '.join(SAMPLES)}, or owner/name[:split]"
    )


def read_squad_file(
    path: Path, on_bad: OnBad = "fail", answers: Need = "placed", name: str | None = None, advice: str | None = None
) -> Split[Question]:
    """Read a SQuAD 1.1 or 2.0 file."""
    found = _walk(path, load_squad(path), answers)
    return collect(found, name or str(path), on_bad, sha256_of(path), what="question", advice=_advice(advice, answers))


def read_squad_rows(
    rows: Iterable[Mapping[str, Any]],
    name: str,
    on_bad: OnBad = "fail",
    answers: Need = "placed",
    advice: str | None = None,
) -> Split[Question]:
    """Read rows in the layout of the hub's `rajpurkar/squad` and `squad_v2`."""
    found = _walk_rows(name, rows, answers)
    return collect(found, name, on_bad, None, what="question", advice=_advice(advice, answers))


def _advice(given: str | None, answers: Need) -> str:
    """Return what errors advise beside fixing the file: what only scores has no setting to drop questions."""
    return given if given is not None else CAN_DROP if answers == "placed" else ""


def load_squad(path: Path) -> Any:  # noqa: ANN401 (checked by the walk)
    """Load the JSON of a SQuAD file as it is."""
    try:
        text = read_bytes(path, EXPECTED).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); give a SQuAD .json, saved as UTF-8") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty; expected SQuAD JSON")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"{path}: not JSON: {error.msg} at {place}; give {EXPECTED}") from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise DataError(f"{path}: not JSON that can be read: {error}") from None


def _walk(path: Path, content: Any, answers: Need) -> Iterator[Found[Question]]:  # noqa: ANN401 (checked here)
    layout = 'expected {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}'
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise DataError(f"{path}: not SQuAD: {layout}")
    for number, article in enumerate(content["data"], start=1):
        title = article.get("title", "") if isinstance(article, dict) else ""
        where = f"{path}: article {number} ({title!r})"
        for place, paragraph in enumerate(_list_of(article, "paragraphs", where), start=1):
            where_paragraph = f"{where}, paragraph {place}"
            qas = _list_of(paragraph, "qas", where_paragraph)
            context = paragraph.get("context")
            if not isinstance(context, str):
                raise DataError(f"{where_paragraph}: `context` {_got(paragraph, 'context')}; give its text")
            for rank, qa in enumerate(qas, start=1):
                name = repr(qa["id"]) if isinstance(qa, dict) and "id" in qa else f"number {rank}"
                yield _find(f"{where_paragraph}, question {name}", qa, context, str(title), answers)


def _walk_rows(name: str, rows: Iterable[Mapping[str, Any]], answers: Need) -> Iterator[Found[Question]]:
    for number, row in enumerate(rows, start=1):
        raw = {**row, "answers": _listed(row.get("answers"))}
        where = f"{name}: row {number}, question {raw.get('id')!r}"
        yield _find(where, raw, raw.get("context"), str(raw.get("title", "")), answers)


def _listed(answers: Any) -> Any:  # noqa: ANN401 (checked by `_answers`)
    """Turn the hub's two lists, of texts and of starts, into SQuAD's list of answers; leave anything else as it is."""
    if not isinstance(answers, dict):
        return answers
    texts, starts = answers.get("text"), answers.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return answers
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _find(where: str, raw: Any, context: Any, title: str, answers: Need) -> Found[Question]:  # noqa: ANN401 (checked below)
    try:
        return Found(where, _question(raw, context, title, answers))
    except BadExampleError as problem:
        return Found(where, None, str(problem))


def _question(raw: Any, context: Any, title: str, need: Need) -> Question:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict):
        raise BadExampleError(f"expected an object with `id`, `question` and `answers`, got {type(raw).__name__}")
    for key in ("id", "question"):
        if not isinstance(raw.get(key), str):
            raise BadExampleError(f"`{key}` {_got(raw, key)}; give it as text")
    for name, text in (("id", raw["id"]), ("question", raw["question"]), ("context", context)):
        if isinstance(text, str) and not is_unicode(text):
            raise BadExampleError(f"its {name} holds half a surrogate pair, which is no text; fix the file")
    if not isinstance(context, str) or not context.strip():
        raise BadExampleError("the context is empty; give the text that the question is about")
    answers = _answers(raw, context, need)
    return Question(raw["id"], raw["question"], context, answers, title)


def _answers(raw: dict[str, Any], context: str, need: Need) -> tuple[GoldAnswer, ...]:
    listed = raw.get("answers")
    if not isinstance(listed, list):
        if need == "optional" and listed is None:
            return ()
        raise BadExampleError(f"`answers` {_got(raw, 'answers')}; give a list, empty where there is no answer")
    impossible = raw.get("is_impossible", not listed)  # 1.1 files and the hub's rows have no such field
    if not isinstance(impossible, bool):
        raise BadExampleError(f"`is_impossible` {_got(raw, 'is_impossible')}; give true or false")
    answers = tuple(_answer(answer, context, need) for answer in listed)
    if need == "placed" and impossible != (not answers):
        held = f"holds {len(answers)}" if answers else "is empty"
        raise BadExampleError(f"`is_impossible` is {str(impossible).lower()} but `answers` {held}; fix one of them")
    return answers


def _answer(raw: Any, context: str, need: Need) -> GoldAnswer:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
        raise BadExampleError("an answer needs a `text`; give it as text")
    text, start = raw["text"], raw.get("answer_start")
    if need != "placed":
        return GoldAnswer(text, start if isinstance(start, int) else -1)
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadExampleError(
            f"`answer_start` {_got(raw, 'answer_start')}; give the answer's first character as a number"
        )
    if not text.strip():
        raise BadExampleError("an answer's text is empty; unanswerable questions have no answers at all")
    if start < 0 or context[start : start + len(text)] != text:
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise BadExampleError(
            f"the answer {text!r} is not at answer_start {start}, where {there!r} stands; fix the number"
        )
    return GoldAnswer(text, start)


def _list_of(raw: Any, key: str, where: str) -> list[Any]:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict):
        raise DataError(f"{where}: expected an object with `{key}`, got {type(raw).__name__}")
    if not isinstance(raw.get(key), list):
        raise DataError(f"{where}: `{key}` {_got(raw, key)}; give a list")
    return list(raw[key])


def _got(raw: Mapping[str, Any], key: str) -> str:
    return f"has type {type(raw[key]).__name__}" if key in raw else "is missing"
