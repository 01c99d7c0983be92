"""The benchmarks run on small work here; what they measure is not asserted."""

import pytest

from benchmarks.run import run_bench


@pytest.mark.slow  # it starts seven processes
def test_a_run_in_two_processes_is_measured_beside_its_plan():
    record = run_bench("processes", ["encoder=bert-2x32", "questions=8", "tokens=512"])
    stages = [f"{stage}, {count}" for stage in ("fine-tune", "heads", "predict") for count in (1, 2)]
    assert [side.name for side in record.sides] == stages
    assert all(record.figures[f"{stage}: measured / foreseen"] > 0 for stage in stages)
    assert record.figures["link: GB/s"] > 0
    assert record.figures["fine-tune: MB of gradients"] > record.figures["heads: MB of gradients"] > 0


def test_a_large_run_is_foreseen_from_a_small_one():
    settings = ["encoder=bert-2x32", "questions=40", "tokens=512", "device=cpu"]
    small, large = (run_bench("plan", [*settings, f"epochs={epochs}"]) for epochs in (1, 2))
    tuning, heads, answering = (side.name for side in small.sides)
    assert (tuning, heads) == ("fine-tune", "heads, states live")
    assert answering.startswith("1 million windows by adapter_386")
    assert large.figures["fine-tune: steps"] == 2 * small.figures["fine-tune: steps"]
    # 20 heads on three states of 32: four of pooling, and of each width two rates of four adapters.
    assert small.figures["heads, states live: MB of gradients"] > 0
