"""Benchmarks' records -> tables for the terminal and a chapter of Markdown each."""

from statistics import median

from bertvision.records import BenchRecord
from bertvision.report.renderers import to_markdown
from bertvision.tables import Cell, Number, Table

RETIRED = ("growth", "seconds-to-score")  # measured once: the benchmarks are in commit 4be0c02
PLAIN = (str, int, float, bool)  # settings that fit into a line


def bench_tables(record: BenchRecord) -> list[Table]:
    """Lay out every side's seconds and how they compare to the first side's, and what other numbers there are.

    A number that every side has, under the name `side: what`, is a column.
    """
    first, columns = record.sides[0].name, _columns(record)
    sides = tuple(
        (
            side.name,
            _with_range(median(side.seconds), min(side.seconds), max(side.seconds)),
            _with_range(*record.ratio(side.name, first)),
            *(_figure(record.figures[f"{side.name}: {what}"]) for what in columns),
        )
        for side in record.sides
    )
    shown = {f"{side.name}: {what}" for side in record.sides for what in columns}
    numbers = tuple((name, _figure(value)) for name, value in record.figures.items() if name not in shown)
    tables = [Table("", ("side", "seconds", "times the first", *columns), sides)]
    return [*tables, Table("", ("number", "value"), numbers)] if numbers else tables


def _columns(record: BenchRecord) -> list[str]:
    start, *others = (f"{side.name}: " for side in record.sides)
    of_first = [name.removeprefix(start) for name in record.figures if name.startswith(start)]
    return [what for what in of_first if all(other + what in record.figures for other in others)]


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
            f"{record.about[0].upper()}{record.about[1:]}. {_command(record.name)} ({settings}); "
            f"{where.precision}, {versions}, commit {commit}; {_rounds(len(record.sides[0].seconds))}.",
            "",
            *map(to_markdown, bench_tables(record)),
        ]
    )


def _command(name: str) -> str:
    return f"Benchmark `{name}` of commit 4be0c02" if name in RETIRED else f"`make bench NAME={name}`"


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"{count} rounds, middle and range"


def _with_range(middle: float, lowest: float, highest: float) -> str:
    return f"{middle:.3g}" if lowest == highest else f"{middle:.3g} ({lowest:.3g}-{highest:.3g})"


def _figure(value: float) -> Cell:
    return Number(value, ",.4g" if value < 1000 else ",.0f")
