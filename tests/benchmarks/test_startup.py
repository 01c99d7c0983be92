"""The benchmark runs on small work here; what it measures is not asserted."""

from benchmarks.run import run_bench

from ..serving.conftest import write_model


def test_commands_are_started_and_those_that_need_torch_named(encoder, tmp_path):
    folder = write_model(encoder, tmp_path / "reader", "squad2", (), "adapter_64_shared_skip")
    record = run_bench("startup", [f"model={folder}", "rounds=1"])
    names = ["bertvision --help", "bertvision score", "bertvision ask", "python alone"]
    assert [side.name for side in record.sides] == names
    assert [record.figures[f"{name}: imports torch"] for name in names] == [0, 0, 1, 0]
    assert record.variant == "reader"
