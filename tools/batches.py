"""Sets costs measured in batches of several sizes side by side: python tools/batches.py OUT.md COSTS COSTS.

Each is an OUT/costs of `make bench NAME=costs`; the methods are those of the first.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bertvision.files import write_text
from bertvision.report.renderers import to_markdown
from bertvision.tables import Table

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.cost_records import CostRecord, read_method_costs


def main(out: Path, folders: Sequence[Path]) -> None:
    """Write a row for each method: what a window costs, and how far the rounds lie apart."""
    by_folder = [
        {each.method: each for each in map(read_method_costs, sorted(folder.glob("*.json")))} for folder in folders
    ]
    heads = [head for found in by_folder for head in _heads(next(iter(found.values())))]
    rows = tuple(
        (str(method), *(cell for found in by_folder for cell in _cells(found[method]))) for method in by_folder[0]
    )
    write_text(out, to_markdown(Table("", ("model", *heads), rows)))


def _heads(costs: CostRecord) -> tuple[str, ...]:
    """Name columns with the batches that they were measured in: rows answer in others than they are tuned in."""
    tuned, answered = costs.settings["finetune"]["batch"]["tokens"], costs.settings["answers"]["tokens"]
    return (f"train ms, {tuned:,}", f"apart, {tuned:,}", f"infer ms, {answered:,}", f"peak GB, {tuned:,}")


def _cells(costs: CostRecord) -> tuple[str, ...]:
    tuning, speed, apart = costs.tuning, costs.speed("encoder"), costs.spread.tuning
    assert tuning is not None
    assert speed is not None
    return (
        f"{1000 * tuning.seconds:.3f}",
        "" if apart is None else f"{100 * apart:.0f}%",
        f"{1000 * speed.seconds:.3f}",
        f"{(tuning.peak_device_bytes or 0) / 1e9:.1f}",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
