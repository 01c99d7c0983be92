"""What README says was found is what the committed records hold."""

import json
from pathlib import Path
from statistics import fmean, median

from bertvision.records import read_records

ROOT = Path(__file__).parents[1]
FOUND = " ".join((ROOT / "README.md").read_text(encoding="utf-8").partition("## Quickstart")[0].split())


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def tagging_f1(experiment, row, fraction=None):
    records = read_records(ROOT / "results" / "ner" / experiment)
    found = [each.scores["f1"] for each in records if (each.model, each.fraction) == (row, fraction)]
    assert len(found) == 5
    return f"{fmean(found):.1f}"


def test_the_scores_of_tagging_are_those_of_the_records():
    mix, adapter, linear = (tagging_f1("features", row) for row in ("mix4", "last_adapter", "last_linear"))
    assert f"four learned mixes of the layers has {mix} F1" in FOUND
    assert f"on the last layer has {adapter}, a linear layer {linear}" in FOUND
    assert f"The fully tuned encoder has {tagging_f1('bert_paper', 'encoder', 5)}" in FOUND


def test_the_gain_on_squad_is_that_of_the_comparison():
    (best,) = (
        each["best"]
        for path in (ROOT / "results" / "squad2" / "efficiency").rglob("differences.json")
        for each in read(path)
        if (each["model"], each["against"]) == ("heads:adapter_386_shared_skip", "heads:last_adapter")
        and each["fraction"] == 1
    )
    expected = f"{best['difference']:+.2f} F1 (95% interval {best['low']:+.2f} to {best['high']:+.2f})"
    assert expected in FOUND


def test_the_time_of_20_heads_is_that_of_the_benchmark():
    sides = read(ROOT / "results" / "bench" / "heads-bert-large-nvidia_h200.json")["sides"]
    seconds = {side["name"]: median(side["seconds"]) for side in sides}
    ratio = seconds["20 heads, one pass"] / seconds["encoder alone"]
    assert f"20 heads train in {ratio:.1f} times the time" in FOUND
