from math import log10

import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.records import merge_variants, write_record
from bertvision.report.chapters import make_report
from bertvision.report.results import Evidence, results_of
from studies.efficiency import cost_tables, efficiency
from studies.report import study_chapters

# Hulburd's models, with his F1 and his number of trained parameters, and the efficiency that he prints for them.
HULBURD = [(76.3, 108_311_810, 3.27), (75.2, 42_548_738, 3.30), (72.5, 21_294_338, 3.07), (75.0, 28_388_354, 3.35)]


@pytest.mark.parametrize(("f1", "parameters", "printed"), HULBURD)
def test_efficiency_is_hulburds(f1, parameters, printed):
    assert efficiency(f1, parameters) == pytest.approx(printed, abs=0.006)


def test_nothing_trained_has_no_efficiency():
    assert efficiency(60.0, 0) is None


@pytest.mark.parametrize("f1", [38.1, 50.0])
def test_what_no_answer_at_all_would_reach_has_no_efficiency(f1):
    assert efficiency(f1, 1000) is None


@pytest.mark.parametrize(("scores", "shown"), [((49.0, 53.0), f"{1 / 3:.2f}"), ((45.0, 53.0), "")])
def test_a_rows_efficiency_is_that_of_its_mean_over_seeds(make_variant, scores, shown):
    others = [make_variant("full", f1=80.0, seed=seed) for seed in (1, 2)]
    records = [make_variant("top_0", f1=f1, seed=seed, trainable=1000) for seed, f1 in enumerate(scores, start=1)]
    (table,) = cost_tables(Evidence(merge_variants([*others, *records])))
    assert {row[0]: row[-1] for row in table.texts} == {"full": "10.00", "top_0": shown}


def test_the_command_prints_one_table_of_methods(make_variant, tmp_path):
    for rate, held_out in ((0.1, 60.0), (0.2, 50.0)):
        for method in ("full", "lora"):
            record = make_variant(f"{method}-lr{rate}", held_out=held_out, f1=rate)
            write_record(tmp_path / "out" / method / str(rate) / "records", record)
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "--out", str(tmp_path / "report")])
    lines = shown.stdout.splitlines()
    assert [line for line in lines if line.startswith("efficiency")] == ["efficiency"]
    assert [line.split()[0] for line in lines if line.startswith(("full", "lora"))] == ["full", "lora"]
    assert all(" 0.1 " in line for line in lines if line.startswith(("full", "lora")))


def test_costs_are_laid_out_by_what_was_tuned(make_variant):
    records = [
        make_variant("full", f1=76.0, trainable=1000),
        make_variant("top_0", tune={"train": "none", "insert": "none"}),
        make_variant("houlsby", tune={"train": "none", "insert": "houlsby:64"}),
        make_variant("parasites", tune={"train": "none", "insert": "none", "parasites": {"width": 16}}),
        make_variant("cacnn", finetune={"head": "cacnn_simple"}),
        make_variant("heads", model="ladder"),
    ]
    tables = cost_tables(Evidence(merge_variants(records)))
    assert [[row[0] for row in table.texts] for table in tables] == [
        ["full", "top_0"],
        ["houlsby", "parasites"],
        ["cacnn"],
        ["heads:ladder"],
    ]
    cells = dict(zip(tables[0].header, tables[0].texts[0], strict=True))
    assert cells == {
        "model": "full",
        "fraction": "1",
        "parameters": "1,000",
        "rate": "0.0001",
        "EM": "73.0",
        "F1": "76.0",
        "train min": "2.00",  # 100 + 20 seconds
        "infer s": "12.50",
        "ms each": "4.00",
        "GFLOP each": "3.00",
        "ship MB": "8.00",
        "peak GB": "3.00",
        "efficiency": f"{26 / log10(1000):.2f}",
    }


def test_records_without_measurements_have_no_costs(records):
    assert cost_tables(Evidence(records)) == []


def test_a_report_shows_variants_as_one_chapter_with_their_costs(make_variant):
    (chapter,) = make_report([make_variant("full"), make_variant("top_0", f1=60.0)], contents=study_chapters()).chapters
    assert chapter.title == "efficiency"
    assert [row[-1] for row in chapter.tables[-1].texts] == [f"{20 / 3:.2f}", f"{10 / 3:.2f}"]
    assert "score_by_parameters" in [shown.picture.name for shown in chapter.pictures if shown.drawing is not None]


def test_inference_is_the_rows_own_where_it_was_measured(make_variant, make_record):
    assert [row.inference_seconds for row in results_of([make_variant("full"), make_record()])] == [12.5, 5.0]


def test_a_heads_efficiency_counts_what_was_trained_below_it(make_variant):
    (table,) = cost_tables(Evidence([make_variant("heads", model="ladder", trainable=100)]))
    shipped = 8_000_000 // 4  # weights of four bytes that differ from where training started
    assert table.texts[0][-1] == f"{20 / log10(shipped):.2f}"
