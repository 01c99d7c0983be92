"""Runs the evaluator on a run's answers and keeps what it says: python tools/evaluator.py RUN GOLD OUT.

Writes a JSON file for each verb (compare twice: at threshold 0, and with as many questions declined by each row),
shift.json on thresholds that do not carry over, and all tables as evaluator.md. RUN is a run folder with held-out
answers. Its logits are not needed: unlike `bertvision ensemble`, this combines n-best lists.
"""

import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from evaluator_tables import tables_page

from bertvision.data.example import Question
from bertvision.data.squad import read_squad
from bertvision.evaluate.analyze import analyze_folder
from bertvision.evaluate.calibrate import calibrate_folder
from bertvision.evaluate.calibration import scores_at, tune_threshold
from bertvision.evaluate.compare import CompareConfig, compare_files
from bertvision.evaluate.confidence import Answers, Floats, build_answers
from bertvision.files import write_json, write_text
from bertvision.metrics.squad import score_predictions
from bertvision.predictions.files import PredictionFolder, read_prediction_folder, write_predictions
from bertvision.predictions.prediction import Candidate, Prediction

FRACTION = "1"
ENCODER, ADAPTER, JOINT, CONTROL = (
    "encoder",
    "adapter_386_shared_skip",
    "adapter_386_shared_skip_joint",
    "last_adapter",
)
ROWS = (ENCODER, CONTROL, ADAPTER, JOINT)
PAIRS = ((ENCODER, CONTROL), (ENCODER, ADAPTER), (CONTROL, ADAPTER), (ADAPTER, JOINT))
ENSEMBLES = ((ENCODER, ADAPTER), (ENCODER, ADAPTER, JOINT))
BORROWED = "-borrowed"  # how train-open ends the ids of questions that were asked of another paragraph


class Side(NamedTuple):
    """Questions of one file, and the folder with every row's answers to them."""

    questions: tuple[Question, ...]
    folder: Path

    def read(self, row: str) -> PredictionFolder:
        """Read a row's answers."""
        return _read(self.folder / row)

    def answers(self, row: str) -> Answers:
        """Read a row's answers and compare them with the golds."""
        read = self.read(row)
        return build_answers(self.questions, read.best_spans or {}, read.null_odds or {}, read.candidates or {})


_read = cache(read_prediction_folder)  # its n-best lists take seconds


def main(run: Path, gold: str, out: Path) -> None:
    """Make all records, then the page of tables."""
    dev = Side(read_squad(gold, answers="texts").examples, run / "predictions" / FRACTION)
    held_out_gold = str(run / "held_out.json")
    held_out = Side(read_squad(held_out_gold, answers="texts").examples, run / "predictions_held_out" / FRACTION)
    made = {
        "compare": [_compare(dev.folder / a, dev.folder / b, gold) for a, b in PAIRS],
        "compare_declining_alike": _compare_alike(dev, gold),
        "calibrate": [_calibrate(dev, held_out, row, gold, held_out_gold) for row in (ENCODER, ADAPTER, JOINT)],
        "ensemble": [each for members in ENSEMBLES for each in _ensembles(dev, held_out, members, gold)],
        "analyze": analyze_folder(dev.folder / ENCODER, gold, dev.folder / ADAPTER, disagreements=0).as_dict(),
        "shift": _shifts(dev, held_out),
    }
    for name, content in made.items():
        write_json(out / f"{name}.json", content)
    write_text(out / "evaluator.md", tables_page(made))


def _compare(a: Path, b: Path, gold: str) -> dict[str, Any]:
    """Compare two folders; articles are resampled for the second interval, because their questions are alike."""
    names = {"a": a.name, "b": b.name}  # some folders are temporary
    compared = {
        unit: compare_files(a, b, gold, CompareConfig(clusters=unit)).as_dict() | names
        for unit in ("question", "article")
    }
    return names | compared


def _compare_alike(dev: Side, gold: str) -> list[dict[str, Any]]:
    """Compare rows each of which declines as many of the questions as the adapter does at 0; golds have no say."""
    share = float(dev.answers(ADAPTER).abstains(0.0).mean())
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            answers = dev.answers(row)
            declined = answers.abstains(_threshold_of_share(answers, share))
            given = {
                question.id: "" if none else answers.best_spans[question.id]
                for question, none in zip(dev.questions, declined, strict=True)
            }
            write_json(Path(folder) / row / "predictions.json", given)
        return [_compare(Path(folder) / a, Path(folder) / b, gold) for a, b in PAIRS]


def _threshold_of_share(answers: Answers, share: float) -> float:
    return float(np.quantile(answers.odds, 1 - share, method="inverted_cdf"))


def _calibrate(dev: Side, held_out: Side, row: str, gold: str, held_out_gold: str) -> dict[str, Any]:
    """Calibrate for dev on the held-out answers, and within the held-out articles, one half for the other."""
    return {
        "row": row,
        "dev": calibrate_folder(dev.folder / row, gold).as_dict(),
        "held_out": calibrate_folder(held_out.folder / row, held_out_gold).as_dict(),
    }


def _ensembles(dev: Side, held_out: Side, members: Sequence[str], gold: str) -> list[dict[str, Any]]:
    gains = np.array([_gain(held_out.answers(row)) for row in members])
    shares = {"max": None, "mean": np.full(len(members), 1 / len(members)), "weighted": gains / gains.sum()}
    return [_ensemble(dev, members, how, share, gold) for how, share in shares.items()]


def _gain(held_out: Answers) -> float:
    """Return the F1 at 0 above that of always declining, as `bertvision ensemble` weighs its members."""
    return max(scores_at(held_out, 0.0)["f1"] - 100 * float(held_out.is_impossible.mean()), 0.01)


def _ensemble(dev: Side, members: Sequence[str], how: str, shares: Floats | None, gold: str) -> dict[str, Any]:
    """Combine n-best lists by their texts, and compare with the member that has the best F1."""
    lists = [_probabilities(dev.read(row)) for row in members]
    predictions = [_combine(question.id, [each[question.id] for each in lists], shares) for question in dev.questions]
    scores = score_predictions(dev.questions, predictions, 0.0)
    best = max(members, key=lambda row: scores_at(dev.answers(row), 0.0)["f1"])
    with tempfile.TemporaryDirectory() as folder:
        write_predictions(Path(folder) / how, predictions)
        compared = _compare(dev.folder / best, Path(folder) / how, gold)
    return {
        "members": list(members),
        "how": how,
        "shares": None if shares is None else shares.tolist(),
        "scores": scores,
        "best_member": best,
        "against_best_member": compared,
    }


def _probabilities(folder: PredictionFolder) -> dict[str, dict[str, float]]:
    """Return each question's answers with their probabilities; the same text twice counts together."""
    found: dict[str, dict[str, float]] = {}
    for question, candidates in (folder.candidates or {}).items():
        found[question] = defaultdict(float)
        for each in candidates:
            found[question][each.text] += each.probability
    return found


def _combine(question: str, lists: Sequence[Mapping[str, float]], shares: Floats | None) -> Prediction:
    texts = {text: None for each in lists for text in each}  # in the order in which they are listed
    table = np.array([[each.get(text, 0.0) for each in lists] for text in texts])
    combined = table.max(axis=1) if shares is None else table @ shares
    probability = dict(zip(texts, combined.tolist(), strict=True))
    best = max((text for text in texts if text), key=probability.__getitem__, default="")
    odds = _log(probability.get("", 0.0)) - _log(probability.get(best, 0.0))
    candidates = tuple(Candidate(text, _log(value) / 2, _log(value) / 2, value) for text, value in probability.items())
    return Prediction(question, "" if odds > 0 else best, best, odds, candidates)


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-300))


def _shifts(dev: Side, held_out: Side) -> dict[str, Any]:
    """Return how the odds of "no answer" differ between the held-out questions and dev's, by row."""
    share = float(dev.answers(ADAPTER).abstains(0.0).mean())
    is_borrowed = np.array([question.id.endswith(BORROWED) for question in held_out.questions])
    return {
        "questions": {"dev": _counts(dev), "held_out": _counts(held_out) | {"borrowed": int(is_borrowed.sum())}},
        "declined_like": {"row": ADAPTER, "share": share},
        "rows": {row: _shift(dev.answers(row), held_out.answers(row), is_borrowed, share) for row in ROWS},
    }


def _counts(side: Side) -> dict[str, int]:
    return {"all": len(side.questions), "no_answer": sum(question.is_impossible for question in side.questions)}


def _shift(dev: Answers, held_out: Answers, is_borrowed: np.ndarray[Any, Any], share: float) -> dict[str, Any]:
    tuned, slope = tune_threshold(held_out), _slope(held_out.odds, held_out.is_impossible)
    corrected = tuned - (_logit(dev.is_impossible.mean()) - _logit(held_out.is_impossible.mean())) / slope
    other = ~held_out.is_impossible | ~is_borrowed  # without the borrowed ones
    thresholds = {
        "at_0": 0.0,
        "tuned": tuned,
        "dev_prior": corrected,
        "declined_alike": _threshold_of_share(dev, share),
    }
    return {
        "dev": _separation(dev.odds, dev.is_impossible),
        "held_out": _separation(held_out.odds, held_out.is_impossible),
        "held_out_not_borrowed": _separation(held_out.odds[other], held_out.is_impossible[other]),
        "f1_of_held_out": {"at_0": scores_at(held_out, 0.0)["f1"], "tuned": scores_at(held_out, tuned)["f1"]},
        "thresholds": thresholds | {"best": scores_at(dev, 0.0)["best_f1_thresh"]},
        "f1": {name: scores_at(dev, each)["f1"] for name, each in thresholds.items()}
        | {"best": scores_at(dev, 0.0)["best_f1"]},
    }


def _separation(odds: Floats, is_impossible: np.ndarray[Any, Any]) -> dict[str, float]:
    """Return where the two kinds of questions lie, and how often one without an answer has the higher odds (AUC)."""
    none, some = odds[is_impossible], np.sort(odds[~is_impossible])
    below = (np.searchsorted(some, none, "left") + np.searchsorted(some, none, "right")) / 2
    return {
        "median_no_answer": float(np.median(none)),
        "median_has_answer": float(np.median(some)),
        "declined_no_answer": float((none > 0).mean()),
        "declined_has_answer": float((some > 0).mean()),
        "auc": float(below.mean() / len(some)),
    }


def _slope(odds: Floats, is_impossible: np.ndarray[Any, Any]) -> float:
    """Fit P(no answer) = sigmoid(slope x odds + offset) by Newton's method."""
    inputs, weights = np.stack([odds, np.ones_like(odds)], axis=1), np.zeros(2)
    for _ in range(50):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (chance * (1 - chance))[:, None])
        weights -= np.linalg.solve(curvature, inputs.T @ (chance - is_impossible))
    return float(weights[0])


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"expected RUN GOLD OUT, got {json.dumps(sys.argv[1:])}")
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
