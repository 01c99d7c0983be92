import pytest

from bertvision.errors import FolderError
from bertvision.records import Parameters, Provenance
from studies.cost_records import CostRecord, Round, RowSize, Speed, Spent, read_costs, write_costs


def spent(seconds, joules=None, device=None):
    return Spent(
        seconds=seconds, data_seconds=seconds / 10, joules=joules, peak_process_bytes=7, peak_device_bytes=device
    )


def costs(rounds, method="full"):
    return CostRecord(
        experiment="study",
        method=method,
        rows={"encoder": RowSize(parameters=Parameters(total=3, trainable=2, encoder=1), ship_bytes=8, operations=1e9)},
        rounds=tuple(rounds),
        num_windows=10,
        settings={},
        provenance=Provenance(commit=None, dirty=None, device="a GPU", precision="bf16", python="3.11", versions={}),
    )


def turn(tuning, speed=1.0, latency=1.0):
    return Round(tuning=tuning, heads=None, rows={"encoder": Speed(seconds=speed, latency=latency)})


def test_costs_are_those_in_the_middle_and_peaks_the_highest():
    found = costs([turn(spent(9.0, 1.0, 5)), turn(spent(1.0, 3.0, 6), 2.0, 7.0), turn(spent(2.0, 2.0, 4), 3.0, 5.0)])
    assert found.tuning == spent(2.0, 2.0, 6)
    assert found.speed("encoder") == Speed(seconds=2.0, latency=5.0)
    assert found.spread == ((9.0 - 1.0) / 2.0, (3.0 - 1.0) / 2.0, (7.0 - 1.0) / 5.0)


def test_what_was_not_measured_is_none():
    found = costs([turn(None), turn(None)])
    assert (found.tuning, found.heads, found.speed("ladder"), found.spread.tuning) == (None, None, None, None)
    assert costs([turn(spent(1.0))]).spread == (None, None, None)  # one round lies apart from none
    assert costs([turn(spent(1.0, 4.0)), turn(spent(1.0))]).tuning.joules is None


def test_costs_are_found_anywhere_below_a_folder(tmp_path):
    one, other = costs([turn(spent(0.25))]), costs([], method=None)
    write_costs(tmp_path / "results" / "study", one)
    write_costs(tmp_path / "results" / "study", other)
    assert (tmp_path / "results" / "study" / "costs" / "study.json").exists()
    assert read_costs(tmp_path) == [one, other]
    assert read_costs(tmp_path / "nowhere") == []


def test_rounds_lie_as_far_apart_as_those_of_the_unsteadiest_row():
    speeds = [(1.0, 4.0, 2.0, 2.0), (1.5, 4.0, 3.0, 3.0), (1.0, 5.0, 2.0, 2.0)]
    rounds = [
        Round(
            tuning=None,
            heads=None,
            rows={"encoder": Speed(seconds=a, latency=b), "ladder": Speed(seconds=c, latency=d)},
        )
        for a, b, c, d in speeds
    ]
    both = costs(rounds).model_copy(update={"rows": dict.fromkeys(("encoder", "ladder"), costs([]).rows["encoder"])})
    assert both.spread == (None, 0.5, 0.5)  # seconds of either, the latency of the second


def test_costs_of_one_method_in_two_files_are_refused_and_both_are_named(tmp_path):
    for folder in ("small", "large"):
        write_costs(tmp_path / folder, costs([turn(spent(0.25))]))
    with pytest.raises(
        FolderError, match=r"(?s)large/costs/full.json and .*small/costs/full.json: both.*`full`.*report"
    ):
        read_costs(tmp_path)
    assert len(read_costs(tmp_path / "small")) == 1


def test_another_file_among_the_costs_is_named(tmp_path):
    (tmp_path / "costs").mkdir()
    (tmp_path / "costs" / "full.json").write_text("{}")
    with pytest.raises(
        FolderError, match=r"full.json: not a method's costs of this version: `experiment`: Field required; delete it"
    ):
        read_costs(tmp_path)
