import importlib
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest

PLACES = ("river", "weir", "stone", "hannah")


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    return importlib.import_module("few_rows")


@pytest.fixture
def given(tool, tmp_path, encoder_folder):
    """Small tables of two tasks, and the tiny encoder."""
    rows = [(f"the {one} was built by the {two}", str(int(two < "s"))) for one in PLACES for two in PLACES]
    pairs = [(f"the {one}", f"the {two}", str(float(one == two))) for one in PLACES for two in PLACES]
    for task, table in (("SST-2", rows), ("STS-B", pairs)):
        (tmp_path / task).mkdir()
        for split in ("train", "dev", "test"):
            tool.write_table(tmp_path / task / f"{split}.csv", table)
    return tool.Place(tmp_path, str(encoder_folder), "cpu", float("inf"))


@pytest.mark.parametrize(
    ("task", "side"),
    [
        ("SST-2", "logistic"),
        ("SST-2", "majority"),
        ("STS-B", "logistic"),
    ],
)
def test_every_side_of_a_cell_has_a_score(tool, given, task, side):
    found = tool.measure(tool.Cell("tiny", task, "8", 0, side), given)
    assert found["num_rows"] == 8
    assert found["metric"] == tool.TASKS[task][1]
    assert -100 <= found["score"] <= 100


def test_a_draw_has_the_classes_in_their_shares_and_each_of_them(tool):
    rows = [(f"text {place}", "rare" if place % 50 == 0 else str(place % 2)) for place in range(1000)]
    drawn = tool.draw_rows(rows, tool.Cell("tiny", "SST-2", "100", 3, "default"))
    counts = Counter(row[-1] for row in drawn)
    assert len(drawn) == len(set(drawn)) == 100
    assert 1 <= counts["rare"] <= 3  # 20 of 1,000
    assert abs(counts["0"] - counts["1"]) <= 4  # 480 and 500 of 1,000
    assert len({row[-1] for row in drawn[:3]}) == 3
    others = tool.draw_rows(rows, tool.Cell("tiny", "SST-2", "100", 4, "default"))
    assert set(drawn) != set(others)


def test_first_draws_and_small_sizes_come_first(tool):
    given = Namespace(encoders="a=x,b=y", draws=4, sizes="8,1000,all", tasks="SST-2,STS-B", sides="default,majority")
    cells = list(tool.all_cells(given))
    assert [cell.draw for cell in cells] == sorted(cell.draw for cell in cells)
    assert [cell.rows for cell in cells if cell.draw == 0] == ["8"] * 6 + ["1000"] * 6 + ["all"] * 6
    assert {cell.draw for cell in cells if cell.rows == "all"} == {0}
    assert not any(cell.task == "STS-B" and cell.side == "majority" for cell in cells)


def test_a_report_compares_sides_on_the_draws_that_all_have(tool):
    scores = {("default", 0): 70.0, ("default", 1): 90.0, ("logistic", 0): 60.0}
    records = [
        {"encoder": "a", "task": "SST-2", "rows": "8", "draw": draw, "side": side, "score": value, "seconds": 2.0}
        | ({"models": {"regression": 65.0}} if side == "default" else {})
        for (side, draw), value in scores.items()
    ]
    assert tool.report(records).splitlines() == [
        "| encoder | rows | table | draws | default | logistic | regression |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| a | 8 | SST-2 | 1 | 70.0 | 60.0 | 65.0 |",
        "| a | 8 | mean of 1 |  | 70.0 | 60.0 | 65.0 |",
    ]
