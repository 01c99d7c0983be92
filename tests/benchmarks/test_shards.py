"""The benchmark runs on small work here; what it measures is not asserted."""

from benchmarks.measuring import save_random
from benchmarks.run import run_bench
from bertvision.experiment import build_experiment
from bertvision.stages.run import run_finetune


def test_shards_are_answered_by_the_command(tmp_path):
    encoder = save_random("bert-2x32", tmp_path / "encoder")
    untuned = {"encoder": encoder, "finetune": {"fractions": [0]}, "heads": {"train": []}, "device": "cpu"}
    (model,) = run_finetune(build_experiment(untuned), tmp_path / "out")
    record = run_bench("shards", [f"model={model}", "questions=6", "shards=3", 'ways=["plain"]', "device=cpu"])
    assert [side.name for side in record.sides] == ["one process"]
    assert record.figures["one process: documents"] == 6
    assert record.figures["one process: tokens a second"] > 0
