"""How cost grows is measured on small work here; what comes out is not asserted."""

import pytest

from benchmarks.figures import write_bench_figure
from benchmarks.growth import exponent
from benchmarks.run import run_bench
from benchmarks.tables import bench_chapter
from bertvision.records import write_bench_record

SMALL = ["hidden=12", "depth=1", "steps=4", "rounds=1", "tokens=[512, 1024]", "layers=[1, 2]", "heads=[1, 2]"]


def test_costs_are_measured_by_every_size_and_drawn(tmp_path):
    record = run_bench("growth", [*SMALL, "windows=[8, 16]"])
    assert [side.name for side in record.sides] == [
        *("tokens 512", "tokens 1024", "layers 1", "layers 2"),
        *("heads 1", "heads 2", "windows 8", "windows 16"),
    ]
    assert record.figures["heads 2: GB at most"] > 0
    assert {f"exponent of {what} by {axis}" for what in ("seconds", "GB") for axis in ("tokens", "windows")} <= set(
        record.figures
    )
    picture = write_bench_figure(write_bench_record(tmp_path, record), record)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"(_generated/{picture.name})" in bench_chapter(record)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_a_power_law(power):
    sizes = [1, 2, 4, 8]
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power, abs=1e-9)
