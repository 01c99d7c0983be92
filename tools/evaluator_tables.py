"""What tools/evaluator.py found, as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertvision.report.renderers import to_markdown
from bertvision.tables import Column, Table

INTERVALS = ("95%, by question", "95%, by article", "p, by article")


def tables_page(made: Mapping[str, Any]) -> str:
    """Write every table under its caption."""
    parts = [
        ("B against A at threshold 0", _compare_table(made["compare"])),
        (
            "B against A, each declining as many questions as the adapter at 0",
            _compare_table(made["compare_declining_alike"]),
        ),
        ("Ensembles at threshold 0, against their best member", _ensemble_table(made["ensemble"])),
        ("Calibration", _calibrate_table(made["calibrate"])),
        ("Odds of “no answer”", _odds_table(made["shift"]["rows"])),
        ("F1 on dev by threshold", _threshold_table(made["shift"]["rows"])),
    ]
    return "\n".join(f"**{title}**\n\n{table}" for title, table in parts)


def _table(names: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows whose first cells are names and whose others are numbers."""
    columns = (*(Column(name, "left") for name in names), *(Column(number) for number in numbers))
    return to_markdown(Table("", columns, tuple(map(tuple, rows))))


def _compare_table(compared: Sequence[Mapping[str, Any]]) -> str:
    rows = [[each["a"], each["b"], *_difference(each, place)] for each in compared for place in (0, 1)]
    return _table(["A", "B", "metric"], ["A", "B", "B - A", *INTERVALS], rows)


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
        rows.append([" + ".join(each["members"]), each["how"], each["best_member"], against[2], best, *against[3:]])
    return _table(["members", "how", "best member"], ["F1", "F1 best", "F1 gained", *INTERVALS], rows)


def _calibrate_table(calibrated: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for each in calibrated:
        for name, text in (("held_out", "held-out, halves"), ("dev", "dev")):
            one = each[name]
            temperatures = ", ".join(f"{value:.2f}" for value in one["after"]["temperatures"])
            eces = [f"{one[when]['ece']:.3f}" for when in ("before", "after")]
            f1s = [f"{one[when]['f1']:.2f}" for when in ("before", "after")]
            rows.append([each["row"], text, temperatures, *eces, *f1s, f"{one['best_f1']:.2f}"])
    numbers = ["temperature", "ECE before", "ECE after", "F1 before", "F1 after", "F1 best"]
    return _table(["row", "judged on"], numbers, rows)


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
    numbers = [f"{of}, {kind}" for of in ("median", "% declined") for kind in ("has answer", "no answer")]
    return _table(["row", "questions"], [*numbers, "AUC"], cells)


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
    return _table(["row"], list(names.values()), cells)
