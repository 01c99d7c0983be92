"""What a report reads beside records: costs that were measured in one run, and paired comparisons."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertvision.records import CostRecord, DifferenceRecord, read_costs, read_differences


class Beside(NamedTuple):
    """Small files that stages leave in a run folder for its report."""

    costs: Sequence[CostRecord] = ()
    differences: Sequence[DifferenceRecord] = ()


def read_beside(folder: Path) -> Beside:
    """Read what lies below a folder of records; there may be nothing."""
    return Beside(read_costs(folder), read_differences(folder))
