"""SQuAD 1.1 and 2.0 (files, and rows of the hub's data sets) -> questions with contexts and answers."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertvision.errors import DataError, MissingExtraError
from bertvision.files import sha256_of
from bertvision.tasks.task import Answer, DataConfig, Question, Split, Task, TaskName

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:\w+)?")
SAMPLES = {"sample:train": "train.json", "sample:dev": "dev.json"}
OnBad = Literal["fail", "drop"]
Need = Literal["placed", "texts", "optional"]


def read_task(name: TaskName, data: DataConfig) -> Task:
    """Read both splits of an experiment."""
    train = read_squad(data.train, on_bad=data.on_bad, hub_split="train")
    dev = read_squad(data.dev, on_bad=data.on_bad, hub_split="validation")
    if name == "squad1":
        _refuse_unanswerable(train)
        _refuse_unanswerable(dev)
    return Task(name, train, dev)


def read_squad(
    source: str, *, on_bad: OnBad = "fail", hub_split: str = "train", answers: Need = "placed"
) -> Split[Question]:
    """Read SQuAD questions from a `.json` or `.json.gz` file, the shipped sample, or a data set on the hub.

    Training needs answers that stand where they say (`placed`), scoring only their `texts`, and for prediction they are
    `optional`.
    """
    if source in SAMPLES:
        return read_squad_file(Path(str(files("bertvision.sample") / SAMPLES[source])), on_bad, answers, name=source)
    if _exists(source) or source.endswith((".json", ".gz", ".jsonl")):
        return read_squad_file(Path(source), on_bad, answers)
    if HUB_ID.fullmatch(source):
        dataset, _, split = source.partition(":")
        return read_squad_rows(_hub_rows(dataset, split or hub_split), source, on_bad, answers)
    raise DataError(
        f"{source}: no such file; give a SQuAD .json or .json.gz, {' or '.join(SAMPLES)}, or owner/name[:split]"
    )


def read_squad_file(
    path: Path, on_bad: OnBad = "fail", answers: Need = "placed", name: str | None = None
) -> Split[Question]:
    """Read a SQuAD 1.1 or 2.0 file."""
    return _collect(_walk(path, _load(path), answers), name or str(path), on_bad, answers, sha256_of(path))


def read_squad_rows(
    rows: Iterable[Mapping[str, Any]], name: str, on_bad: OnBad = "fail", answers: Need = "placed"
) -> Split[Question]:
    """Read rows in the layout of the hub's `rajpurkar/squad` and `squad_v2`."""
    return _collect(_walk_rows(name, rows, answers), name, on_bad, answers, None)


class _Found(NamedTuple):
    """A question, or what is wrong with it, and where it stands."""

    where: str
    question: Question | None
    problem: str = ""


class _BadQuestionError(Exception):
    """What is wrong with the question at hand, and what to do."""


def _collect(found: Iterable[_Found], name: str, on_bad: OnBad, answers: Need, sha256: str | None) -> Split[Question]:
    questions: dict[str, Question] = {}
    bad: list[str] = []
    for where, question, problem in found:
        if question is None:
            bad.append(f"{where}: {problem}")
        elif question.id in questions:
            bad.append(f"{where}: duplicate id; give every question an id of its own")
        else:
            questions[question.id] = question
    if bad and on_bad == "fail":
        count = "" if len(bad) == 1 else f" ({len(bad)} such questions; this is the first)"
        advice = ", or leave it out with --set data.on_bad=drop" if answers == "placed" else ""
        raise DataError(f"{bad[0]}{count}{advice}")
    if not questions:
        why = f"all {len(bad)} were dropped, the first: {bad[0]}" if bad else "is it the right file?"
        raise DataError(f"{name}: no question in it; {why}")
    return Split(name, tuple(questions.values()), len(bad), sha256)


def _load(path: Path) -> Any:  # noqa: ANN401 (checked by the walk)
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" or path.suffix == ".gz" else raw).decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); give a SQuAD .json or .json.gz") from None
    except (EOFError, zlib.error):
        raise DataError(f"{path}: the gzip file is damaged or cut off; get it again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if not text.strip():
        raise DataError(f"{path}: the file is empty; expected SQuAD JSON")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"{path}: not JSON that can be read: {error}") from None
    except RecursionError:
        raise DataError(f"{path}: not SQuAD: nested too deeply") from None


def _walk(path: Path, content: Any, answers: Need) -> Iterator[_Found]:  # noqa: ANN401 (checked here)
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


def _walk_rows(name: str, rows: Iterable[Mapping[str, Any]], answers: Need) -> Iterator[_Found]:
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


def _find(where: str, raw: Any, context: Any, title: str, answers: Need) -> _Found:  # noqa: ANN401 (checked below)
    try:
        return _Found(where, _question(raw, context, title, answers))
    except _BadQuestionError as problem:
        return _Found(where, None, str(problem))


def _question(raw: Any, context: Any, title: str, need: Need) -> Question:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict):
        raise _BadQuestionError(f"expected an object with `id`, `question` and `answers`, got {type(raw).__name__}")
    for key in ("id", "question"):
        if not isinstance(raw.get(key), str):
            raise _BadQuestionError(f"`{key}` {_got(raw, key)}; give it as text")
    for name, text in (("id", raw["id"]), ("question", raw["question"]), ("context", context)):
        if isinstance(text, str) and not _is_unicode(text):
            raise _BadQuestionError(f"its {name} holds half a surrogate pair, which is no text; mend the file")
    if not isinstance(context, str) or not context.strip():
        raise _BadQuestionError("the context is empty; give the text that the question is about")
    answers = _answers(raw, context, need)
    return Question(raw["id"], raw["question"], context, answers, title)


def _answers(raw: dict[str, Any], context: str, need: Need) -> tuple[Answer, ...]:
    listed = raw.get("answers")
    if not isinstance(listed, list):
        if need == "optional" and listed is None:
            return ()
        raise _BadQuestionError(f"`answers` {_got(raw, 'answers')}; give a list, empty where there is no answer")
    impossible = raw.get("is_impossible", not listed)  # 1.1 files and the hub's rows have no such field
    if not isinstance(impossible, bool):
        raise _BadQuestionError(f"`is_impossible` {_got(raw, 'is_impossible')}; give true or false")
    answers = tuple(_answer(answer, context, need) for answer in listed)
    if need == "placed" and impossible != (not answers):
        held = f"holds {len(answers)}" if answers else "is empty"
        raise _BadQuestionError(f"`is_impossible` is {str(impossible).lower()} but `answers` {held}; mend one of them")
    return answers


def _answer(raw: Any, context: str, need: Need) -> Answer:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
        raise _BadQuestionError("an answer needs a `text`; give it as text")
    text, start = raw["text"], raw.get("answer_start")
    if need != "placed":
        return Answer(text, start if isinstance(start, int) else -1)
    if isinstance(start, bool) or not isinstance(start, int):
        raise _BadQuestionError(
            f"`answer_start` {_got(raw, 'answer_start')}; give the answer's first character as a number"
        )
    if not text.strip():
        raise _BadQuestionError("an answer's text is empty; unanswerable questions have no answers at all")
    if start < 0 or context[start : start + len(text)] != text:
        there = context[max(start, 0) : max(start, 0) + len(text)]
        raise _BadQuestionError(
            f"the answer {text!r} is not at answer_start {start}, where {there!r} stands; mend the number"
        )
    return Answer(text, start)


def _list_of(raw: Any, key: str, where: str) -> list[Any]:  # noqa: ANN401 (checked here)
    if not isinstance(raw, dict):
        raise DataError(f"{where}: expected an object with `{key}`, got {type(raw).__name__}")
    if not isinstance(raw.get(key), list):
        raise DataError(f"{where}: `{key}` {_got(raw, key)}; give a list")
    return list(raw[key])


def _exists(source: str) -> bool:
    try:
        return Path(source).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL in it
        return False


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON's escapes can spell what UTF-8 cannot
        return False
    return True


def _got(raw: Mapping[str, Any], key: str) -> str:
    return f"has type {type(raw[key]).__name__}" if key in raw else "is missing"


def _refuse_unanswerable(split: Split[Question]) -> None:
    for question in split.examples:
        if question.is_impossible:
            raise DataError(
                f"{split.name}: question {question.id!r} has no answer, which SQuAD 1.1 does not know; use task: squad2"
            )


def _hub_rows(dataset: str, split: str) -> Iterable[Mapping[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub") from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(dataset, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{dataset}: split {split!r} cannot be loaded from the hub ({reason})") from None
    return rows
