import json
import lzma
import math
import os
import random
import subprocess
import sys

import pytest
from pydantic import ValidationError

import bertvision
from bertvision.errors import FolderError
from bertvision.records import (
    MAIN_SCORES,
    DataFile,
    Parameters,
    Provenance,
    RunRecord,
    Seconds,
    TrainingPoint,
    fraction_name,
    in_order,
    provenance,
    read_record,
    read_records,
    record_path,
    tuned_for,
    write_record,
)
from bertvision.report.measures import TASKS as COLUMNS
from bertvision.tasks import TASKS

CONFIG = {"heads": {"train": [{"name": "learned_pooling"}], "epochs": 1}, "lr": 1e-5, "seeds": [1]}


def make_record(**changes):
    """Invent a whole record; `changes` replace its fields."""
    fields = {
        "experiment": "invented",
        "task": "squad2",
        "model": "learned_pooling",
        "kind": "head",
        "position": 1,
        "fraction": 0.3,
        "seed": 1,
        "scores": {"exact": 100 / 3, "f1": 0.1 + 0.2, "total": 3},
        "epoch_scores": [{"exact": 12.5}, {"exact": 100 / 3}],
        "parameters": Parameters(total=10, trainable=9, encoder=1_000),
        "seconds": Seconds(finetune=1.5, heads=None, predict=0.25),
        "layer_weights": [0.25, 0.75],
        "schedule_horizon": None,
        "notes": ['Œ "quoted"\nand broken'],
        "data": {"dev": DataFile(name="dev.json", sha256=None, examples=3, dropped=0, windows=4)},
        "encoder_fingerprint": "ab" * 32,
        "config": CONFIG,
        "provenance": Provenance(
            commit=None, dirty=None, device="cpu", precision="float32", python="3.11.2", versions={"torch": "2.13.0"}
        ),
    }
    return RunRecord(**(fields | changes))


def refusal(act, *arguments):
    """Return the text of the FolderError that a call ends with, which must be one line."""
    with pytest.raises(FolderError) as caught:
        act(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = make_record()
    path = write_record(tmp_path / "records", record)
    assert read_record(path) == record
    assert read_records(tmp_path) == [record]


def test_a_records_bytes_depend_on_its_content_alone(tmp_path):
    one, other = (write_record(tmp_path / name, make_record()) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert json.loads(one.read_text(encoding="utf-8"))["format"] == 1


@pytest.mark.parametrize(
    ("fraction", "name"), [(None, "given"), (0.0, "0"), (0.1, "0.1"), (0.3, "0.3"), (1.0, "1"), (10.0, "10")]
)
def test_a_records_file_is_named_after_what_sets_it_apart(tmp_path, fraction, name):
    assert fraction_name(fraction) == name
    record = make_record(model="encoder+last_linear-mean", kind="ensemble", fraction=fraction, seed=7)
    path = write_record(tmp_path, record)
    assert path == tmp_path / f"encoder+last_linear-mean-{name}-seed7.json"
    assert path == record_path(tmp_path, record.model, fraction, 7)
    assert path.is_file()


def test_records_are_found_at_any_depth_and_other_files_are_passed_over(tmp_path):
    for number, folder in enumerate((tmp_path, tmp_path / "a", tmp_path / "a" / "b" / "records")):
        write_record(folder, make_record(experiment=f"e{number}"))
    (tmp_path / "predictions.json").write_text("{}")
    (tmp_path / ".learned_pooling-1-seed1.json").write_text("half")
    (tmp_path / ".learned_pooling-1-seed1.json.part").write_text("half")
    (tmp_path / "report-seed1.md").write_text("no JSON")
    assert [record.experiment for record in read_records(tmp_path)] == ["e0", "e1", "e2"]


def pack(path, *records, cut=None):
    """Write records as an experiment's packed file has them; the file may break off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{each.model_dump_json()}\n" for each in records)
    path.write_bytes(lzma.compress(lines.encode())[:cut])


def test_packed_records_are_read_like_those_with_a_file_each(tmp_path):
    one, other, third = (make_record(experiment=name) for name in ("e1", "e2", "e3"))
    pack(tmp_path / "a" / "records.jsonl.xz", third, one)
    write_record(tmp_path / "b" / "records", other)
    assert bertvision.read_records(tmp_path) == [one, other, third]
    assert bertvision.read_records(tmp_path / "a") == [one, third]


def test_a_packed_file_that_breaks_off_is_refused(tmp_path):
    path = tmp_path / "records.jsonl.xz"
    pack(path, make_record(), cut=-40)
    assert refusal(read_records, tmp_path).startswith(f"{path}: damaged (")


def test_a_packed_record_of_another_version_is_refused_by_its_field(tmp_path):
    path = tmp_path / "records.jsonl.xz"
    path.write_bytes(lzma.compress(make_record().model_dump_json().replace('"format":1', '"format":9').encode()))
    assert refusal(read_records, tmp_path).startswith(f"{path}: a line is not a record of this version: `format`: ")


def rows_of(*names_and_kinds):
    """Rows of one fraction, in the order in which the experiment lists them."""
    return [make_record(model=row, kind=kind, position=place) for place, (row, kind) in enumerate(names_and_kinds)]


def shuffled(records):
    mixed = list(records)
    random.Random(5).shuffle(mixed)
    assert mixed != list(records)
    return mixed


def test_records_are_ordered_by_experiment_then_fraction_then_seed():
    places = [
        ("a", None, 2),
        ("a", 0.0, 1),
        ("a", 0.3, 1),
        ("a", 0.3, 2),
        ("a", 2.0, 1),
        ("a", 10.0, 1),
        ("b", None, 1),
    ]
    records = [make_record(experiment=name, fraction=fraction, seed=seed) for name, fraction, seed in places]
    assert in_order(shuffled(records)) == records


def test_rows_are_ordered_encoder_heads_controls_ensembles_and_each_kind_as_configured():
    encoder, control, pooling, adapter, mean, plain = records = rows_of(
        ("encoder", "encoder"),
        ("last_linear", "control"),
        ("learned_pooling", "head"),
        ("adapter_64_shared", "head"),
        ("encoder+learned_pooling-mean", "ensemble"),
        ("encoder+adapter_64_shared", "ensemble"),
    )
    assert in_order(shuffled(records)) == [encoder, pooling, adapter, control, mean, plain]


def test_the_order_read_does_not_depend_on_the_order_written(tmp_path):
    records = rows_of(("encoder", "encoder"), ("z", "head"), ("y", "head"), ("x", "control"))
    for record in shuffled(records):
        write_record(tmp_path, record)
    assert read_records(tmp_path) == records


def spoiled(**changes):
    return {key: value for key, value in (make_record().model_dump(mode="json") | changes).items() if value != "gone"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"format": 1, "row', "damaged ("),
        (b"", "damaged ("),
        (b"\xff", "damaged ("),
        (b"[]", "not a record of this version: ``: "),
        (spoiled(format=2), "not a record of this version (format 2): `format`: "),
        (spoiled(model="gone"), "not a record of this version (format 1): `model`: Field required"),
        (spoiled(speed=3), "not a record of this version (format 1): `speed`: Extra inputs are not permitted"),
        (spoiled(seed="1"), "not a record of this version (format 1): `seed`: Input should be a valid integer"),
        (
            spoiled(kind="network"),
            "not a record of this version (format 1): `kind`: Input should be 'baseline', 'encoder'",
        ),
        (
            spoiled(scores={"f1": math.nan}),
            "not a record of this version (format 1): `scores.f1`: Input should be a fin",
        ),
    ],
)
def test_a_damaged_record_is_named_in_one_line(tmp_path, content, problem):
    write_record(tmp_path, make_record())
    path = tmp_path / "encoder-1-seed1.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert refusal(read_record, path).startswith(f"{path}: {problem}")
    assert refusal(read_records, tmp_path).startswith(f"{path}: {problem}")


def test_a_folder_that_is_missing_or_has_no_records_is_named(tmp_path):
    assert refusal(read_records, tmp_path / "gone").startswith(f"{tmp_path / 'gone'}: no such folder; give a run's")
    (tmp_path / "predictions.json").write_text("{}")
    assert refusal(read_records, tmp_path).startswith(f"{tmp_path}: no records (*-seed*.json) in it; ")


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number_makes_no_record(score):
    with pytest.raises(ValidationError, match="finite"):
        make_record(scores={"f1": score})


@pytest.mark.parametrize(
    ("given", "commit", "dirty"), [("0123abc", "0123abc", False), ("0123abc-dirty", "0123abc", True)]
)
def test_a_copy_without_its_repository_is_told_its_commit(monkeypatch, given, commit, dirty):
    monkeypatch.setenv("BERTVISION_COMMIT", given)
    found = provenance("cpu", "float32")
    assert (found.commit, found.dirty, found.device, found.precision) == (commit, dirty, "cpu", "float32")
    assert {"bertvision", "torch", "transformers"} <= found.versions.keys()


def test_where_git_is_absent_the_commit_stays_unknown(tmp_path):
    # In a process of its own: one asks git once.
    asks = "from bertvision.records import provenance; print(provenance('cpu', 'float32').commit)"
    environment = {name: value for name, value in os.environ.items() if name != "BERTVISION_COMMIT"}
    told = subprocess.run(
        [sys.executable, "-c", asks], env={**environment, "PATH": str(tmp_path)}, capture_output=True, check=True
    )
    assert told.stdout == b"None\n"


@pytest.mark.parametrize(("fraction", "told"), [(0.3, "0.3 of an epoch"), (1.0, "1 epoch"), (3.0, "3 epochs")])
def test_how_long_an_encoder_was_tuned_is_told_as_one_would_say_it(fraction, told):
    assert tuned_for(fraction) == told


def test_a_record_keeps_the_course_of_its_training(tmp_path):
    points = [
        TrainingPoint(step=10, epoch=0.5, loss=0.69, score=None, lr=1e-3, seconds=0.25),
        TrainingPoint(step=20, epoch=1.0, loss=None, score=75.0, lr=5e-4, seconds=0.5),
    ]
    path = write_record(tmp_path, make_record(training=points))
    assert read_record(path).training == points


def test_a_record_from_before_training_was_recorded_can_be_read(tmp_path):
    path = write_record(tmp_path, make_record())
    older = {key: value for key, value in json.loads(path.read_text()).items() if key != "training"}
    (tmp_path / "sha256.json").unlink()
    path.write_text(json.dumps(older))
    assert read_record(path).training == []


def test_every_task_is_judged_by_one_of_its_scores_and_shows_it():
    assert MAIN_SCORES.keys() == TASKS.keys()
    for task, score in MAIN_SCORES.items():
        assert score in TASKS[task].scores
        assert score in [column.key for column in COLUMNS[task]]
