import json

import pytest

from benchmarks.plan import MESSAGE, ProcessesPlan, Stage, plan_processes
from bertvision.experiment import build_experiment


def test_a_ring_sends_each_part_of_the_gradients_twice_through_every_process():
    stage = Stage("fine-tune", seconds=800.0, steps=100, num_bytes=10**9)
    # Eight processes: 14 messages of 125 MB a step, at 50 GB/s 2.5 ms each.
    assert stage.adding_up(8, link=50.0) == pytest.approx(100 * 14 * (0.0025 + MESSAGE))
    assert stage.seconds_in(8, link=50.0) == pytest.approx(800 / 8 + 100 * 14 * (0.0025 + MESSAGE))
    assert stage.adding_up(1, link=50.0) == 0


def test_what_is_not_added_up_is_shared_in_full():
    plan = ProcessesPlan(64, 50.0, "a machine", [Stage("answers", seconds=6400.0)])
    assert plan.as_table().rows[0] == ("answers", "1.8 h", "2 min", "0.0 s", "100%")  # 6,400 s and 100 s


@pytest.fixture
def settings(encoder_folder, squad_file):
    data = str(squad_file())
    return {
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [1], "batch": {"windows": 2}},
        "heads": {"train": ["learned_pooling", "last_linear"], "batch": {"windows": 4}, "epochs": 3},
        "device": "cpu",
    }


def test_a_plan_measures_every_stage(settings, questions, tmp_path):
    plan = plan_processes(build_experiment(settings), tmp_path / "out", 8)
    tuning, heads, answers = plan.stages
    found = json.loads(json.dumps(plan.as_dict()))
    assert [stage["name"] for stage in found["stages"]] == [
        *("fine-tune", "heads, states live", "1 million windows by last_linear")
    ]
    assert all(stage.seconds > 0 for stage in plan.stages)
    assert heads.num_bytes == 4 * (3 + 1 + 2 * (32 * 2 + 2))  # three layers' weights and a scale; two linear readouts
    assert tuning.num_bytes > 100 * heads.num_bytes
    assert tuning.steps * 2 >= len(questions)
    assert heads.steps % 3 == 0
    assert answers.num_bytes == 0
    assert "in a ring at 50 GB/s" in plan.sentence


def test_the_gradients_of_every_rate_are_added_up(settings, tmp_path):
    settings["finetune"], settings["heads"] = {"fractions": []}, {"train": ["last_linear"], "batch": {"windows": 4}}
    (one, _), (three, _) = (
        plan_processes(build_experiment(settings, rates), tmp_path / "out", 8).stages
        for rates in ([], ["heads.settings=[{lr: 0.1}, {lr: 0.2}, {lr: 0.3}]"])
    )
    assert three.num_bytes == 3 * one.num_bytes
