"""The benchmark runs on small work here; what it measures is not asserted."""

from benchmarks.run import run_bench


def test_shards_are_predicted_in_two_sizes():
    record = run_bench("shards", ["rows=2", "times=[1, 2]", "device=cpu"])
    assert [side.name for side in record.sides] == ["1x", "2x"]
    assert [record.figures[f"{name}: documents"] for name in ("1x", "2x")] == [4, 8]
    assert record.figures["2x: tokens a second"] > 0
    assert record.figures["1x: peak memory of the process, MB"] > 0
