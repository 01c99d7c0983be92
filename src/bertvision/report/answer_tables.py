"""Records of one experiment -> what its best model takes for what, and lists of examples to read."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bertvision.records import Mistake, MistakesRecord, RunRecord
from bertvision.report.headline import best_result
from bertvision.report.measures import measures_of
from bertvision.report.results import Evidence
from bertvision.tables import Cells, Column, Number, Table

MOST_CLASSES = 12  # of a whole matrix
COMMONEST = 20  # confusions of more classes


class ExampleList(NamedTuple):
    """Examples to read, under a title."""

    title: str
    note: str
    examples: list[Mistake]


def confusion_tables(evidence: Evidence) -> list[Table]:
    """Lay out which class the best model takes for which; the commonest confusions where there are many classes."""
    best = best_result(evidence.records)
    confusions = {} if best is None else best.records[0].confusions
    if best is None or not confusions:
        return []
    if len(confusions) > MOST_CLASSES:
        return [_commonest(best.name, confusions)]
    columns = (Column("true", "left"), *(Column(f"predicted {name}") for name in confusions))
    rows: list[Cells] = [
        (gold, *(Number(said.get(name, 0), ",") for name in confusions)) for gold, said in confusions.items()
    ]
    return [Table(f"Confusion matrix of {best.name} on dev", columns, tuple(rows))]


def example_lists(records: Sequence[RunRecord], mistakes: Sequence[MistakesRecord]) -> list[ExampleList]:
    """List the best model's worst errors, and rows that look mislabelled; nothing where the run folder is gone."""
    best = best_result(records)
    if best is None:
        return []
    own = next((each for each in mistakes if each.is_of(best.records[0])), None)
    found = [_errors(own), _suspects(own, records, mistakes)] if own is not None else []
    return [each for each in found if each.examples]


def _errors(own: MistakesRecord) -> ExampleList:
    order = "the surest first" if any(each.probability is not None for each in own.errors) else "the worst first"
    count = len(own.errors)
    wrong = (
        f"{own.wrong:,} of {own.examples:,} examples of dev are wrong; here are "
        if own.wrong is not None
        else "Here are "
    )
    return ExampleList(f"Errors of {own.model} to read", f"{wrong}{count}, {order}.", own.errors)


def _suspects(own: MistakesRecord, records: Sequence[RunRecord], mistakes: Sequence[MistakesRecord]) -> ExampleList:
    """List training rows where a regression was cross-validated on them, of several the best one, else rows of dev."""
    key = measures_of(records).main
    ordered = sorted(records, key=lambda record: -record.scores.get(key, 0.0))
    known = [each for record in ordered for each in mistakes if "train" in each.checked and each.is_of(record)]
    source, split = (known[0], "train") if known else (own, "dev")
    shown = [each for each in source.mislabelled if each.split == split]
    checked, found = source.checked.get(split, 0), source.suspects.get(split, 0)
    how = "fitted without them" if split == "train" else "which has not seen them"
    note = (
        f"Of {checked:,} examples of {split} {found:,} have a label that {source.model}, {how}, doubts"
        f"{f'; these are {len(shown)} of them' if len(shown) < found else ''}. Read them before you trust either: a "
        "model that is often wrong doubts many right labels."
    )
    return ExampleList("Rows that look mislabelled", note, shown)


def _commonest(name: str, confusions: dict[str, dict[str, int]]) -> Table:
    counts = Counter(
        {(gold, said): count for gold, of in confusions.items() for said, count in of.items() if said != gold}
    )
    rows = tuple((gold, said, Number(count, ",")) for (gold, said), count in counts.most_common(COMMONEST))
    return Table(
        f"Commonest confusions of {name} on dev",
        (Column("true", "left"), Column("predicted", "left"), "examples"),
        rows,
    )
