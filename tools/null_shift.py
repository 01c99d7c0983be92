"""Takes apart where rows' null odds lie, and why: python tools/null_shift.py DEV OUT RUN...

RUN are run folders of SQuAD 2.0 with their predictions, DEV their dev file. Where `data.also.seen` names questions that
were trained on, these are looked at too. Writes OUT/null_shift.json, a line for each row, split, fraction and seed, and
the means over seeds as OUT/null_shift.md. What it measures is explained at `log_odds_of` and `compare`.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.data.squad import read_squad
from bertvision.files import read_json, write_text
from bertvision.metrics.squad import answer_worths
from bertvision.predictions.files import read_prediction_folder
from bertvision.predictions.logits import load_logits
from bertvision.records import fraction_name
from bertvision.report.renderers import to_markdown
from bertvision.run_folder import folder_of_seed
from bertvision.tables import Cell, Table

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
CONTROLS = ("encoder", "last_adapter")
PROCESSES = 8
DEV, HELD_OUT, SEEN = "dev", "held_out", "seen"
KINDS = {"has_answer": False, "no_answer": True}
# Of the unanswerable questions, the shares that BERT and the head got right, after 0.3 and after one epoch (SPEC 10.5).
PAPERS = ((3798 / 5945, 4793 / 5945), (4406 / 5945, 4961 / 5945))
# What a row is compared by with a control (`compare`): its name, its column, and how it is written.
MOVED = (
    ("moved_f1", "control's F1, moved", ".2f"),
    ("moved_to", "to", ".2f"),
    ("offset", "offset", "+.2f"),
    ("slope", "slope", ".2f"),
    ("correlation", "correlation", ".3f"),
    ("no_answer", "right, no answer", "+.0f"),
    ("moved_no_answer", "control moved", "+.0f"),
    ("has_answer", "right, has answer", "+.0f"),
    ("moved_has_answer", "control moved ", "+.0f"),
)


class Answers(NamedTuple):
    """A row's answers to a split, by question."""

    odds: Floats  # null score less the best span's
    log_odds: Floats  # of "no answer" by the softmax that was trained, start and end added up; NaN where unknown
    chance: Floats  # of "no answer" by that softmax: the mean of start and end
    exact: Floats  # what the best span is worth
    f1: Floats


class Work(NamedTuple):
    """One fraction of one seed, to be taken apart in a process of its own."""

    run: Path
    seed: int
    fraction: float
    golds: dict[str, str]  # by split


def main(dev: str, out: Path, runs: Sequence[Path]) -> None:
    """Take every fraction and seed apart, write the lines, then their means."""
    works = [work for run in runs for work in works_of(run, dev)]
    with ProcessPoolExecutor(max_workers=min(len(works), PROCESSES)) as pool:
        lines = [line for found in pool.map(take_apart, works) for line in found]
    content = ",\n".join(json.dumps(line) for line in lines)
    write_text(out / "null_shift.json", f"[\n{content}\n]\n")
    write_text(out / "null_shift.md", page_of(lines))


def works_of(run: Path, dev: str) -> list[Work]:
    """List the fractions and seeds of a run."""
    experiment = read_json(run / "experiment.json")
    seen = experiment["data"]["also"].get(SEEN)
    golds = {DEV: dev, HELD_OUT: str(run / "held_out.json"), **({} if seen is None else {SEEN: seen})}
    pairs = product(experiment["seeds"], experiment["finetune"]["fractions"])
    return [Work(run, seed, fraction, golds) for seed, fraction in pairs]


def take_apart(work: Work) -> list[dict[str, Any]]:
    """Describe every row of a fraction and seed on every split."""
    seeds = tuple(read_json(work.run / "experiment.json")["seeds"])
    folder = folder_of_seed(work.run, work.seed, seeds, work.fraction)
    rows = sorted(path.name for path in folder.predictions("encoder").parent.iterdir() if path.is_dir())
    lines = []
    for split, gold in work.golds.items():
        place = folder.held_out_predictions if split == HELD_OUT else folder.predictions
        places = {row: place(row) / SEEN if split == SEEN else place(row) for row in rows}
        found = {row: each for row, each in places.items() if (each / "null_odds.json").exists()}
        if not found:
            continue  # nothing was held out
        questions = _questions(gold, str(work.run / "held_out.json") if split == SEEN else None)
        lines += _split_lines(work, split, questions, found)
    return lines


def _split_lines(
    work: Work, split: str, questions: tuple[Question, ...], places: Mapping[str, Path]
) -> Iterator[dict[str, Any]]:
    impossible = np.array([each.is_impossible for each in questions])
    if impossible.all() or not impossible.any():
        return  # too few to tell anything
    answers = {row: read_answers(place, questions) for row, place in places.items()}
    for row, own in answers.items():
        against = {
            control: compare(own, answers[control], impossible)
            for control in CONTROLS
            if control in answers and control != row
        }
        about = {"row": row, "split": split, "fraction": work.fraction, "seed": work.seed}
        yield {**about, **_rounded(describe(own, impossible)), "against": _rounded(against)}


@cache
def _questions(gold: str, without: str | None) -> tuple[Question, ...]:
    """Read a file's questions, less those of another file."""
    left_out = {each.id for each in _questions(without, None)} if without is not None else set()
    return tuple(each for each in read_squad(gold, answers="texts").examples if each.id not in left_out)


def read_answers(place: Path, questions: Sequence[Question]) -> Answers:
    """Read a prediction folder, by question."""
    folder = read_prediction_folder(place, with_candidates=False)
    odds, spans = folder.null_odds or {}, folder.best_spans or {}
    worths = answer_worths(questions, {each.id: spans[each.id] for each in questions})
    log_odds = log_odds_of(folder.logits_path)
    both = np.array([log_odds.get(each.id, (nan, nan)) for each in questions])
    return Answers(
        np.array([odds[each.id] for each in questions]),
        both.sum(axis=1),
        (1 / (1 + np.exp(-both))).mean(axis=1),
        np.array([worths.exact[each.id] for each in questions], dtype=np.float64),
        np.array([worths.f1[each.id] for each in questions], dtype=np.float64),
    )


def log_odds_of(path: Path) -> dict[str, tuple[float, float]]:
    """Return the log-odds of the first token against all others, of start and of end, of questions with one window.

    Training sees these and nothing else, and adding a number to all logits leaves them as they are. Null odds are their
    sum plus what is missing from the best span to all spans together (`spread`), which grows as spans get less certain.
    A joint readout scores pairs, so that it has none.
    """
    grid, logits = load_logits(path)
    if logits.shape[1] != 2:
        return {}
    first, others = grid.window_at[:-1], logits.astype(np.float64)
    null = others[first].copy()
    others[first] = -np.inf
    found = null - np.logaddexp.reduceat(others, first, axis=0)
    counts = np.bincount(grid.question_of, minlength=len(grid.question_ids))
    return {
        grid.question_ids[question]: (float(start), float(end))
        for question, (start, end) in zip(grid.question_of, found, strict=True)
        if counts[question] == 1
    }


def describe(row: Answers, impossible: Flags) -> dict[str, Any]:
    """Say where a row's odds lie on questions with and without an answer, and what that is worth."""
    best, threshold = best_f1(row, impossible)
    kinds = {}
    for name, wanted in KINDS.items():
        own = impossible == wanted
        kinds[name] = {
            "questions": int(own.sum()),
            "abstained": 100 * float((row.odds[own] > 0).mean()),
            "odds": float(row.odds[own].mean()),
            "odds_sd": float(row.odds[own].std()),
            "log_odds": _mean(row.log_odds[own]),
            "spread": _mean(row.odds[own] - row.log_odds[own]),
            "chance": 100 * _mean(row.chance[own]),
        }
    return {
        "f1": score_at(row.f1, row.odds, 0.0, impossible),
        "best_f1": best,
        "best_threshold": threshold,
        "auc": auc_of(row.odds, impossible),
        **kinds,
        "as_papers": [as_papers(row, impossible, *shares) for shares in PAPERS],
    }


def compare(row: Answers, control: Answers, impossible: Flags) -> dict[str, float]:
    """Say how a row's odds follow from a control's, and what the control would do at a moved threshold.

    `slope` and `offset` are those of the line through the odds of both. `moved_to` is the control's threshold at which
    it abstains as often as the row does at 0, and `moved_f1` its F1 there. `no_answer` and `has_answer` count how many
    questions more the row gets exactly right at 0, as the papers' counts do, and `moved_*` how many the control gains
    by moving its threshold.
    """
    slope, offset = np.polyfit(control.odds, row.odds, 1)
    threshold = float(np.quantile(control.odds, 1 - (row.odds > 0).mean(), method="inverted_cdf"))
    counts = {}
    for name, wanted in KINDS.items():
        own = impossible == wanted
        before = _right_at(control, 0.0, impossible)[own].sum()
        counts[name] = float(_right_at(row, 0.0, impossible)[own].sum() - before)
        counts[f"moved_{name}"] = float(_right_at(control, threshold, impossible)[own].sum() - before)
    return {
        "slope": float(slope),
        "offset": float(offset),
        "correlation": float(np.corrcoef(control.odds, row.odds)[0, 1]),
        "moved_to": threshold,
        "moved_f1": score_at(control.f1, control.odds, threshold, impossible),
        **counts,
    }


def as_papers(row: Answers, impossible: Flags, before: float, after: float) -> dict[str, float]:
    """Say what a row loses, in percent of answerable questions, where its threshold alone makes the papers' gain.

    `before` and `after` are shares of the unanswerable questions from which BERT and the papers' head abstained.
    """
    thresholds = [
        float(np.quantile(row.odds[impossible], 1 - share, method="inverted_cdf")) for share in (before, after)
    ]
    lost = {}
    for name in ("exact", "f1"):
        worths = getattr(row, name)[~impossible]
        kept = [np.where(row.odds[~impossible] > each, 0.0, worths).mean() for each in thresholds]
        lost[name] = 100 * float(kept[1] - kept[0])
    return lost


def score_at(worths: Floats, odds: Floats, threshold: float, impossible: Flags) -> float:
    """Return the official score, in percent, at a null threshold."""
    return 100 * float(np.where(odds > threshold, impossible, worths).mean())


def _right_at(row: Answers, threshold: float, impossible: Flags) -> Floats:
    right: Floats = np.where(row.odds > threshold, impossible, row.exact)
    return right


def best_f1(row: Answers, impossible: Flags) -> tuple[float, float]:
    """Return the best F1 at any threshold, and that threshold."""
    order = np.argsort(row.odds, kind="stable")
    gains = np.where(impossible, -1.0, row.f1)[order]
    sums = impossible.sum() + np.concatenate([[0.0], np.cumsum(gains)])
    place = int(sums.argmax())
    return 100 * float(sums[place]) / len(order), float(row.odds[order[max(place - 1, 0)]])


def auc_of(odds: Floats, impossible: Flags) -> float:
    """Return how often a question without an answer has higher odds than one with an answer."""
    ranks = np.empty(len(odds))
    ranks[np.argsort(odds)] = np.arange(1, len(odds) + 1)
    wrong = int(impossible.sum())
    return float((ranks[impossible].sum() - wrong * (wrong + 1) / 2) / (wrong * (len(odds) - wrong)))


def page_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the means over seeds: where odds lie, and what a moved threshold of a control does."""
    parts = []
    for split, fraction in dict.fromkeys((line["split"], line["fraction"]) for line in lines):
        rows: dict[str, list[Mapping[str, Any]]] = {}
        for line in lines:
            if (line["split"], line["fraction"]) == (split, fraction):
                rows.setdefault(line["row"], []).append(line)
        about = f"{split.replace('_', ' ')}, {fraction_name(fraction)}"
        parts += [_odds_table(about, rows), _moved_table(about, rows)]
    return "\n".join(f"**{table.title}**\n\n{to_markdown(table)}" for table in parts)


def _odds_table(about: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    measures = ("abstained", "chance", "odds", "log_odds", "spread", "odds_sd")
    names = [f"{measure}, {'no' if kind == 'no_answer' else 'has'}" for measure in measures for kind in KINDS]
    return Table(
        f"Null odds: {about}",
        ("row", "F1 at 0", "best F1", "at", "AUC", *(name.replace("_", " ") for name in names)),
        tuple(
            (
                row,
                _cell(found, "f1"),
                _cell(found, "best_f1"),
                _cell(found, "best_threshold"),
                _cell(found, "auc", form=".3f"),
                *(_cell(found, kind, measure) for measure in measures for kind in KINDS),
            )
            for row, found in rows.items()
        ),
    )


def _moved_table(about: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    lines = [
        (
            row,
            control,
            _cell(found, "f1"),
            *(_cell(found, "against", control, name, form=form) for name, _, form in MOVED),
        )
        for row, found in rows.items()
        for control in found[0]["against"]
    ]
    heads = ("row", "control", "F1 at 0", *(head for _, head, _ in MOVED))
    return Table(f"Against a control whose threshold is moved: {about}", heads, tuple(lines))


def _cell(lines: Sequence[Mapping[str, Any]], *way: str, form: str = ".2f") -> Cell:
    values: list[Any] = list(lines)
    for key in way:
        values = [each[key] for each in values]
    known = [each for each in values if each is not None]
    return f"{fmean(known):{form}}" if known else ""


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan


def _rounded(content: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_rounded(value) for value in content]
    if isinstance(content, float):
        return None if np.isnan(content) else round(content, 4)
    return content


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(each) for each in sys.argv[3:]])
