"""Measures shipped models on text that is not Wikipedia: python tools/elsewhere.py NAME... (default, base).

Asks each model the questions of data/elsewhere.json, as `load`, `ask` and `serve` would, at the threshold and
temperature that it ships with. Writes results/default_model/elsewhere.json; `make pages` puts it into the model's card.
docs/elsewhere.md tells how the questions were made.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from arguments import read_arguments

from bertvision.data.example import Question
from bertvision.evaluate.calibrate import reader_answers
from bertvision.evaluate.score import read_questions
from bertvision.files import read_json, sha256_of, write_json
from bertvision.model_config import SHIPPED
from bertvision.records.runs import provenance
from bertvision.report.renderers import to_markdown
from bertvision.scoring.bootstrap import Draw, bounds_of, resample_means
from bertvision.scoring.calibration import Decision, judge, scores_at
from bertvision.scoring.confidence import Answers, Floats
from bertvision.serving.torch_model import open_model, torch_engine
from bertvision.tables import Table
from bertvision.training.device import choose_compute

ROOT = Path(__file__).parent.parent
DATA = ROOT / "data/elsewhere.json"
RECORD = ROOT / "results/default_model/elsewhere.json"
OFFICIAL = ("f1", "exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "best_f1", "best_f1_thresh")
ROWS = {
    "f1": "F1",
    "exact": "EM",
    "HasAns_f1": "F1 of questions that have an answer",
    "span_f1": "the same if it never abstained",
    "NoAns_f1": "abstains where there is no answer (%)",
    "best_f1": "F1 at the best threshold in hindsight",
    "answered": "questions that it answers (%)",
    "right": "of these answers, exactly as marked (%)",
    "given_f1": "F1 of these answers",
    "ece": "ECE",
    "brier": "Brier score",
}
PART_SCORES = ("HasAns_f1", "span_f1", "answered")
SECTION = """## Elsewhere

On text that is not Wikipedia: {questions} questions that people wrote in the FAQs of seven free programs, {impossible}
of them put to a passage that does not answer them. `docs/elsewhere.md` tells how they were chosen and marked, and why
the numbers are rough. Asked as `ask` asks, at the threshold and temperature that it ships with:

{table}
Expect less than on Wikipedia. It answers {answered:.0f} of 100 such questions. Of 100 answers that it gives,
{right:.0f} are exactly what was marked, and {overlap:.0f} share a word with it. Its probabilities are off by {ece:.2f}
on average (ECE).
"""


def main(names: list[str]) -> None:
    """Measure the models; what the record says of others stays."""
    found = {name: measure(name) for name in names}  # before anything is written: the tree stays as committed
    write_json(RECORD, {**(read_json(RECORD) if RECORD.is_file() else {}), **found})
    for each in found.values():
        print(to_markdown(_table(each)))


def measure(name: str) -> dict[str, Any]:
    """Return what a model scores, and which files scored it."""
    served = open_model(Path(name), choose_compute("auto", "float32"))
    questions = read_questions(str(DATA)).questions
    answering = served.answering(questions)
    logits = served.logits(answering.windows)
    answers = reader_answers(questions, answering.layout, logits, served.config.answers, has_null=True)
    decision = Decision(served.calibration.threshold, served.calibration.temperature)
    compute = torch_engine(served).compute
    return {
        "data": {
            "questions": len(questions),
            "impossible": int(answers.is_impossible.sum()),
            "sha256": sha256_of(DATA),
        },
        "model": sha256_of(SHIPPED[name] / "sha256.json"),
        **decision._asdict(),
        "scores": scores_of(answers, decision),
        "intervals": _intervals(answers, decision.threshold),
        "by_source": _by(answers, decision, [each.title for each in questions]),
        "by_question": _by(answers, decision, list(map(_word_of, questions))),
        "provenance": provenance(compute.name, compute.precision).model_dump(mode="json"),
    }


def scores_of(answers: Answers, decision: Decision) -> dict[str, float]:
    """Return official scores at a decision, what the answers given are worth, and how good its probabilities are."""
    official, judged = scores_at(answers, decision.threshold), judge([answers], [decision])
    given = answers.f1[~answers.abstains(decision.threshold)]
    return {
        **{name: official[name] for name in OFFICIAL},
        "span_f1": 100 * float(answers.f1[~answers.is_impossible].mean()),
        "answered": judged.answered,
        "right": judged.right,
        "given_f1": 100 * float(given.mean()),
        "overlap": 100 * float((given > 0).mean()),
        "ece": judged.error,
        "brier": judged.brier,
        "risk_coverage_area": judged.area,
    }


def section(found: dict[str, Any]) -> str:
    """Return what a card says of it."""
    scores = found["scores"]
    return SECTION.format(**found["data"], table=to_markdown(_table(found)), **scores)


def results(record: dict[str, Any]) -> str:
    """Return all models' scores side by side: of all questions, by what is asked for, and by source."""
    heads = tuple(record)
    scores = [(said, *(_cell(name, record[model]["scores"][name]) for model in heads)) for name, said in ROWS.items()]
    groups = [row for name in ("by_question", "by_source") for row in _group_rows(record, name)]
    told = tuple(
        f"{model}: {column}" for model in heads for column in ("F1", "F1 if it never abstained", "answers (%)")
    )
    return "\n".join(
        [
            to_markdown(Table("", ("score", *heads), tuple(scores))),
            "By what is asked for and by source; F1 is that of questions that have an answer.\n",
            to_markdown(Table("", ("questions", "with an answer", *told), tuple(groups))),
        ]
    )


def _intervals(answers: Answers, threshold: float) -> dict[str, tuple[float, float]]:
    """Return the middle 95% where the questions are drawn again with replacement."""
    worth, is_given = 100 * answers.worth(answers.f1, threshold), ~answers.abstains(threshold)
    drawn = {
        "f1": worth,
        "exact": 100 * answers.worth(answers.exact, threshold),
        "HasAns_f1": worth[~answers.is_impossible],
        "span_f1": 100 * answers.f1[~answers.is_impossible],
        "NoAns_f1": worth[answers.is_impossible],
        "answered": 100.0 * is_given,
        "right": 100 * answers.exact[is_given],
        "given_f1": 100 * answers.f1[is_given],
    }
    return {name: _bounds(values) for name, values in drawn.items()}


def _bounds(values: Floats) -> tuple[float, float]:
    return bounds_of(resample_means(values, Draw(np.arange(len(values)), resamples=10_000, seed=1)))


def _by(answers: Answers, decision: Decision, groups: list[str]) -> dict[str, dict[str, float]]:
    """Return the scores of every group of questions."""
    parts = {group: answers.take(np.flatnonzero(np.array(groups) == group)) for group in dict.fromkeys(groups)}
    return {group: {"questions": len(part.questions), **_part_scores(part, decision)} for group, part in parts.items()}


def _part_scores(part: Answers, decision: Decision) -> dict[str, float]:
    is_possible, judged = ~part.is_impossible, judge([part], [decision])
    worth = part.worth(part.f1, decision.threshold)[is_possible]
    return {
        "f1": judged.f1,
        "HasAns_total": int(is_possible.sum()),
        "HasAns_f1": 100 * float(worth.mean()),
        "span_f1": 100 * float(part.f1[is_possible].mean()),
        "answered": judged.answered,
    }


def _word_of(question: Question) -> str:
    """Return what is asked for: a way or a reason, which seldom is a name, or something else."""
    found = re.search(r"\b(how(?! (many|fast|stable))|why)\b", question.text.lower())
    return "others" if found is None else "how, why"


def _group_rows(record: dict[str, Any], name: str) -> list[tuple[str, ...]]:
    first, *_ = record.values()
    return [
        (
            f"{group} ({part['questions']})",
            str(part["HasAns_total"]),
            *(f"{found[name][group][score]:.1f}" for found in record.values() for score in PART_SCORES),
        )
        for group, part in first[name].items()
    ]


def _table(found: dict[str, Any]) -> Table:
    scores, intervals = found["scores"], found["intervals"]
    bounds = {name: "{:.1f} to {:.1f}".format(*pair) for name, pair in intervals.items()}
    rows = tuple((said, _cell(name, scores[name]), bounds.get(name, "")) for name, said in ROWS.items())
    return Table("", ("score", "value", "95% interval"), rows)


def _cell(name: str, value: float) -> str:
    return f"{value:.3f}" if name in ("ece", "brier") else f"{value:.1f}"


if __name__ == "__main__":
    main(*read_arguments(__doc__, "NAME..."))
