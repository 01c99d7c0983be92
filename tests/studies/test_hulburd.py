import pytest

from bertvision.records import Apart, DifferenceRecord, Provenance, merge_variants
from bertvision.report.results import Evidence
from studies.cost_records import CostRecord, Round
from studies.costs import costs_note
from studies.hulburd import PAPER, hulburd_tables

TUNINGS = {
    "full": {},
    "top_6": {"tune": {"train": "top:6", "insert": "none", "train_norms": True}},
    "top_0": {"tune": {"train": "none", "insert": "none", "train_norms": True}},
    "wide": {"tune": {"train": "none", "insert": "houlsby:384", "train_norms": True}},
    "full_64": {"tune": {"train": "all", "insert": "houlsby:64", "train_norms": True}},
    "bitfit": {"tune": {"train": "bitfit", "insert": "none", "train_norms": False}},
    "lora": {"tune": {"train": "none", "insert": "lora:4", "train_norms": False}},
}
COSTS = CostRecord(
    experiment="efficiency",
    method="full",
    rows={},
    rounds=(Round(tuning=None, heads=None, rows={}),),
    num_windows=1,
    settings={},
    provenance=Provenance(commit=None, dirty=None, device="a GPU", precision="bf16", python="3.11", versions={}),
)


def cacnn(kind, filters):
    return {"finetune": {"head": {"pooler": {"kind": f"cacnn_{kind}", "filters": filters}}}}


@pytest.fixture
def study(make_variant):
    """Records of some methods with two seeds; the second one of `full` is a point better."""
    outputs = {f"cacnn_{kind}_{n}": cacnn(kind, n) for kind in ("simple", "context") for n in (4, 16, 8)}
    ways = {**TUNINGS, **outputs, "heads": {"heads": {"train": [{"name": "ladder"}]}}}
    scores = {"full": 76.0, "top_6": 74.0}
    return merge_variants(
        make_variant(name, f1=scores.get(name, 70.0) + (seed - 1) * (name == "full"), seed=seed, **ways[name])
        for name in ways
        for seed in (1, 2)
    )


def names(table):
    return [row[0] for row in table.texts]


def test_rows_stand_as_in_the_paper_beside_what_it_prints(study):
    blocks, adapters, _ = hulburd_tables(Evidence(study))
    assert blocks.title == "Hulburd's table 1: trained blocks, fraction 1"
    assert names(blocks) == ["full", "top_6", "top_0"]
    assert names(adapters) == ["full", "full_64", "wide"]
    cells = [dict(zip(blocks.header, row, strict=True)) for row in blocks.texts]
    assert [(row["paper model"], row["paper F1"], row["paper train min"]) for row in cells] == [
        ("L12", "76.3", "255"),
        ("L6", "75.2", "218"),
        ("L0", "53.1", "188"),
    ]
    assert [row[-7] for row in adapters.texts] == ["L12", "L12-A64", "L0-A768"]
    assert cells[1]["F1"] == "74.0 ± 0.0"
    assert cells[1]["infer s"] == "12.50"


def test_differences_to_full_are_paired_by_seed(study):
    blocks, *_ = hulburd_tables(Evidence(study))
    shown = {row[0]: dict(zip(blocks.header, row, strict=True))["against full"] for row in blocks.texts}
    assert shown == {
        "full": "",
        "top_6": "-2.5 ± 0.7",
        "top_0": "-6.5 ± 0.7",
    }  # 74 - 76 and 74 - 77: deviation 1/sqrt 2
    assert "seed by seed" in blocks.note


def test_differences_have_intervals_where_answers_were_compared(study):
    known = {"experiment": "efficiency", "against": "full", "seeds": (1, 2), "p_value": 0.01, "by_seed": (-2.0, -3.0)}
    found = DifferenceRecord(model="top_6", fraction=1.0, difference=-2.5, low=-3.25, high=-1.0, **known)
    other = DifferenceRecord(model="top_0", fraction=0.3, difference=-9.0, low=-9.5, high=-8.5, **known)
    blocks, *_ = hulburd_tables(Evidence(study, differences=[found, other]))
    place = blocks.header.index("against full")
    assert [row[place] for row in blocks.texts] == ["", "-2.5 (-3.2 to -1.0)", "-6.5 ± 0.7"]
    assert "95% interval" in blocks.note


def add_best(records):
    """Return records a best F1 five above their F1, and those of `top_6` seven."""
    gains = [7 if record.model == "top_6" else 5 for record in records]
    scores = [{**each.scores, "best_f1": each.scores["f1"] + gain} for each, gain in zip(records, gains, strict=True)]
    return [each.model_copy(update={"scores": own}) for each, own in zip(records, scores, strict=True)]


def column(table, head):
    return [row[table.header.index(head)] for row in table.texts]


def test_best_f1_stands_beside_f1_in_every_table(study):
    for plain, table in zip(hulburd_tables(Evidence(study)), hulburd_tables(Evidence(add_best(study))), strict=True):
        heads = list(table.header)
        assert heads[heads.index("F1") + 1] == "best F1"
        assert heads[heads.index("against full") + 1] == "best against full"
        assert [head for head in heads if not head.startswith("best ")] == list(plain.header)
        assert len(table.alignments) == len(heads)
        assert ("“Best F1” is" in table.note, "est F1" in plain.note) == (True, False)
    blocks, *_ = hulburd_tables(Evidence(add_best(study)))
    assert column(blocks, "best F1") == ["81.5 ± 0.7", "81.0 ± 0.0", "75.0 ± 0.0"]
    assert column(blocks, "best against full") == ["", "-0.5 ± 0.7", "-6.5 ± 0.7"]  # 81 - 81 and 81 - 82
    assert "anew" not in blocks.note


def test_differences_of_best_f1_have_intervals_where_they_were_compared(study):
    known = {"experiment": "efficiency", "against": "full", "seeds": (1, 2), "fraction": 1.0}
    apart = {"difference": -2.5, "low": -3.25, "high": -1.0, "p_value": 0.01, "by_seed": (-2.0, -3.0)}
    best = Apart(difference=-0.5, low=-1.125, high=0.25, p_value=0.2, by_seed=(0.0, -1.0))
    found = [
        DifferenceRecord(model="top_6", best=best, **known, **apart),
        DifferenceRecord(model="top_0", **known, **apart),
    ]
    blocks, *_ = hulburd_tables(Evidence(add_best(study), differences=found))
    assert column(blocks, "best against full") == ["", "-0.5 (-1.1 to +0.2)", "-6.5 ± 0.7"]
    assert column(blocks, "against full") == ["", *["-2.5 (-3.2 to -1.0)"] * 2]
    assert "chosen anew in every resample" in blocks.note
    assert "anew" not in hulburd_tables(Evidence(add_best(study), differences=found[1:]))[0].note


def test_the_lost_table_is_in_the_order_of_filters(study):
    lost = hulburd_tables(Evidence(study), [COSTS])[-1]
    assert names(lost) == ["full", *(f"cacnn_{kind}_{n}" for kind in ("context", "simple") for n in (4, 8, 16))]
    assert [row[1:3] for row in lost.texts[:2]] == [("", ""), ("context", "4")]
    assert lost.header[-1] == "times full"
    assert {row[-1] for row in lost.texts} == {"1.00"}
    assert lost.note.endswith(f" {costs_note(study, [COSTS])}")


def test_seconds_of_a_shared_pass_are_not_compared(study):
    shared = [each.model_copy(update={"efficiency": None}) for each in study]
    assert {row[-1] for row in hulburd_tables(Evidence(shared))[-1].texts} == {""}


def test_other_tasks_and_other_experiments_have_no_such_table(make_variant, records, study):
    assert hulburd_tables(Evidence(records)) == []
    assert (
        hulburd_tables(Evidence(merge_variants([make_variant("full"), make_variant("bitfit", **TUNINGS["bitfit"])])))
        == []
    )
    assert hulburd_tables(Evidence([record.model_copy(update={"task": "mrpc"}) for record in study])) == []


@pytest.mark.parametrize("printed", PAPER.values(), ids=lambda printed: printed.name)
def test_the_papers_efficiencies_follow_from_its_other_numbers(printed):
    if printed.efficiency is not None:
        from math import log10

        # L0 and L0-A64 are printed from other roundings of F1.
        assert printed.efficiency == pytest.approx((printed.f1 - 50) / log10(printed.parameters), abs=0.02)
