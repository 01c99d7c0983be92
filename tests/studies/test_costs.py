import pytest

from bertvision.records import DataFile, Parameters, Provenance
from bertvision.report.chapters import make_report
from studies.cost_records import CostRecord, Round, RowSize, Speed, Spent, write_costs
from studies.costs import costs_note, costs_table, with_costs
from studies.report import study_chapters, write_study_report

PLACE = Provenance(commit=None, dirty=None, device="one GPU", precision="bf16", python="3.11", versions={})
ROW = RowSize(parameters=Parameters(total=3, trainable=2000, encoder=1), ship_bytes=8, operations=3e9)


def spent(seconds, joules, device):
    return Spent(
        seconds=seconds, data_seconds=seconds / 4, joules=joules, peak_process_bytes=100, peak_device_bytes=device
    )


def costs(method, seconds=(0.02,), heads=None, rows=("encoder",), settings=None):
    rounds = [
        Round(
            tuning=spent(each, 2.0, 4_000_000_000),
            heads=heads,
            rows={row: Speed(seconds=0.001, latency=0.005) for row in rows},
        )
        for each in seconds
    ]
    return CostRecord(
        experiment="efficiency",
        method=method,
        rows=dict.fromkeys(rows, ROW),
        rounds=tuple(rounds),
        num_windows=5,
        settings=settings or {},
        provenance=PLACE,
    )


@pytest.fixture
def make(make_variant):
    """Return a function that invents a variant's record that saw 1,000 windows in an epoch and answered 200."""
    files = {
        name: DataFile(name=name, sha256=None, examples=1, dropped=0, windows=windows)
        for name, windows in {"train": 1000, "dev": 200}.items()
    }
    return lambda *args, **kwargs: make_variant(*args, **kwargs).model_copy(update={"data": files})


def test_a_row_costs_what_its_windows_cost_alone(make):
    (record,) = with_costs([make("lora-lr0.1", fraction=0.3)], [costs("lora")])
    found = record.efficiency
    assert record.seconds.finetune == pytest.approx(300 * 0.02)
    assert record.seconds.heads is not None  # the invented encoder's row has it, and no heads' costs
    assert (found.encoder_seconds, found.data_seconds) == (pytest.approx(4.5), pytest.approx(1.5))
    assert (found.joules, found.peak_device_bytes) == (pytest.approx(600), 4_000_000_000)
    assert found.inference.seconds == pytest.approx(200 * 0.001)
    assert found.inference.latency == 0.005
    assert found.inference.operations == pytest.approx(200 * 3e9)
    assert found.ship_bytes == 8_000_000  # the record's own


def test_a_head_costs_the_tuning_below_it_and_the_pass_that_trained_all_heads(make):
    both = costs("heads", heads=spent(0.01, 1.0, 9_000_000_000), rows=("encoder", "ladder"))
    head = make("heads", row="ladder-lr0.01", heads={"epochs": 2, "data_fraction": 0.5})
    encoder = make("heads", heads={"epochs": 3})
    (below, above) = with_costs([encoder, head], [both])
    assert (below.efficiency.heads_seconds, below.efficiency.peak_device_bytes) == (0.0, 4_000_000_000)
    assert above.efficiency.heads_seconds == pytest.approx(0.5 * 2 * 1000 * 0.01)
    assert above.efficiency.joules == pytest.approx(1000 * 2.0 + 1000 * 1.0)
    assert above.efficiency.peak_device_bytes == 9_000_000_000
    assert above.efficiency.inference.seconds == pytest.approx(0.2)


def test_records_without_measured_costs_stay_as_they_are(make, make_record):
    records = [make("full"), make_record()]
    assert with_costs(records, [costs("lora"), costs("full", seconds=())]) == records


def test_a_report_says_how_costs_were_measured(make, tmp_path):
    records = [make("full"), make("lora"), make("bitfit")]
    measured = [costs("full", (0.02, 0.03, 0.01)), costs("lora")]
    note = costs_note(records, [])
    assert note == ""
    (chapter,) = make_report(with_costs(records, measured), contents=study_chapters(measured)).chapters
    shown = chapter.tables[-1]
    assert chapter.tables[0].note == shown.note  # its column of seconds is of the same costs
    assert "middle of 1 and 3 rounds" in shown.note
    text = "differ by at most 100% in seconds of tuning, 0% in seconds of inference, 0% in milliseconds of one window."
    assert f"{text} Not so: bitfit." in shown.note
    for each in measured:
        write_costs(tmp_path, each)
    write_study_report(records, tmp_path, tmp_path)
    for name in ("report.md", "report.html", "tables.tex"):
        assert "that had one GPU to itself" in (tmp_path / name).read_text()
    assert [row[COLUMN] for row in shown.texts if row[0] == "full"] == [f"{1000 * 0.02 / 60:.2f}"]


COLUMN = 6  # train min


@pytest.mark.parametrize("tokens", [8192, 65536])
def test_a_report_says_so_where_costs_were_measured_in_other_batches(make, tokens):
    record = make("full", finetune={"batch": {"tokens": 8192, "windows": None}})
    note = costs_note([record.model_copy(update={"experiment": "efficiency"})], [measured_in(tokens)])
    text = "Tuning was measured in batches of 65,536 tokens; these rows were tuned in 8,192 tokens."
    assert (text in note) == (tokens == 65536)


def measured_in(tokens):
    return costs("full", (0.02, 0.02), settings={"finetune": {"batch": {"tokens": tokens, "windows": None}}})


@pytest.mark.parametrize("tokens", [16384, 131072])
def test_a_report_says_so_where_rows_were_run_alone_in_other_batches(make, tokens):
    record = make("full", answers={"tokens": 16384}).model_copy(update={"experiment": "efficiency"})
    note = costs_note([record], [costs("full", (0.02, 0.02), settings={"answers": {"batch_tokens": tokens}})])
    text = "Inference was measured in batches of 131,072 tokens; these rows answered in 16,384 tokens."
    assert (text in note) == (tokens == 131072)


def test_a_single_round_says_nothing_of_how_far_rounds_lie_apart(make):
    note = costs_note([make("full").model_copy(update={"experiment": "efficiency"})], [costs("full")])
    assert "measured in turns" in note
    assert "differ" not in note


def test_the_terminals_rows_are_milliseconds_of_a_window():
    table = costs_table([costs("heads", heads=spent(0.01, 1.0, None), rows=("encoder", "ladder"))])
    assert [dict(zip(table.header, row, strict=True)) for row in table.texts] == [
        {
            "model": "heads",
            "trained": "2,000",
            "train ms": "20",
            "infer ms": "1",
            "ms alone": "5",
            "peak GB": "4",
        },
        {
            "model": "heads:ladder",
            "trained": "2,000",
            "train ms": "10",
            "infer ms": "1",
            "ms alone": "5",
            "peak GB": "1e-07",
        },
    ]
