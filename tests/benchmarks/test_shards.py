"""The benchmark runs on small work here; what it measures is not asserted."""

from benchmarks.measuring import save_random
from benchmarks.run import run_bench
from bertvision.experiment import build_experiment
from bertvision.steps.run import run_finetune


def test_shards_are_answered_by_one_process_and_by_two(tmp_path):
    encoder = save_random("bert-2x32", tmp_path / "encoder")
    untuned = {"encoder": encoder, "finetune": {"fractions": [0]}, "heads": {"train": []}, "device": "cpu"}
    (model,) = run_finetune(build_experiment(untuned), tmp_path / "out")
    settings = [f"model={model}", "questions=6", "shards=3", 'ways=["plain", "processes"]', "device=cpu"]
    record = run_bench("shards", settings)
    assert [side.name for side in record.sides] == ["one process", "2 processes"]
    assert [record.figures[f"{side.name}: documents"] for side in record.sides] == [6, 6]
    assert record.figures["2 processes: tokens a second"] > 0
