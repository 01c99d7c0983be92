"""Compares rows that decline equally often, from records alone: python tools/declining_alike.py RECORDS OUT.md.

A record's threshold curve has its points at every percent of the questions, ordered by their odds of "no answer".
"""

import sys
from pathlib import Path

from bertvision.files import write_text
from bertvision.records import RunRecord, merge_variants, read_records
from bertvision.report.renderers import to_markdown
from bertvision.tables import Column, Table

SHARES = (10, 25, 40)  # percent declined
POINTS = 101


def main(folder: Path, out: Path) -> None:
    """Write a row for each record: its F1 at 0, the share that it declines there, and its F1 at equal shares."""
    heads = ("F1 at 0", *(f"F1, {share}% declined" for share in SHARES), "F1 best", "span F1")
    rows = tuple(_cells(record) for record in merge_variants(read_records(folder)) if record.curves is not None)
    write_text(out, to_markdown(Table("", ("fraction", Column("model", "left"), *heads), rows)))


def _cells(record: RunRecord) -> tuple[str, ...]:
    assert record.curves is not None
    curve = record.curves.threshold
    if len(curve) != POINTS:
        raise SystemExit(f"{record.model}: {len(curve)} points in its threshold curve, expected {POINTS}: equal odds")
    alike = [curve[POINTS - 1 - share][2] for share in SHARES]
    scores = record.scores["f1"], *alike, record.scores["best_f1"], record.scores["best_span_HasAns_f1"]
    return (f"{record.fraction:g}", record.model, *(f"{score:.1f}" for score in scores))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
