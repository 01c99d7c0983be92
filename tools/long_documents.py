"""Measures a reader on long documents: a question's own paragraph among paragraphs of other articles.

    python -m tools.long_documents default dev-v2.0.json.gz results/default_model/long-default.json [--questions 300]

A page has 500 words. The same questions are asked about their paragraph alone (0 pages) and about texts of 1, 5, 20 and
50 pages, in which it stands anywhere. Other paragraphs are those of other titles or, where a file has no titles that
mean anything, those more than `--apart` paragraphs away. -1 pages are the paragraphs that are left out there: the
article in its order, a text on one subject. (Of its unanswerable questions, another paragraph may answer some.) Every
answer becomes a line of OUT.jsonl; a second call goes on. OUT.json has the scores at the model's own null threshold,
and OUT.md the table. `make pages` puts a record results/default_model/long-NAME*.json into the card of the model that
ships, if it is of that model.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import bertvision
from bertvision.data.example import Question
from bertvision.data.squad import read_squad_file
from bertvision.files import append_text, sha256_of, write_json, write_text
from bertvision.model_config import Calibration
from bertvision.predictions.logits import grid_of, text_grid
from bertvision.predictions.pooled import OWN_NULL, pool_answers
from bertvision.records import provenance
from bertvision.report.renderers import to_markdown
from bertvision.scoring.calibration import calibration_error, reliability_bins
from bertvision.scoring.squad import answer_worths, score_squad2
from bertvision.serving.model import ServedModel
from bertvision.serving.reader import Reader
from bertvision.serving.torch_model import torch_engine
from bertvision.tables import Table
from bertvision.training.accounting import forget_peaks, peak_bytes, peak_process_bytes
from bertvision.windows.window import cut_windows

WORDS = 500  # of a page
ALONE, ARTICLE = 0, -1
PAGES = (ALONE, ARTICLE, 1, 5, 20, 50)
NAMES = {ALONE: "its paragraph", ARTICLE: "its article"}
SENTENCES = ("-sentence", "-rest")
SCORES = ("f1", "exact", "HasAns_f1", "NoAns_f1", "best_f1")
RESAMPLES = 2000
SECTION = """## Long documents

{questions} questions of SQuAD 2.0's dev set, asked about their own paragraph and about longer texts. A page has {words}
words, and the paragraph stands anywhere among those of other articles. Scores are at the model's own threshold.
"Answers from its paragraph" are those from the paragraph that the question was written for. Seconds (a median) and
memory (the most) are those of one document; seconds depend on what else the machine does. `tools/long_documents.py`
measured them on {device} in {precision}.
"""
OF_ARTICLES = """"Its article" is all of the question's article. There, another paragraph may answer what this one does
not, so `NoAns F1` is a lower bound.
"""
BEFORE = """The model that shipped before this one took {seconds:.2f} seconds and {memory:,.0f} MB for {pages} pages on
{device}.
"""


class Document(NamedTuple):
    """A text, and where the question's own paragraph stands in it."""

    text: str
    start: int
    end: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what OUT.jsonl does not hold yet, then write record and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="default, base or a MODEL_DIR")
    parser.add_argument("data", type=Path, help="a SQuAD 2.0 file")
    parser.add_argument("out", type=Path, help="OUT.json")
    parser.add_argument("--pages", type=int, nargs="+", default=PAGES)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--apart", type=int, help="leave out so many paragraphs around the question's own")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--precision", default="auto", help="bf16 is what a GPU takes, and is fast on a CPU that has it"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after so many, and go on another time"
    )
    given = parser.parse_args(arguments)
    reader = bertvision.load(given.model, device=given.device, precision=given.precision)
    assert isinstance(reader, Reader), f"{given.model}: answers no questions"
    # A sentence of a paragraph (tools/default_data.py) would stand twice in a text.
    questions = [each for each in read_squad_file(given.data).examples if not each.id.endswith(SENTENCES)]
    drawn = random.Random(given.seed).sample(questions, min(given.questions, len(questions)))
    lines = given.out.with_suffix(".jsonl")
    _begin(lines, _settings(given))
    _measure(given, reader, questions, drawn, lines)
    write_record(given.out, drawn, reader.served)


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return all that a document and its answers depend on."""
    kept = {name: getattr(given, name) for name in ("model", "seed", "questions", "apart")}
    return {**kept, "data": given.data.name, "sha256": sha256_of(given.data), "own_null": OWN_NULL}


def _begin(lines: Path, settings: dict[str, Any]) -> None:
    """Start a file with the settings; one that has others is not gone on with."""
    whole, _, _ = lines.read_text(encoding="utf-8").rpartition("\n") if lines.exists() else ("", "", "")
    write_text(lines, f"{whole or json.dumps(settings)}\n")  # without the half line that a kill may have left
    before = json.loads(whole.partition("\n")[0]) if whole else settings
    assert before == settings, f"{lines}: was begun with {before}; name another file, or remove it"


def _measure(
    given: argparse.Namespace, reader: Reader, questions: Sequence[Question], drawn: Sequence[Question], lines: Path
) -> None:
    until = time.monotonic() + 60 * given.minutes
    done = {(each["pages"], each["id"]) for each in read_lines(lines)}
    todo = [(pages, each) for pages in given.pages for each in drawn if (pages, each.id) not in done]
    for number, (pages, question) in enumerate(todo, start=1):
        if time.monotonic() > until:
            return
        document = build_document(question, questions, pages, given.seed, given.apart)
        found = ask(reader, question, document)
        append_text(lines, json.dumps({"pages": pages, "id": question.id, **found}) + "\n")
        if number % 20 == 0:
            print(f"{number}/{len(todo)}: {pages} pages, {found['seconds']:.2f} s", flush=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read all answers."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def build_document(
    question: Question, questions: Sequence[Question], pages: int, seed: int, apart: int | None
) -> Document:
    """Put a question's paragraph among others, drawn until the text has so many pages."""
    draw = random.Random(f"{seed} {pages} {question.id}")
    article, others = _part(question, questions, apart)
    if pages == ARTICLE:
        place = article.index(question.context)
        return _join(article[:place], question.context, article[place + 1 :])
    draw.shuffle(others)
    around, left = [], pages * WORDS - len(question.context.split())
    while left > 0:
        assert others, f"{pages} pages are more than there are paragraphs for"
        around.append(others.pop())
        left -= len(around[-1].split())
    place = draw.randint(0, len(around))
    return _join(around[:place], question.context, around[place:])


def _join(before: Sequence[str], own: str, after: Sequence[str]) -> Document:
    first, last = ("".join(f"{each}\n\n" for each in before), "".join(f"\n\n{each}" for each in after))
    return Document(f"{first}{own}{last}", len(first), len(first) + len(own))


def _part(question: Question, questions: Sequence[Question], apart: int | None) -> tuple[list[str], list[str]]:
    """Return the paragraphs of the question's article and all others, in the order of the file."""
    titles = {each.context: each.title for each in questions}
    paragraphs = list(titles)
    own = paragraphs.index(question.context)
    is_near = [
        titles[each] == question.title if apart is None else abs(place - own) <= apart
        for place, each in enumerate(paragraphs)
    ]
    article, others = (
        [each for each, near in zip(paragraphs, is_near, strict=True) if near == wanted] for wanted in (True, False)
    )
    return article, others


def ask(reader: Reader, question: Question, document: Document) -> dict[str, Any]:
    """Read a document and answer, as the reader does; with what it took."""
    served, asked = reader.served, Question("", question.text, document.text, (), "")
    forget_peaks(torch_engine(served).compute.device)
    started = time.perf_counter()
    windows = cut_windows([asked], served.tokenizer, served.config.windows, labelled=False)
    logits = served.logits(windows)
    grid = text_grid(grid_of(windows, [asked.id]), [asked.context])
    pooled = pool_answers(grid, logits, served.config.answers, has_null=True, own_null=OWN_NULL)
    shares = pooled.shares(served.calibration.threshold, served.calibration.temperature)
    start, end = pooled.spans.bounds[pooled.span_at[shares.best[0]]].tolist()
    seconds = time.perf_counter() - started
    return {
        **{"windows": len(windows), "characters": len(document.text), "words": len(document.text.split())},
        **{"seconds": seconds, **_peaks(served)},
        "text": grid.text[start:end],
        "is_own": start < document.end and document.start < end,  # in the question's own paragraph
        "null_odds": float(shares.null_odds[0]),
        "probability": float(shares.answers[shares.best[0]]),
        "null_probability": float(shares.nothing[0]),
    }


def _peaks(served: ServedModel) -> dict[str, float | None]:
    """Return the most memory of the process and of a GPU, in MB."""
    device = torch_engine(served).compute.device
    own = peak_bytes(device) / 1e6 if device.type == "cuda" else None
    return {"process_mb": peak_process_bytes() / 1e6, "device_mb": own}


def write_record(out: Path, drawn: Sequence[Question], served: ServedModel) -> None:
    """Write the scores of all that was measured, and the table."""
    lines, questions = out.with_suffix(".jsonl"), {each.id: each for each in drawn}
    with lines.open(encoding="utf-8") as file:
        settings = json.loads(file.readline())
    by_pages: dict[int, list[dict[str, Any]]] = {}
    for line in read_lines(lines):
        by_pages.setdefault(line["pages"], []).append(line)
    calibration, compute = served.calibration, torch_engine(served).compute
    rows = [{"pages": pages, **_row(found, questions, calibration)} for pages, found in sorted(by_pages.items())]
    record = {"settings": settings, "calibration": calibration.model_dump(mode="json"), "documents": rows}
    made = provenance(compute.name, str(compute.dtype).removeprefix("torch."))
    write_json(out, {**record, "provenance": made.model_dump(mode="json")})
    write_text(out.with_suffix(".md"), to_markdown(table_of(rows)))
    print(to_markdown(table_of(rows)))


def _row(lines: Sequence[dict[str, Any]], questions: dict[str, Question], calibration: Calibration) -> dict[str, Any]:
    asked = [questions[each["id"]] for each in lines]
    cost = {name: median(each[name] for each in lines) for name in ("windows", "words", "characters", "seconds")}
    peaks = {name: _most(each[name] for each in lines) for name in ("process_mb", "device_mb")}
    return {"questions": len(lines), **cost, **peaks, **scores_of(asked, lines, calibration.threshold)}


def _most(values: Iterator[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def scores_of(questions: Sequence[Question], found: Sequence[dict[str, Any]], threshold: float) -> dict[str, Any]:
    """Return official scores at a threshold, how often given answers stand in the own paragraph, and the ECE."""
    texts = {each.id: one["text"] for each, one in zip(questions, found, strict=True)}
    odds = {each.id: one["null_odds"] for each, one in zip(questions, found, strict=True)}
    official = score_squad2(questions, texts, odds, threshold)
    gives = np.array([one["null_odds"] <= threshold for one in found])
    is_own = np.array([one["is_own"] for one in found])
    has_answer = np.array([not each.is_impossible for each in questions])
    shares = np.where(gives, *([one[name] for one in found] for name in ("probability", "null_probability")))
    given = {name: text if is_given else "" for (name, text), is_given in zip(texts.items(), gives, strict=True)}
    exact, f1 = (np.array(list(each.values())) for each in answer_worths(questions, given))
    return {
        **{name: official[name] for name in SCORES if name in official},
        "f1_interval": _interval(f1),
        "given": float(gives.mean()),
        "own_given": float(is_own[gives].mean()) if gives.any() else None,  # of all answers given
        "own_best": float(is_own[has_answer].mean()) if has_answer.any() else None,  # of answerable: the best answer
        "ece": calibration_error(reliability_bins(shares, exact == 1)),
    }


def _interval(worths: Any) -> list[float]:  # noqa: ANN401 (an array)
    """Return the middle 95% of the mean, in percent, where questions are drawn again with replacement."""
    draws = np.random.default_rng(1).integers(len(worths), size=(RESAMPLES, len(worths)))
    return [100 * float(each) for each in np.quantile(worths[draws].mean(axis=1), (0.025, 0.975))]


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table for the model's page."""
    scores = ("F1", "95% interval", "HasAns F1", "NoAns F1", "answers from its paragraph", "ECE")
    memory = _memory(rows)
    cells = tuple(
        (
            NAMES.get(row["pages"], f"{row['pages']}"),
            f"{row['windows']:.0f}",
            f"{row['questions']:,}",
            f"{row['f1']:.1f}",
            "{:.1f} to {:.1f}".format(*row["f1_interval"]),
            *(f"{row[name]:.1f}" if name in row else "" for name in ("HasAns_f1", "NoAns_f1")),
            "" if row["own_given"] is None else f"{row['own_given']:.1%}",
            f"{row['ece']:.3f}",
            f"{row['seconds']:.2f}",
            f"{row[memory]:,.0f}",
        )
        for row in rows
    )
    held = "MB of the GPU" if memory == "device_mb" else "MB of memory"
    return Table("", ("pages", "windows", "questions", *scores, "seconds", held), cells)


def _memory(rows: Sequence[dict[str, Any]]) -> str:
    """Return whose memory counts: the GPU's where there was one."""
    return "device_mb" if any(row["device_mb"] is not None for row in rows) else "process_mb"


def section(records: Sequence[dict[str, Any]], calibration: dict[str, Any]) -> str:
    """Return what a card says of the model with this calibration, and what others took on other machines."""
    own = [each for each in records if each["calibration"] == calibration]
    if not own:
        return ""
    record = max(own, key=lambda each: each["settings"]["questions"])
    rows, made = record["documents"], record["provenance"]
    told = SECTION.format(
        questions=f"{record['settings']['questions']:,}",
        words=WORDS,
        device=made["device"],
        precision=made["precision"],
    )
    notes = [OF_ARTICLES] if any(row["pages"] == ARTICLE for row in rows) else []
    before = [each for each in records if each not in own and each["provenance"]["device"] != made["device"]]
    return "\n".join([told, to_markdown(table_of(rows)), *notes, *map(_took, before)])


def _took(record: dict[str, Any]) -> str:
    longest = max(record["documents"], key=lambda row: row["pages"])
    return BEFORE.format(**longest, memory=longest[_memory([longest])], device=record["provenance"]["device"])


if __name__ == "__main__":
    main()
