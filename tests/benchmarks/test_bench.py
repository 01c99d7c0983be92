"""Benchmarks run on small work here; what they measure is not asserted."""

import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks.heads import head_variants
from benchmarks.measuring import measure_in_turns, read_bench_data, windows_like_squad
from benchmarks.run import bench, run_bench
from benchmarks.tables import bench_chapter, bench_tables
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.records import BenchRecord, Side, provenance, read_bench_records, write_bench_record

CPU = torch.device("cpu")


def make_record(**more):
    sides = (Side(name="slow", seconds=(4.0, 6.0, 9.0)), Side(name="fast", seconds=(2.0, 2.0, 3.0)))
    where = provenance("an H200", "bf16")
    given = {"name": "heads", "variant": "tiny", "about": "work", "settings": {"rounds": 3, "device": "auto"}}
    return BenchRecord(**{**given, "sides": sides, "figures": {"tokens": 12345.0}, "provenance": where, **more})


def test_sides_are_measured_in_turns_after_a_warm_up():
    calls = []
    sides = {name: lambda name=name: calls.append(name) for name in ("a", "b", "c")}
    measured = measure_in_turns(sides, 2, CPU)
    assert "".join(calls) == "cba" + "abc" + "cba"
    assert [(side.name, len(side.seconds)) for side in measured] == [("a", 2), ("b", 2), ("c", 2)]


def test_work_is_laid_out_anew_before_every_turn():
    calls = []
    sides = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    measure_in_turns(sides, 1, CPU, renew=lambda: calls.append("new"))
    assert calls == ["new", "b", "new", "a", "new", "a", "new", "b"]


def test_windows_are_drawn_anew_from_those_of_the_data_and_spare_ones(encoder):
    data = read_bench_data("squad", encoder, 20, spare=60)
    assert (len(data.windows), len(data.spare)) == (20, 60)
    one, other = data.draw(1), data.draw(2)
    assert len(one) == len({id(window) for window in one}) == 20
    assert [len(window) for window in one] != [len(window) for window in other]


def test_a_number_that_every_side_has_is_a_column():
    figures = {"slow: F1": 70.0, "fast: F1": 71.0, "fast: GB": 3.0}
    sides, numbers = bench_tables(make_record(figures=figures))
    assert sides.texts == (("slow", "6 (4-9)", "1", "70"), ("fast", "2 (2-3)", "0.333 (0.333-0.5)", "71"))
    assert [row[0] for row in numbers.texts] == ["fast: GB"]
    assert len(bench_tables(make_record(figures={}))) == 1


def test_a_ratio_compares_the_same_rounds():
    assert make_record().ratio("slow", "fast") == (3.0, 2.0, 3.0)  # 4/2, 6/2, 9/3


def test_a_record_comes_back_from_disk_and_says_where_it_was_measured(tmp_path):
    path = write_bench_record(tmp_path, make_record())
    assert path.name == "heads-tiny-an_h200.json"
    assert read_bench_records(tmp_path) == [make_record()]


def test_a_chapter_shows_seconds_ratios_and_numbers():
    text = " ".join(bench_chapter(make_record()).split())
    assert "### heads: tiny on an H200" in text
    assert "| fast | 2 (2-3) | 0.333 (0.333-0.5) |" in text
    assert "| tokens | 12,345 |" in text
    assert "3 rounds, middle and range" in text
    assert bench_tables(make_record())[0].texts[0] == ("slow", "6 (4-9)", "1")


def test_a_chapter_of_a_benchmark_that_is_gone_names_the_commit_that_holds_it():
    text = bench_chapter(make_record(name="growth"))
    assert "Benchmark `growth` of commit 4be0c02" in text
    assert "make bench" not in text


@pytest.mark.parametrize("content", [None, "{", '{"name": "heads"}'])
def test_a_folder_without_sound_records_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "one.json").write_text(content)
    with pytest.raises(FolderError):
        read_bench_records(tmp_path)


@pytest.mark.parametrize(
    ("name", "overrides", "told"),
    [("speed", [], "known: heads, states"), ("heads", ["rounds=0"], "rounds"), ("states", ["window=3"], "windows")],
)
def test_wrong_names_and_settings_are_refused(name, overrides, told):
    with pytest.raises(SettingsError, match=told):
        run_bench(name, overrides)


def test_the_command_prints_a_table_and_writes_a_record(encoder_folder, squad_file, tmp_path):
    app = typer.Typer()
    app.command()(bench)
    settings = [f"encoder={encoder_folder}", f"data={squad_file()}", "rounds=1"]
    given = [
        "decode",
        "--out",
        str(tmp_path / "records"),
        "--quiet",
        *(part for each in settings for part in ("--set", each)),
    ]
    shown = CliRunner().invoke(app, given)
    assert shown.exit_code == 0, shown.output
    assert "run_qa's way, and score" in shown.stdout
    (record,) = read_bench_records(tmp_path / "records")
    assert record.name == "decode"
    refused = CliRunner().invoke(app, ["speed"])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert "known: heads, states" in refused.output


def test_windows_are_as_long_as_those_of_squad():
    lengths = [len(window) for window in windows_like_squad(4000, 1000)]
    assert sum(lengths) / len(lengths) == pytest.approx(171, abs=5)  # SPEC 4.1
    assert sorted(lengths)[int(0.98 * len(lengths))] == pytest.approx(348, abs=15)
    assert max(lengths) <= 384


def test_twenty_heads_are_four_pooling_heads_and_eight_adapters_of_each_width():
    names = [head.name for head in head_variants()]
    assert len(names) == len(set(names)) == 20
    assert sum("_64_" in name for name in names) == sum("_386_" in name for name in names) == 8


def test_heads_are_measured_against_the_encoder_plain_code_and_a_pass_each(encoder_folder):
    record = run_bench("heads", [f"encoder={encoder_folder}", "windows=20", "rounds=1", "states_tokens=2000"])
    assert [side.name for side in record.sides] == [
        "encoder alone",
        "live states",
        "20 heads, one pass",
        "20 heads, one pass, plain code",
        "20 heads, a pass each",
    ]
    json.dumps(record.model_dump(mode="json"))


def test_states_are_measured_from_every_source(encoder_folder, tmp_path):
    record = run_bench("states", [f"encoder={encoder_folder}", "windows=16", "rounds=1", f"folder={tmp_path}"])
    sources = ("live", "memory", "folder", "padded")
    heads = ("learned_pooling", "adapter_64_shared")
    assert [side.name for side in record.sides] == [f"{head}, {source}" for head in heads for source in sources]
    assert record.figures["adapter_64_shared: live / folder"] > 0
    assert record.figures["GB padded, float32"] == 2 * record.figures["GB padded, float16"]
    assert list(tmp_path.iterdir()) == [encoder_folder]


def test_pairs_of_glue_are_classified_from_the_first_token(encoder_folder, tmp_path):
    path = tmp_path / "RTE" / "train.tsv"
    path.parent.mkdir()
    rows = [f'{number}\tthe "river was {number}\tin stone\t{"not_" * (number % 2)}entailment' for number in range(20)]
    path.write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows))
    record = run_bench("states", [f"encoder={encoder_folder}", f"data={path}", "windows=16", "rounds=1"])
    assert record.variant == "tiny-rte"
    assert record.figures["windows"] == 16
    assert not any("padded" in side.name for side in record.sides)


def test_a_file_without_pairs_is_refused(encoder, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("a\tb\n1\t2\n")
    with pytest.raises(DataError, match="sentence1"):
        read_bench_data(str(path), encoder, 5)
