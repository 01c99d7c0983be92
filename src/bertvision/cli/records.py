"""Records on the terminal. The verbs import this when they run: `--help` needs neither records nor pydantic."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from bertvision.cli.console import print_json, print_table, results
from bertvision.records import RunRecord, merge_variants, tuned_for
from bertvision.report.results import by_experiment
from bertvision.report.score_tables import terminal_table
from bertvision.tables import Cells


def print_records(records: Sequence[RunRecord], as_json: bool) -> None:
    """Print what came out: a table per experiment (of variants one together, each at its best rate), or JSON."""
    if as_json:
        print_json([record.model_dump(mode="json", exclude={"config"}) for record in records])
        return
    for name, group in by_experiment(merge_variants(records)).items():
        _print_experiment(name, group)


def _print_experiment(name: str, records: Sequence[RunRecord]) -> None:
    table = terminal_table(records)
    rows: list[Cells] = []
    for fraction, group in groupby(table.rows, key=lambda row: str(row[0])):
        rows += [(f"[{_tuned_for(fraction)}]",), *(row[1:] for row in group)]
    seeds = len({record.seed for record in records})
    title = f"{name}, mean of {seeds} seeds" if seeds > 1 else name
    print_table(replace(table, title=title, columns=table.columns[1:], rows=tuple(rows)))
    if table.note:
        results.print()


def _tuned_for(fraction: str) -> str:
    known = {"": "baseline", "given": "encoder as given", "0": "encoder untuned"}
    return known[fraction] if fraction in known else f"encoder tuned for {tuned_for(float(fraction))}"
