"""The benchmarks run on small work here; what they measure is not asserted."""

import pytest

from benchmarks.run import run_bench


@pytest.mark.slow  # it starts five processes
def test_a_run_is_measured_in_one_process_and_in_two():
    record = run_bench("processes", ["encoder=bert-2x32", "questions=8", "tokens=512"])
    stages = [f"{stage}, {count}" for stage in ("fine-tune", "heads", "predict") for count in (1, 2)]
    assert [side.name for side in record.sides] == stages
    assert record.figures["link: GB/s"] > 0
