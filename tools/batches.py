"""Sets costs measured in batches of several sizes side by side: python tools/batches.py OUT.md FOLDER FOLDER.

Each folder holds what `bertvision costs` wrote; the methods are those of the first.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bertvision.cost_record import MethodCosts, read_costs
from bertvision.files import write_text
from bertvision.report.tables import Table, to_markdown

HEADS = ("train ms", "apart", "infer ms", "peak GB")


def main(out: Path, folders: Sequence[Path]) -> None:
    """Write a row for each method: what a window costs, and how far the rounds lie apart."""
    by_folder = [{each.method: each for each in read_costs(folder)} for folder in folders]
    heads = [f"{head}, {_tokens(next(iter(found.values())))}" for found in by_folder for head in HEADS]
    rows = tuple(
        (str(method), *(cell for found in by_folder for cell in _cells(found[method]))) for method in by_folder[0]
    )
    write_text(out, to_markdown(Table(("model", *heads), ("left", *["right"] * len(heads)), rows)))


def _tokens(costs: MethodCosts) -> str:
    return f"{costs.settings['finetune']['batch']['tokens']:,}"


def _cells(costs: MethodCosts) -> tuple[str, ...]:
    tuning, speed = costs.tuning, costs.speed("encoder")
    assert tuning is not None
    assert speed is not None
    return (
        f"{1000 * tuning.seconds:.3f}",
        f"{100 * costs.spread:.0f}%",
        f"{1000 * speed.seconds:.3f}",
        f"{(tuning.peak_device_bytes or 0) / 1e9:.1f}",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
