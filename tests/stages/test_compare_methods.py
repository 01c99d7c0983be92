import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.difference_record import read_differences
from bertvision.errors import FolderError
from bertvision.files import write_json
from bertvision.records import Parameters, Provenance, RunRecord, Seconds, write_record
from bertvision.stages.compare_methods import compare_folder

PLACE = Provenance(commit=None, dirty=None, device="cpu", precision="float32", python="3.11", versions={})


def make_row(out, variant, seed, answers, held_out=50.0):
    """Write a variant's record and its answers as a run does."""
    record = RunRecord(
        experiment=f"study-{variant}",
        task="squad2",
        row="encoder",
        kind="encoder",
        fraction=1.0,
        seed=seed,
        scores={"f1": 0.0, "held_out_f1": held_out},
        epochs=[],
        parameters=Parameters(total=2, trainable=2, encoder=1),
        seconds=Seconds(finetune=1.0, heads=None, predict=1.0),
        schedule_horizon=None,
        data={},
        encoder_fingerprint="",
        config={"variant": variant, "seeds": [1, 2]},
        provenance=PLACE,
    )
    write_record(out / variant / "records", record)
    root = out / variant if seed == 1 else out / variant / "seeds" / str(seed)
    write_json(root / "predictions" / "1" / "encoder" / "predictions.json", answers)


@pytest.fixture
def out(tmp_path, questions):
    """A run folder where `full` answers nothing, and `lora` all in one seed and all but two in the other."""
    golds = {each.id: each.answers[0].text if each.answers else "" for each in questions}
    nothing = dict.fromkeys(golds, "")
    most = {**golds, "q0": "", "q1": ""}
    for seed, answers in ((1, golds), (2, most)):
        make_row(tmp_path / "out", "full", seed, nothing)
        make_row(tmp_path / "out", "lora-lr0.1", seed, answers, held_out=60.0)
        make_row(tmp_path / "out", "lora-lr0.2", seed, nothing, held_out=40.0)
    return tmp_path / "out"


def test_rows_that_a_report_shows_are_compared_question_by_question(out, squad_file):
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert (found.experiment, found.row, found.fraction, found.against) == ("study", "lora", 1.0, "full")
    assert found.seeds == (1, 2)
    # Of eight questions one has no answer, which both get right; two others are right in one seed of two.
    assert found.difference == pytest.approx(100 * (5 + 2 * 0.5) / 8)
    assert 0 < found.low < found.difference < found.high <= 100
    assert found.p_value < 0.01
    assert read_differences(out) == [found]


def test_a_seed_that_one_side_lacks_does_not_count(out, squad_file):
    (out / "full" / "seeds" / "2" / "predictions" / "1" / "encoder" / "predictions.json").unlink()
    (found,) = compare_folder(out, str(squad_file()), "full").differences
    assert found.seeds == (1,)
    assert found.difference == pytest.approx(100 * 7 / 8)


def test_a_method_that_is_not_there_is_named(out, squad_file):
    with pytest.raises(FolderError, match=r"nothing to compare with 'all'; its rows are full, lora; choose one"):
        compare_folder(out, str(squad_file()), "all")


def test_the_command_prints_intervals(out, squad_file):
    shown = CliRunner().invoke(app, ["compare-methods", str(out), "--data", str(squad_file()), "--against", "lora"])
    assert shown.exit_code == 0, shown.output
    assert "full" in shown.output
    assert "-75.00" in shown.output
