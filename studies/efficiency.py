"""What each way of tuning costs, in tables with Hulburd's columns."""

from collections.abc import Callable, Sequence
from math import log10

from bertvision.records import RunRecord
from bertvision.report.results import Evidence, Result, ResultColumn, result_table, results_of, training_seconds
from bertvision.tables import Cell, Number, Statistic, Table, score_cell, statistic
from studies.cost_records import CostRecord
from studies.costs import PARTS, all_trained, costs_note, part_of

FLOOR = 50.0  # Hulburd's: about what an answer of nothing gets on SQuAD 2.0


def cost_tables(evidence: Evidence, costs: Sequence[CostRecord] = ()) -> list[Table]:
    """Lay out what rows cost: frozen and tuned encoders, inserted modules, other output layers, heads.

    Nothing where no row was measured alone (`measure.inference`).
    """
    records = evidence.records
    if not any(record.efficiency is not None and record.efficiency.inference is not None for record in records):
        return []
    results = [result for result in results_of(records) if result.records[0].efficiency is not None]
    parts = {part: [result for result in results if part_of(result.records[0]) == part] for part in PARTS}
    note = costs_note(records, costs)
    return [result_table(f"Costs: {part}", _shown(found), found, note) for part, found in parts.items() if found]


def efficiency(f1: float, parameters: int) -> float | None:
    """Return Hulburd's measure, (F1 - 50) / log10(trained parameters); None where that has no sense.

    Below 50 it would be the higher, the more parameters a method needs.
    """
    return (f1 - FLOOR) / log10(parameters) if parameters > 1 and f1 > FLOOR else None


def _shown(results: list[Result]) -> list[ResultColumn]:
    return [*LEADING, *(column for column in COLUMNS if any(column.cell(result) for result in results))]


def _score(key: str) -> Callable[[Result], Cell]:
    return lambda result: score_cell(result.scores.get(key))


def _cost(of: Callable[[RunRecord], float | None], digits: int) -> Callable[[Result], Cell]:
    def cell(result: Result) -> Cell:
        mean = statistic([value for record in result.records if (value := of(record)) is not None])
        return "" if mean is None else score_cell(Statistic(mean.mean, None), digits)

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


def _efficiency(result: Result) -> Cell:
    """Return the measure of the mean F1: of single seeds those below 50 would drop out."""
    f1, parameters = result.scores.get("f1"), all_trained(result.records[0])
    found = None if f1 is None or parameters is None else efficiency(f1.mean, parameters)
    return "" if found is None else Number(found, ".2f")


def _rate(result: Result) -> Cell:
    rate = result.records[0].encoder_lr if result.kind == "encoder" else None
    return "" if rate is None else Number(rate, "g")


LEADING = (
    ResultColumn("model", lambda result: result.name, alignment="left"),
    ResultColumn("fraction", lambda result: result.fraction_text, alignment="left"),
)
COLUMNS = (
    ResultColumn("parameters", lambda result: Number(result.parameters, ",")),
    ResultColumn(
        "rate", _rate, "learning rate of the fine-tuning, the best on held-out questions where several were tried"
    ),
    ResultColumn("EM", _score("exact")),
    ResultColumn("F1", _score("f1")),
    ResultColumn("train min", _cost(lambda record: training_seconds(record) / 60, 2), "minutes of training"),
    ResultColumn("infer s", _cost(_seconds_alone, 2), "seconds of this row alone over dev, from tokens to logits"),
    ResultColumn("ms each", _cost(_latency, 2), "milliseconds of one window by itself"),
    ResultColumn(
        "GFLOP each", _cost(_operations, 2), "floating-point operations of one window, counted, in thousand millions"
    ),
    ResultColumn("ship MB", _cost(_ship, 2), "what differs from the encoder that training started from, in float32"),
    ResultColumn(
        "peak GB", _cost(_memory, 2), "memory of the tuning at its peak: the GPU's, or the process's without one"
    ),
    ResultColumn("kJ", _cost(_energy, 1), "energy of the tuning, where the device has a meter"),
    ResultColumn(
        "efficiency",
        _efficiency,
        "(F1 - 50) / log10(parameters), as Hulburd has it; for a head what was trained in its encoder counts as well; "
        "empty where F1 is 50 or less, because there more parameters would raise it",
    ),
)
