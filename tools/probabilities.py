"""Measures what a model that ships answers, and how far its probabilities hold: tools/probabilities.py NAME DATA.json.

NAME is `default` or `base`, DATA a SQuAD 2.0 file that it did not learn from. Null threshold and temperature are those
that ship. Writes results/default_model/probabilities-NAME.json, from which `make pages` writes the section of the
model's card and the table of both models. `--every 6 --out FILE` tries it on every sixth question.
"""

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertvision.evaluate.calibrate import reader_answers
from bertvision.evaluate.score import read_questions
from bertvision.files import sha256_of
from bertvision.hub import CARD
from bertvision.manifest import MANIFEST
from bertvision.model_config import SHIPPED
from bertvision.records import Provenance, provenance
from bertvision.records.runs import Record, read_file, write_file
from bertvision.report.renderers import to_markdown
from bertvision.scoring.calibration import (
    Decision,
    calibration_error,
    judge,
    reliability_bins,
    risks_by_coverage,
    scores_at,
)
from bertvision.scoring.confidence import Answers, Bools, Floats
from bertvision.serving.torch_model import open_model, torch_engine
from bertvision.settings import BASE, DEFAULT, Config
from bertvision.tables import Table
from bertvision.training.device import choose_compute

RESULTS = Path(__file__).parent.parent / "results" / "default_model"
OFFICIAL = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_exact", "best_f1", "best_f1_thresh")
ACCURACIES = (80, 90)  # in percent
COVERAGES = (10, 20, 30, 40, 50)  # in percent of all questions; then all that are given an answer
RANGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of probabilities
RESAMPLES = 1000
MODELS = {  # when to take it, and its encoder
    DEFAULT: ("on a CPU, or for many texts", "MiniLM, 6 layers x 384 (whole, in 8 bits)"),
    BASE: ("for the best answers", "MPNet-base, 12 x 768 (extra `[base]`, 404 MB)"),
}


TRUST = """## How far to trust it

How `bertvision.load("{model}")` answers the {questions} questions of `{data}`, at the null threshold and temperature
above. These scores differ from those of the run, which uses the official decoder. `tools/probabilities.py` measured
them on {device} in {precision}.

{scores}
"Best F1" is at the threshold that is best in hindsight. ECE (expected calibration error) and Brier score judge the
probability of the returned answer, "no answer" included; 0 is best. Intervals are bootstrap intervals over questions
(95%).

By probability, what is given, "no answer" included:

{ranges}
If you want fewer wrong answers, keep those above a probability. The most probable ones, without "no answer":

{coverages}
Coverage at an accuracy is the share of all questions that get an answer if you keep as many of the most probable
answers as possible while that share of them is exactly right (or their mean F1 is that high):

{accuracies}
These thresholds were chosen on these very questions. `bertvision calibrate MODEL_DIR --data FILE --min-accuracy 0.9`
chooses one on your own questions, such that it holds for others like them.
"""


class Given(NamedTuple):
    """What is given to each question, how probable it is, and what it is worth."""

    confidence: Floats
    exact: Floats
    f1: Floats
    is_answer: Bools  # not "no answer"

    def take(self, places: Any) -> "Given":  # noqa: ANN401 (indices or a mask)
        """Return some of them."""
        return Given(*(each[places] for each in self))


class CoveragePoint(Config):
    """The most probable of the answers that are given."""

    coverage: float  # percent of all questions
    probability: float  # of the least probable of them
    exact: float  # percent of them that are exactly right
    f1: float


class AnswersRecord(Record):
    """What a model that ships answers to the questions of a file."""

    model: str
    sha256: str  # of its folder's manifest: which weights and calibration were measured
    data: str
    data_sha256: str
    questions: int
    threshold: float
    temperature: float
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]  # the middle 95% where questions are drawn again with replacement
    curve: list[CoveragePoint]  # the last point has all answers that are given
    reliability: list[tuple[float, float, int]]  # mean probability, share exactly right, number; by 15 bins
    ranges: list[tuple[float, float, int]]  # the same by RANGES
    windows: int
    seconds: float  # of encoder and head for all windows
    provenance: Provenance


def main(name: str, data: str, device: str, precision: Any, every: int, out: Path) -> None:  # noqa: ANN401
    """Answer the questions as `bertvision.load(NAME)` does, and write the record."""
    served = open_model(Path(name), choose_compute(device, precision))
    questions = read_questions(data).questions[::every]
    compute = torch_engine(served).compute
    answering = served.answering(questions)
    served.logits(answering.windows[:256])  # the first batches of a device take longer
    started = time.perf_counter()
    logits = served.logits(answering.windows)
    seconds = time.perf_counter() - started
    answers = reader_answers(questions, answering.layout, logits, served.config.answers, has_null=True)
    decision = Decision(served.calibration.threshold, served.calibration.temperature)
    record = AnswersRecord(
        model=name,
        sha256=sha256_of(SHIPPED[name] / MANIFEST),
        data=Path(data).name,
        data_sha256=sha256_of(Path(data)),
        questions=len(questions),
        **decision._asdict(),
        **judge_answers(answers, decision),
        windows=len(answering.windows),
        seconds=round(seconds, 2),
        provenance=provenance(compute.name, str(compute.dtype).removeprefix("torch.")),
    )
    print(write_file(out, record), record.scores)


def judge_answers(answers: Answers, decision: Decision) -> dict[str, Any]:
    """Return what a record holds on answers at a threshold and a temperature."""
    official, judged = scores_at(answers, decision.threshold), judge([answers], [decision])
    null = answers.shares(answers.is_null, *decision)
    given = given_by(answers, decision)
    scores = {
        **{name: official[name] for name in OFFICIAL},
        "answered": judged.answered,
        "right": judged.right,
        "brier": judged.brier,
        "risk_coverage_area": judged.area,
        "null_ece": calibration_error(reliability_bins(null, answers.is_impossible)),
        **{name: score(given) for name, score in RESAMPLED.items()},
    }
    return {
        "scores": {name: round(float(score), 4) for name, score in scores.items()},
        "intervals": {name: _interval(given, score) for name, score in RESAMPLED.items()},
        "curve": coverage_curve(given),
        "reliability": [(round(each.confidence, 4), round(each.right, 4), each.size) for each in judged.bins],
        "ranges": _ranges(given),
    }


def given_by(answers: Answers, decision: Decision) -> Given:
    """Return what is given at a threshold, with the probabilities that a temperature makes."""
    threshold = decision.threshold
    return Given(
        answers.confidence(*decision),
        answers.worth(answers.exact, threshold),
        answers.worth(answers.f1, threshold),
        ~answers.abstains(threshold),
    )


def coverage_at(given: Given, accuracy: float) -> float:
    """Return to how many of all questions, in percent, the most probable answers are right that often, in percent."""
    answers = given.take(given.is_answer)
    risks = risks_by_coverage(answers.confidence, answers.exact > 0)
    found = np.flatnonzero(risks <= 1 - accuracy / 100 + 1e-12)  # a sum's last bit decides nothing
    return 100.0 * (int(found[-1]) + 1 if len(found) else 0) / len(given.exact)


def coverage_curve(given: Given) -> list[CoveragePoint]:
    """Return points at every percent of all questions, and one at all answers that are given."""
    answers, questions = given.take(given.is_answer), len(given.exact)
    ranked = answers.take(np.argsort(-answers.confidence, kind="stable"))
    counts = {round(questions * percent / 100) for percent in range(1, 101)}
    shown = sorted(count for count in {*counts, len(ranked.exact)} if 0 < count <= len(ranked.exact))
    return [
        CoveragePoint(
            coverage=round(100.0 * count / questions, 4),
            probability=round(float(ranked.confidence[count - 1]), 4),
            exact=round(100.0 * float(ranked.exact[:count].mean()), 4),
            f1=round(100.0 * float(ranked.f1[:count].mean()), 4),
        )
        for count in shown
    ]


def _ranges(given: Given) -> list[tuple[float, float, int]]:
    """Return mean probability, share exactly right and number of what is given with probabilities of each range."""
    places = np.clip(np.searchsorted(RANGES, given.confidence, side="right") - 1, 0, len(RANGES) - 2)
    groups = [given.take(places == place) for place in range(len(RANGES) - 1)]
    return [
        (round(float(each.confidence.mean()), 4), round(float(each.exact.mean()), 4), len(each.exact))
        if len(each.exact)
        else (0.0, 0.0, 0)
        for each in groups
    ]


# Scores that have an interval.
RESAMPLED: dict[str, Callable[[Given], float]] = {
    "f1": lambda given: 100.0 * float(given.f1.mean()),
    "exact": lambda given: 100.0 * float(given.exact.mean()),
    "ece": lambda given: calibration_error(reliability_bins(given.confidence, given.exact > 0)),
    "coverage_at_80": lambda given: coverage_at(given, 80),
    "coverage_at_90": lambda given: coverage_at(given, 90),
}


def _interval(given: Given, score: Callable[[Given], float]) -> tuple[float, float]:
    random, size = np.random.default_rng(1), len(given.exact)
    drawn = [score(given.take(random.integers(size, size=size))) for _ in range(RESAMPLES)]
    low, high = np.percentile(drawn, (2.5, 97.5)).round(4).tolist()
    return low, high


def read_answers(name: str) -> AnswersRecord | None:
    """Read the record of a model that ships, None where there is none; refuse one of another model of that name."""
    path = RESULTS / f"probabilities-{name}.json"
    if not path.is_file():
        return None
    record = read_file(AnswersRecord, path, "a record of answers")
    if record.sha256 != sha256_of(SHIPPED[name] / MANIFEST):
        raise SystemExit(f"{path}: of another model than ships; run tools/probabilities.py {name} DATA, or delete it")
    return record


def trust_section(record: AnswersRecord) -> str:
    """Return the section of a card that says how far answers and probabilities can be trusted."""
    return TRUST.format(
        **{"model": record.model, "questions": f"{record.questions:,}", "data": record.data},
        **{"device": record.provenance.device, "precision": record.provenance.precision},
        **{"scores": to_markdown(_score_table(record)), "ranges": to_markdown(_range_table(record))},
        **{"coverages": to_markdown(_coverage_table(record)), "accuracies": to_markdown(_accuracy_table(record))},
    )


def _score_table(record: AnswersRecord) -> Table:
    shown = {"f1": "F1", "exact": "EM", "best_f1": "best F1", "ece": "ECE", "brier": "Brier score"}
    shown |= {"null_ece": "ECE of “no answer”", "answered": "questions that are given an answer, %"}
    shown |= {"right": "of these answers exactly right, %"}
    rows = [(text, _cell(name, record.scores[name]), _bounds(record, name)) for name, text in shown.items()]
    return Table("", ("score", "value", "95% interval"), tuple(rows))


def _bounds(record: AnswersRecord, name: str) -> str:
    if name not in record.intervals:
        return ""
    low, high = record.intervals[name]
    return f"{_cell(name, low)} to {_cell(name, high)}"


def _cell(name: str, value: float) -> str:
    return f"{value:.3f}" if name.endswith(("ece", "brier")) else f"{value:.1f}"


def _range_table(record: AnswersRecord) -> Table:
    rows = [
        (f"{low:.0%} to {high:.0%}", f"{size:,}", f"{mean:.1%}" if size else "", f"{right:.1%}" if size else "")
        for low, high, (mean, right, size) in zip(RANGES[:-1], RANGES[1:], record.ranges, strict=True)
    ]
    return Table("", ("probability", "questions", "its mean", "exactly right"), tuple(rows))


def _coverage_table(record: AnswersRecord) -> Table:
    last = record.curve[-1]
    shown = [_nearest(record, coverage) for coverage in COVERAGES if coverage < last.coverage]
    rows = [
        (f"{each.coverage:.0f}%", f"{each.probability:.0%}", f"{each.exact:.1f}%", f"{each.f1:.1f}")
        for each in (*shown, last)
    ]
    return Table("", ("of all questions", "probability at least", "exactly right", "F1"), tuple(rows))


def _nearest(record: AnswersRecord, coverage: float) -> CoveragePoint:
    return min(record.curve, key=lambda each: abs(each.coverage - coverage))


def _accuracy_table(record: AnswersRecord) -> Table:
    names = {accuracy: f"coverage_at_{accuracy}" for accuracy in ACCURACIES}
    rows = [
        (
            f"{accuracy}%",
            f"{record.scores[name]:.1f}%",
            _bounds(record, name),
            f"{_coverage_by_f1(record, accuracy):.0f}%",
        )
        for accuracy, name in names.items()
    ]
    return Table("", ("accuracy", "coverage, exactly right", "95% interval", "coverage, by F1"), tuple(rows))


def _coverage_by_f1(record: AnswersRecord, least: float) -> float:
    """Return the largest coverage of the curve at which the answers' mean F1 is no less."""
    return max((each.coverage for each in record.curve if each.f1 >= least), default=0.0)


def models_table(docs: str = "") -> str:
    """Return both models side by side, in Markdown: when to take which; `docs` is where their pages lie."""
    measures = ("F1", "best F1", "EM", "ECE", "answered, 80% right")
    header = ("model", "take it", "encoder, from PyPI", "in the package", *measures)
    rows = [_model_row(name, f"{docs}{name}_model.md") for name in MODELS]
    lines = [" | ".join(row) for row in (header, ("---",) * len(header), *rows)]
    return "".join(f"| {line} |\n" for line in lines)


def _model_row(name: str, page: str) -> tuple[str, ...]:
    size = sum(path.stat().st_size for path in SHIPPED[name].iterdir()) / 1e6
    about = (f"[`{name}`]({page})", *MODELS[name], f"{size:.0f} MB")
    if (record := read_answers(name)) is None:
        return (*about, _run_score(name, "tuned_f1"), _run_score(name, "best_f1"), "", "", "")
    scores = {score: _cell(score, value) for score, value in record.scores.items()}
    return (*about, scores["f1"], scores["best_f1"], scores["exact"], scores["ece"], f"{scores['coverage_at_80']}%")


def _run_score(name: str, score: str) -> str:
    """Return a score of the run, as the card shows it: the official decoder's."""
    found = re.search(rf"^\| {score} \| ([\d.]+) ", (SHIPPED[name] / CARD).read_text(encoding="utf-8"), re.MULTILINE)
    return f"{float(found[1]):.1f}" if found else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SHIPPED)
    parser.add_argument("data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32", help="as users on a CPU have it")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    path = asked.out or RESULTS / f"probabilities-{asked.name}.json"
    main(asked.name, asked.data, asked.device, asked.precision, asked.every, path)
