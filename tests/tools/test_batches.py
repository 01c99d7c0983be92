import runpy
from pathlib import Path

from bertvision.records import Parameters, Provenance
from studies.cost_records import CostRecord, Round, RowSize, Speed, Spent, write_costs

TOOL = Path(__file__).parents[2] / "tools" / "batches.py"
PLACE = Provenance(commit=None, dirty=None, device="one GPU", precision="bf16", python="3.11", versions={})
ROW = RowSize(parameters=Parameters(total=3, trainable=2, encoder=1), ship_bytes=8, operations=1e9)


def costs(tuned, answered, seconds):
    rounds = [
        Round(
            tuning=Spent(
                seconds=each, data_seconds=0.0, joules=None, peak_process_bytes=1, peak_device_bytes=4_000_000_000
            ),
            heads=None,
            rows={"encoder": Speed(seconds=each / 2, latency=1.0)},
        )
        for each in seconds
    ]
    return CostRecord(
        experiment="study",
        method="full",
        rows={"encoder": ROW},
        rounds=tuple(rounds),
        num_windows=5,
        settings={"finetune": {"batch": {"tokens": tuned, "windows": None}}, "answers": {"batch_tokens": answered}},
        provenance=PLACE,
    )


def test_every_column_has_the_batches_that_it_was_measured_in(tmp_path):
    write_costs(tmp_path / "small", costs(8192, 16384, (0.002, 0.004, 0.003)))
    write_costs(tmp_path / "large", costs(65536, 131072, (0.001,)))
    runpy.run_path(str(TOOL))["main"](tmp_path / "out.md", [tmp_path / "small" / "costs", tmp_path / "large" / "costs"])
    header, _, row = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in (tmp_path / "out.md").read_text().splitlines()
    )
    assert dict(zip(header, row, strict=True)) == {
        "model": "full",
        "train ms, 8,192": "3.000",
        "apart, 8,192": "67%",
        "infer ms, 16,384": "1.500",
        "peak GB, 8,192": "4.0",
        "train ms, 65,536": "1.000",
        "apart, 65,536": "",
        "infer ms, 131,072": "0.500",
        "peak GB, 65,536": "4.0",
    }
