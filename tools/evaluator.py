"""Runs the evaluator on a run's answers and keeps what it says: python tools/evaluator.py RUN GOLD OUT.

Writes compare.json, calibrate.json, ensemble.json, analyze.json, shift.json and their tables as evaluator.md. RUN is a
run folder with held-out answers; logits are not needed, so that ensembles are made of n-best lists, by their texts.
"""

import json
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertvision.calibration.answers import Answers, Floats, build_answers
from bertvision.calibration.thresholds import scores_at, tune_threshold
from bertvision.files import write_json, write_text
from bertvision.metrics.squad import score_predictions
from bertvision.predictions.files import PredictionFolder, read_prediction_folder, write_predictions
from bertvision.predictions.prediction import Candidate, Prediction
from bertvision.stages.analyze_folder import analyze_folder
from bertvision.stages.calibrate_folder import calibrate_folder
from bertvision.stages.compare_files import CompareConfig, compare_files
from bertvision.tasks.squad import read_squad
from bertvision.tasks.task import Question

FRACTION = "1"
ENCODER, ADAPTER, JOINT, CONTROL = (
    "encoder",
    "adapter_386_shared_skip",
    "adapter_386_shared_skip_joint",
    "last_adapter",
)
PAIRS = ((ENCODER, CONTROL), (ENCODER, ADAPTER), (CONTROL, ADAPTER), (ADAPTER, JOINT))
ENSEMBLES = ((ENCODER, ADAPTER), (ENCODER, ADAPTER, JOINT))
BORROWED = "-borrowed"  # how train-open ends the ids of questions that were asked of another paragraph


class Side(NamedTuple):
    """Questions of one file, and the folder with every row's answers to them."""

    questions: tuple[Question, ...]
    folder: Path

    def read(self, row: str) -> PredictionFolder:
        """Read a row's answers."""
        return read_prediction_folder(self.folder / row)

    def answers(self, row: str) -> Answers:
        """Read a row's answers and compare them with the golds."""
        read = self.read(row)
        return build_answers(self.questions, read.best_spans or {}, read.null_odds or {}, read.candidates or {})


def main(run: Path, gold: str, out: Path) -> None:
    """Make all records, then the page of tables."""
    dev = Side(read_squad(gold, answers="texts").examples, run / "predictions" / FRACTION)
    held_out_gold = str(run / "held_out.json")
    held_out = Side(read_squad(held_out_gold, answers="texts").examples, run / "predictions_held_out" / FRACTION)
    made = {
        "compare": [_compare(dev.folder / a, dev.folder / b, gold) for a, b in PAIRS],
        "calibrate": [_calibrate(dev, held_out, row, gold, held_out_gold) for row in (ENCODER, ADAPTER, JOINT)],
        "ensemble": [each for members in ENSEMBLES for each in _ensembles(dev, held_out, members, gold)],
        "analyze": analyze_folder(dev.folder / ENCODER, gold, dev.folder / ADAPTER, disagreements=0).as_dict(),
        "shift": _shifts(dev, held_out),
    }
    for name, content in made.items():
        write_json(out / f"{name}.json", content)
    write_text(out / "evaluator.md", _page(made))


def _compare(a: Path, b: Path, gold: str) -> dict[str, Any]:
    """Compare two folders; articles are resampled for the second interval, because their questions are alike."""
    compared = {
        unit: compare_files(a, b, gold, CompareConfig(clusters=unit)).as_dict() for unit in ("question", "article")
    }
    return {"a": a.name, "b": b.name, **compared}


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
    """Give the F1 at 0 above that of always declining, as `bertvision ensemble` weighs its members."""
    return max(scores_at(held_out, 0.0)["f1"] - 100 * float(held_out.is_impossible.mean()), 0.01)


def _ensemble(dev: Side, members: Sequence[str], how: str, shares: Floats | None, gold: str) -> dict[str, Any]:
    """Combine n-best lists by their texts, and compare with the member that has the best F1."""
    lists = [_probabilities(dev.read(row)) for row in members]
    predictions = [_combine(question.id, [each[question.id] for each in lists], shares) for question in dev.questions]
    scores = score_predictions(dev.questions, predictions, 0.0)
    best = max(members, key=lambda row: scores_at(dev.answers(row), 0.0)["f1"])
    with tempfile.TemporaryDirectory() as folder:
        write_predictions(Path(folder), predictions)
        compared = _compare(dev.folder / best, Path(folder), gold)
    for unit in ("question", "article"):
        compared[unit]["b"] = how
    return {
        "members": list(members),
        "how": how,
        "shares": None if shares is None else shares.tolist(),
        "scores": scores,
        "best_member": best,
        "against_best_member": compared | {"b": how},
    }


def _probabilities(folder: PredictionFolder) -> dict[str, dict[str, float]]:
    """Give each question's answers with their probabilities; the same text twice counts together."""
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
    """Tell how the odds of "no answer" differ between the held-out questions and dev's, by row."""
    rows = (ENCODER, CONTROL, ADAPTER, JOINT)
    share = float(dev.answers(ADAPTER).declined(0.0).mean())
    is_borrowed = np.array([question.id.endswith(BORROWED) for question in held_out.questions])
    return {
        "questions": {"dev": _counts(dev), "held_out": _counts(held_out) | {"borrowed": int(is_borrowed.sum())}},
        "declined_like": {"row": ADAPTER, "share": share},
        "rows": {row: _shift(dev.answers(row), held_out.answers(row), is_borrowed, share) for row in rows},
    }


def _counts(side: Side) -> dict[str, int]:
    return {"all": len(side.questions), "no_answer": sum(question.is_impossible for question in side.questions)}


def _shift(dev: Answers, held_out: Answers, is_borrowed: np.ndarray[Any, Any], share: float) -> dict[str, Any]:
    tuned, slope = tune_threshold(held_out), _slope(held_out.odds, held_out.is_impossible)
    corrected = tuned - (_logit(dev.is_impossible.mean()) - _logit(held_out.is_impossible.mean())) / slope
    alike = float(np.quantile(dev.odds, 1 - share, method="inverted_cdf"))
    other = ~held_out.is_impossible | ~is_borrowed  # without the borrowed ones
    thresholds = {"at_0": 0.0, "tuned": tuned, "dev_prior": corrected, "declined_alike": alike}
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
    """Give where the two kinds of questions lie, and how often one without an answer has the higher odds (AUC)."""
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


def _page(made: Mapping[str, Any]) -> str:
    parts = [
        ("B against A at threshold 0", _compare_table(made["compare"])),
        ("Ensembles at threshold 0, against their best member", _ensemble_table(made["ensemble"])),
        ("Calibration", _calibrate_table(made["calibrate"])),
        ("Odds of “no answer”", _odds_table(made["shift"]["rows"])),
        ("F1 on dev by threshold", _threshold_table(made["shift"]["rows"])),
    ]
    return "\n".join(f"**{title}**\n\n{table}" for title, table in parts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _compare_table(compared: Sequence[Mapping[str, Any]]) -> str:
    rows = [[each["a"], each["b"], *_difference(each, place)] for each in compared for place in (0, 1)]
    return _table(["A", "B", "metric", "A", "B", "B - A", "95%, by question", "95%, by article", "p, by article"], rows)


def _difference(compared: Mapping[str, Any], place: int) -> list[str]:
    question, article = (compared[unit]["differences"][place] for unit in ("question", "article"))
    intervals = [f"{each['low']:+.2f} to {each['high']:+.2f}" for each in (question, article)]
    scores = [f"{question[name]:.2f}" for name in ("a", "b")]
    return [question["metric"], *scores, f"{question['difference']:+.2f}", *intervals, f"{article['p_value']:.4f}"]


def _ensemble_table(ensembles: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in ensembles:
        against = _difference(each["against_best_member"], 1)
        best = f"{each['scores']['best_f1']:.2f}"
        rows.append([" + ".join(each["members"]), each["how"], against[2], best, each["best_member"], *against[3:]])
    names = ["members", "how", "F1", "F1 best", "best member", "F1 gained"]
    return _table([*names, "95%, by question", "95%, by article", "p, by article"], rows)


def _calibrate_table(calibrated: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in calibrated:
        for name, text in (("held_out", "held-out, halves"), ("dev", "dev")):
            one = each[name]
            temperatures = ", ".join(f"{value:.2f}" for value in one["after"]["temperatures"])
            eces = [f"{one[when]['ece']:.3f}" for when in ("before", "after")]
            f1s = [f"{one[when]['f1']:.2f}" for when in ("before", "after")]
            rows.append([each["row"], text, temperatures, *eces, *f1s, f"{one['best_f1']:.2f}"])
    names = ["row", "judged on", "temperature", "ECE before", "ECE after", "F1 before", "F1 after", "F1 best"]
    return _table(names, rows)


def _odds_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    sides = {"held_out": "held-out", "held_out_not_borrowed": "held-out, not borrowed", "dev": "dev"}
    cells = [
        [
            row,
            text,
            *(f"{each[side][f'median_{kind}']:.1f}" for kind in ("has_answer", "no_answer")),
            *(f"{100 * each[side][f'declined_{kind}']:.1f}" for kind in ("has_answer", "no_answer")),
            f"{each[side]['auc']:.3f}",
        ]
        for row, each in rows.items()
        for side, text in sides.items()
    ]
    medians = ["median, has answer", "median, no answer"]
    return _table(["row", "questions", *medians, "% declined, has answer", "% declined, no answer", "AUC"], cells)


def _threshold_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    names = {
        "at_0": "at 0",
        "tuned": "tuned on held-out",
        "dev_prior": "and with dev's prior",
        "declined_alike": "declining alike",
        "best": "best",
    }
    cells = [
        [row, *(f"{each['f1'][name]:.2f} ({each['thresholds'][name]:+.2f})" for name in names)]
        for row, each in rows.items()
    ]
    return _table(["row", *names.values()], cells)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"expected RUN GOLD OUT, got {json.dumps(sys.argv[1:])}")
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
