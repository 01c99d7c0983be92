"""Rewrites the committed records after a change of what records hold: python tools/rewrite_records.py [FOLDER].

Every change of records' content is a step here, in the order in which they were made. A step that finds nothing to do
changes no byte, so that the script can be run at any time. Afterwards `make report pages` must give the same pages.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertvision.files import write_json

RESULTS = Path(__file__).parents[1] / "results"
Content = dict[str, Any]


def spell_out_settings(record: Content) -> None:
    """Write down the settings that the first records did not have, at the values that they were made with."""
    config = record["config"]
    config.setdefault("heads", {}).setdefault("share", 1.0)
    config.setdefault("answers", {}).setdefault("null_threshold", 0.0)


STEPS: tuple[Callable[[Content], None], ...] = (spell_out_settings,)


def rewrite(results: Path) -> int:
    """Take every step on every record of a run below a folder; return how many records changed."""
    changed = 0
    for path in sorted(results.rglob("records/*.json")):
        content = path.read_text(encoding="utf-8")
        record = json.loads(content)
        for step in STEPS:
            step(record)
        if record != json.loads(content):
            write_json(path, record)
            changed += 1
    return changed


if __name__ == "__main__":
    print(f"{rewrite(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)} records rewritten")
