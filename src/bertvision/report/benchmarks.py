"""Benchmarks' records -> tables for the terminal and a chapter of Markdown each."""

from collections.abc import Sequence
from statistics import median

from bertvision.bench_record import BenchRecord, Ratio, Side

COLUMNS = ("side", "seconds", "times the first")
PLAIN = (str, int, float, bool)  # settings that fit into a line


def bench_rows(record: BenchRecord) -> list[tuple[str, str, str]]:
    """Give every side's seconds and how they compare to the first side's."""
    first = record.sides[0].name
    return [(side.name, _seconds(side), _ratio(record.ratio(side.name, first))) for side in record.sides]


def figure_rows(record: BenchRecord) -> list[tuple[str, str]]:
    """Give the comparison's other numbers."""
    return [(name, f"{value:,.4g}" if value < 1000 else f"{value:,.0f}") for name, value in record.figures.items()]


def bench_chapter(record: BenchRecord) -> str:
    """Write one record as a chapter of Markdown."""
    where = record.provenance
    settings = ", ".join(
        f"{key} {value}" for key, value in record.settings.items() if isinstance(value, PLAIN) and value != "auto"
    )
    commit = where.commit[:7] + (", changed" if where.dirty else "") if where.commit else "unknown"
    versions = ", ".join(f"{name} {where.versions[name]}" for name in ("torch", "transformers"))
    return "\n".join(
        [
            f"### {record.name}: {record.variant} on {where.device}",
            "",
            f"{record.about[0].upper()}{record.about[1:]}. `make bench NAME={record.name}` ({settings}); "
            f"{where.precision}, {versions}, commit {commit}; {_rounds(len(record.sides[0].seconds))}.",
            "",
            *_table(COLUMNS, bench_rows(record)),
            "",
            *_table(("number", "value"), figure_rows(record)),
            "",
        ]
    )


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"{count} rounds, middle and range"


def _seconds(side: Side) -> str:
    return _with_range(median(side.seconds), min(side.seconds), max(side.seconds))


def _ratio(ratio: Ratio) -> str:
    return _with_range(*ratio)


def _with_range(middle: float, lowest: float, highest: float) -> str:
    return f"{middle:.3g}" if lowest == highest else f"{middle:.3g} ({lowest:.3g}-{highest:.3g})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    align = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (columns, align, *rows)]
