"""Records of variants of one experiment -> what each way of tuning costs, in Hulburd's tables."""

from collections.abc import Callable, Sequence
from math import log10
from typing import NamedTuple

from bertvision.records import RunRecord
from bertvision.report.renderers import Alignment, Captioned, Table, score_text
from bertvision.report.results import Row, Statistic, statistic, table_rows, training_seconds

FLOOR = 50.0  # Hulburd's: about what an answer of nothing gets on SQuAD 2.0


class Column(NamedTuple):
    """A column's head, its cells, and what it means."""

    head: str
    cell: Callable[[Row], str]
    meaning: str


def cost_tables(records: Sequence[RunRecord], note: str = "") -> list[Captioned]:
    """Lay out what rows cost: frozen and tuned encoders, inserted modules, other output layers, heads.

    Nothing where no row was measured alone (`measure.inference`). `note` tells how they were measured.
    """
    if not any(record.efficiency is not None and record.efficiency.inference is not None for record in records):
        return []
    rows = [row for row in table_rows(records) if row.records[0].efficiency is not None]
    parts = [(caption, [row for row in rows if part_of(row.records[0]) == caption]) for caption in PARTS]
    return [Captioned(f"Costs: {caption}", _table(part), note) for caption, part in parts if part]


def efficiency(f1: float, parameters: int) -> float | None:
    """Give Hulburd's measure, (F1 - 50) / log10(trained parameters); None where that has no sense.

    Below 50 it would be the higher, the more parameters a method needs.
    """
    return (f1 - FLOOR) / log10(parameters) if parameters > 1 and f1 > FLOOR else None


def all_trained(record: RunRecord) -> int | None:
    """Count the weights that were trained for a row, those below a head included; None where a record cannot tell."""
    if record.kind == "encoder":
        return record.parameters.trainable
    # Shipped are all weights that differ from where training started.
    return None if record.efficiency is None else record.efficiency.ship_bytes // 4


def part_of(record: RunRecord) -> str:
    """Tell in which part of the costs a row is shown."""
    config, tune = record.config, record.config.get("tune") or {}
    if record.kind != "encoder":
        return HEADS
    if (config.get("finetune") or {}).get("head") is not None:
        return OUTPUTS
    return INSERTED if tune.get("insert", "none") != "none" or tune.get("parasites") else FROZEN


FROZEN, INSERTED = "which of the encoder's own weights are trained", "modules inserted into the encoder"
OUTPUTS, HEADS = "other output layers", "heads on the frozen encoder"
PARTS = (FROZEN, INSERTED, OUTPUTS, HEADS)


def _table(rows: Sequence[Row]) -> Table:
    number: Alignment = "right"
    shown = [column for column in COLUMNS if any(column.cell(row) for row in rows)]
    return Table(
        header=("model", "fraction", *(column.head for column in shown)),
        alignments=("left", "left", *[number] * len(shown)),
        rows=tuple((row.name, row.fraction_text, *(column.cell(row) for column in shown)) for row in rows),
    )


def _score(key: str) -> Callable[[Row], str]:
    return lambda row: score_text(row.scores.get(key))


def _cost(of: Callable[[RunRecord], float | None], digits: int) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        values = [value for record in row.records if (value := of(record)) is not None]
        mean = statistic(values)
        return "" if mean is None else score_text(Statistic(mean.mean, None), digits)

    return cell


def _seconds_alone(record: RunRecord) -> float | None:
    cost = record.efficiency
    return None if cost is None or cost.inference is None else cost.inference.seconds


def _latency(record: RunRecord) -> float | None:
    cost = record.efficiency
    return None if cost is None or cost.inference is None else 1000 * cost.inference.latency


def _operations(record: RunRecord) -> float | None:
    cost = record.efficiency
    return None if cost is None or cost.inference is None else cost.inference.operations / cost.inference.windows / 1e9


def _ship(record: RunRecord) -> float | None:
    return None if record.efficiency is None else record.efficiency.ship_bytes / 1e6


def _memory(record: RunRecord) -> float | None:
    cost = record.efficiency
    if cost is None or not cost.peak_process_bytes:
        return None
    return (cost.peak_process_bytes if cost.peak_device_bytes is None else cost.peak_device_bytes) / 1e9


def _energy(record: RunRecord) -> float | None:
    cost = record.efficiency
    return None if cost is None or cost.joules is None else cost.joules / 1000


def _efficiency(row: Row) -> str:
    """Write the measure of the mean F1: of single seeds those below 50 would drop out."""
    f1, parameters = row.scores.get("f1"), all_trained(row.records[0])
    if f1 is None or parameters is None:
        return ""
    found = efficiency(f1.mean, parameters)
    return "" if found is None else score_text(Statistic(found, None), 2)


def _rate(row: Row) -> str:
    rate = row.records[0].config.get("finetune", {}).get("lr") if row.kind == "encoder" else None
    return "" if rate is None else f"{rate:g}"


COLUMNS = (
    Column("parameters", lambda row: f"{row.parameters:,}", ""),
    Column("rate", _rate, "learning rate of the fine-tuning, the best on held-out questions where several were tried"),
    Column("EM", _score("exact"), ""),
    Column("F1", _score("f1"), ""),
    Column("train min", _cost(lambda record: training_seconds(record) / 60, 2), "minutes of training"),
    Column("infer s", _cost(_seconds_alone, 2), "seconds of this row alone over dev, from tokens to logits"),
    Column("ms each", _cost(_latency, 2), "milliseconds of one window by itself"),
    Column(
        "GFLOP each", _cost(_operations, 2), "floating-point operations of one window, counted, in thousand millions"
    ),
    Column("ship MB", _cost(_ship, 2), "what differs from the encoder that training started from, in float32"),
    Column("peak GB", _cost(_memory, 2), "memory of the tuning at its peak: the GPU's, or the process's without one"),
    Column("kJ", _cost(_energy, 1), "energy of the tuning, where the device has a meter"),
    Column(
        "efficiency",
        _efficiency,
        "(F1 - 50) / log10(parameters), as Hulburd has it; for a head what was trained in its encoder counts as well; "
        "empty where F1 is 50 or less, because there more parameters would raise it",
    ),
)
