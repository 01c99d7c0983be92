"""The benchmark runs on small work here; what it measures is not asserted."""

import pytest

from benchmarks.run import run_bench
from bertvision.errors import SettingsError


@pytest.mark.slow
def test_a_stage_is_measured_in_a_process_of_its_own_at_two_sizes():
    record = run_bench("memory", ["rows=4", "times=[1, 2]", 'stages=["heads, folder"]', "device=cpu"])
    assert [side.name for side in record.sides] == ["heads, folder, 1x", "heads, folder, 2x"]
    for side in record.sides:
        peak, anonymous = (record.figures[f"{side.name}: {what} MB"] for what in ("peak", "anonymous"))
        assert 0 < anonymous < peak  # the libraries' files are mapped
    assert "heads, folder: kB a question" in record.figures


def test_an_unknown_stage_is_refused():
    with pytest.raises(SettingsError, match="known: tokenise, extract"):
        run_bench("memory", ['stages=["sleep"]'])
