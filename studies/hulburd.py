"""Hulburd's tables of SQuAD 2.0: freezing, Houlsby adapters, and the one of CACNN that was lost."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertvision.records import Apart, DifferenceRecord, RunRecord
from bertvision.report.results import Evidence, Result, ResultColumn, full_results, largest_fraction, result_table
from bertvision.tables import Cell, Number, Table, score_cell, statistic
from studies.cost_records import CostRecord
from studies.costs import costs_note
from studies.efficiency import COLUMNS

PAPER_NOTE = (
    "“Paper” is what Hulburd prints for BERT-base, cased, tuned for three epochs on a Titan RTX; all else is of this "
    "report's encoder and fraction."
)
LOST_NOTE = (
    "Hulburd's own table of CACNN is lost; what is left of it is that its F1 lay below that of adapters, and that "
    "inference took 200 seconds or, elsewhere, 80% longer than BERT alone."
)


class Printed(NamedTuple):
    """A model of the paper with the numbers that are printed for it."""

    name: str
    parameters: int
    exact: float
    f1: float
    minutes: int  # of training
    seconds: str  # of inference
    efficiency: float | None


# By what is trained and what is inserted; "wide" adapters are as wide as the encoder's states.
PAPER: dict[tuple[str, str], Printed] = {
    ("all", "none"): Printed("L12", 108_311_810, 73.3, 76.3, 255, "145-150", 3.27),
    ("top:6", "none"): Printed("L6", 42_548_738, 72.3, 75.2, 218, "145-150", 3.30),
    ("top:3", "none"): Printed("L3", 21_294_338, 69.3, 72.5, 203, "145-150", 3.07),
    ("top:1", "none"): Printed("L1", 7_124_738, 62.8, 65.9, 193, "145-150", 2.32),
    ("none", "none"): Printed("L0", 39_938, 52.1, 53.1, 188, "145-150", 0.67),
    ("all", "houlsby:64"): Printed("L12-A64", 110_691_074, 73.2, 76.3, 269, "154.3", None),
    ("none", "houlsby:64"): Printed("L0-A64", 2_417_664, 66.8, 69.8, 203, "154.8", 3.10),
    ("none", "wide"): Printed("L0-A768", 28_388_354, 72.0, 75.0, 253, "188.8", 3.35),
}
FULL = PAPER["all", "none"]


class AgainstFull(NamedTuple):
    """The row that trains every weight, and paired comparisons with it where there are any."""

    full: Result | None
    differences: Sequence[DifferenceRecord]

    @property
    def note(self) -> str:
        """Say what the differences are."""
        drawn = [f"{unit}s" for each in self.differences if self._of(each) for unit in each.resampled]
        interval = (
            f"with its 95% interval over resampled {' and '.join(dict.fromkeys(drawn))} (paired, the mean over seeds)"
            if drawn
            else "seed by seed, with its standard deviation where there are several"
        )
        return f"“Against full” is the difference in F1 to the row that trains every weight, {interval}."

    @property
    def best_note(self) -> str:
        """Say what the differences at the best thresholds are."""
        is_resampled = any(self._of(each) and each.best for each in self.differences)
        anew = ", chosen anew in every resample" if is_resampled else ""
        return (
            "“Best F1” is that at the threshold for “no answer” that suits these very questions best; “best against "
            f"full” is the difference in it, each row at its own best threshold{anew}: unlike F1 at the threshold 0, "
            "it does not depend on where a model's zero lies."
        )

    def cell(self, row: Result) -> Cell:
        """Return how far a row's F1 lies from it."""
        return self._apart(row, "f1", self._found(row))

    def best_cell(self, row: Result) -> Cell:
        """Return how far a row's best F1 lies from it."""
        found = self._found(row)
        return self._apart(row, BEST_KEY, None if found is None else found.best)

    def times(self, row: Result) -> Cell:
        """Return how many times as long a row's inference takes, where both were measured alone."""
        if self.full is None or not (_is_measured(row) and _is_measured(self.full)):
            return ""
        return Number(row.inference_seconds / self.full.inference_seconds, ".2f")

    def _apart(self, row: Result, key: str, found: Apart | None) -> Cell:
        """Return a score's paired interval; without one, its difference seed by seed, as far as records have it."""
        if self.full is None or row.name == self.full.name:
            return ""
        if found is not None:
            return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f})"
        theirs = {record.seed: record.scores[key] for record in self.full.records if key in record.scores}
        ours = [record for record in row.records if record.seed in theirs and key in record.scores]
        return score_cell(statistic([record.scores[key] - theirs[record.seed] for record in ours]), sign="+")

    def _found(self, row: Result) -> DifferenceRecord | None:
        return next((each for each in self.differences if self._of(each) and each.model == row.name), None)

    def _of(self, each: DifferenceRecord) -> bool:
        full = self.full
        return full is not None and (each.experiment, each.fraction, each.against) == (
            full.experiment,
            full.fraction,
            full.name,
        )


def hulburd_tables(evidence: Evidence, costs: Sequence[CostRecord] = ()) -> list[Table]:
    """Lay out an experiment on SQuAD 2.0 as Hulburd does, at the largest fraction.

    One of his tables is shown where there is something to compare: two rows or more.
    """
    if evidence.records[0].task != "squad2":
        return []
    encoders = [row for row in full_results(evidence.records) if row.kind == "encoder" and "f1" in row.scores]
    rows = largest_fraction(encoders)
    his = {row.name: printed for row in rows if (printed := _printed(row.records[0])) is not None}
    studied = sorted(
        (row for row in rows if row.name in his), key=lambda row: list(PAPER.values()).index(his[row.name])
    )
    full = next((row for row in studied if his[row.name] == FULL), None)
    against = AgainstFull(full, evidence.differences)
    frozen = [row for row in studied if _inserted(row.records[0]) == "none"]
    adapters = [row for row in studied if row == full or _inserted(row.records[0]) != "none"]
    cacnn = sorted((row for row in rows if _filters(row)), key=lambda row: _filters(row) or ("", 0))
    note = costs_note(evidence.records, costs)
    tables = [
        _study("Hulburd's table 1: trained blocks", frozen, his, against, note),
        _study("Hulburd's table 2: Houlsby adapters", adapters, his, against, note),
        _lost("Hulburd's lost table: CACNN", [*([full] if full is not None else []), *cacnn], against, note),
    ]
    return [table for table in tables if len(table.rows) > 1]


def _printed(record: RunRecord) -> Printed | None:
    """Return the paper's model that was trained in the same way; None where there is none."""
    tune = record.config.get("tune") or {}
    is_other = (
        tune.get("parasites")
        or tune.get("frozen_fraction")
        or not tune.get("train_norms", True)
        or _output(record) is not None
    )
    if is_other or record.config.get("heads", {}).get("train"):  # the encoder of heads is the full one again
        return None
    train, insert = tune.get("train", "all"), _inserted(record)
    wide = PAPER["none", "wide"] if train == "none" and insert.startswith("houlsby:") else None
    return PAPER.get((train, insert), wide)


def _inserted(record: RunRecord) -> str:
    return str((record.config.get("tune") or {}).get("insert", "none"))


def _output(record: RunRecord) -> Any:  # noqa: ANN401 (a catalog's name, or a mapping)
    return (record.config.get("finetune") or {}).get("head")


def _filters(row: Result) -> tuple[str, int] | None:
    """Return the kind of a CACNN and its number of filters; None for any other output layer."""
    output = _output(row.records[0])
    pooler = output.get("pooler", {}) if isinstance(output, dict) else {}
    kind, filters = pooler.get("kind", ""), pooler.get("filters")
    return (kind, filters) if kind.startswith("cacnn") and filters is not None else None


def _study(title: str, rows: Sequence[Result], his: Mapping[str, Printed], against: AgainstFull, costs: str) -> Table:
    shown = _columns(rows, against)
    theirs = [_their_column(place, his) for place in range(len(THEIRS))]
    note = f"{PAPER_NOTE} {_note(shown, against)} {costs}".rstrip()
    return result_table(f"{title}{_fraction(rows)}", [MODEL, *shown, *theirs], rows, note)


def _lost(title: str, rows: Sequence[Result], against: AgainstFull, costs: str) -> Table:
    shown = [*_columns(rows, against), ResultColumn("times full", against.times)]
    note = f"{LOST_NOTE} “Times full” compares seconds of inference. {_note(shown, against)} {costs}".rstrip()
    return result_table(f"{title}{_fraction(rows)}", [MODEL, *FORM, *shown], rows, note)


def _columns(rows: Sequence[Result], against: AgainstFull) -> list[ResultColumn]:
    """Return this report's own columns; those of best F1 only where a row has it."""
    columns = [*OURS, ResultColumn("against full", against.cell), ResultColumn(BESTS[1], against.best_cell)]
    return [column for column in columns if column.head not in BESTS or any(map(column.cell, rows))]


def _their_column(place: int, his: Mapping[str, Printed]) -> ResultColumn:
    def cell(row: Result) -> Cell:
        return _cells(his[row.name])[place]

    return ResultColumn(THEIRS[place], cell, alignment="right" if place else "left")


def _note(shown: Sequence[ResultColumn], against: AgainstFull) -> str:
    has_best = any(column.head in BESTS for column in shown)
    return f"{against.note} {against.best_note}" if has_best else against.note


def _is_measured(row: Result) -> bool:
    return all(each.efficiency is not None and each.efficiency.inference is not None for each in row.records)


def _fraction(rows: Sequence[Result]) -> str:
    return f", fraction {rows[0].fraction_text}" if rows else ""


def _cells(printed: Printed) -> tuple[Cell, ...]:
    name, parameters, exact, f1, minutes, seconds, efficiency = printed
    measure = "" if efficiency is None else Number(efficiency, ".2f")
    return (name, Number(parameters, ","), Number(exact), Number(f1), str(minutes), seconds, measure)


def _filters_by(row: Result) -> Cell:
    kind, _ = _filters(row) or ("", 0)
    return kind.removeprefix("cacnn_")


def _num_filters(row: Result) -> Cell:
    found = _filters(row)
    return "" if found is None else str(found[1])


BEST_KEY = "best_f1"
BESTS = ("best F1", "best against full")
BEST = ResultColumn(BESTS[0], lambda row: score_cell(row.scores.get(BEST_KEY)))
HEADS = ("parameters", "EM", "F1", BEST.head, "train min", "infer s", "efficiency")
MODEL = ResultColumn("model", lambda row: row.name, alignment="left")
FORM = (ResultColumn("filters by", _filters_by, alignment="left"), ResultColumn("filters", _num_filters))
OURS = [column for head in HEADS for column in (*COLUMNS, BEST) if column.head == head]
THEIRS = tuple(f"paper {head}" for head in ("model", "parameters", "EM", "F1", "train min", "infer s", "efficiency"))
