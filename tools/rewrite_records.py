"""Rewrites the committed records after a change of what records hold: python tools/rewrite_records.py [FOLDER].

Every change of records' content is a step here, in the order in which they were made. A step that finds nothing to do
changes no byte, so that the script can be run at any time. Afterwards `make report pages` must give the same pages.
"""

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from golden import WORDS, move_setting

from bertvision.files import write_json
from bertvision.records import DIFFERENCES_FILE

RESULTS = Path(__file__).parents[1] / "results"
Content = dict[str, Any]


def spell_out_settings(record: Content) -> None:
    """Write down the settings that the first records did not have, at the values that they were made with."""
    config = record["config"]
    config.setdefault("heads", {}).setdefault("data_fraction", 1.0)
    config.setdefault("answers", {}).setdefault("null_threshold", 0.0)


# Fields of records that have another name, as dotted keys; those of their settings stand in tools/golden.yaml.
RENAMED_FIELDS = {
    "row": "model",
    "place": "position",
    "setting_of": "variant_of",
    "epochs": "epoch_scores",
    "behind": "behind_best",
    "weighed_states": "weighted_states",
    "steps": "step_mode",
}


def rename_settings(settings: Content) -> None:
    """Write settings of an experiment in today's words; what is gone stays, as a finished run had it."""
    for row in WORDS["settings"]:
        old, _, old_value = row["old"].partition("=")
        new, _, new_value = (row["new"] or "").partition("=")
        if new:
            move_setting(settings, old, new, old_value, new_value)


def rename_words(record: Content) -> None:
    """Write fields and settings in today's words."""
    for old, new in RENAMED_FIELDS.items():
        move_setting(record, old, new)
    for name in record.get("data", {}):  # also those of `data.extra_dev_sets`
        move_setting(record, f"data.{name}.questions", f"data.{name}.examples")
    rename_settings(record["config"])


STEPS: tuple[Callable[[Content], None], ...] = (rename_words, spell_out_settings)


def rewrite_record(record: Content) -> Content:
    """Return a record of an earlier version as today's version reads it."""
    record = deepcopy(record)
    for step in STEPS:
        step(record)
    return record


def rewrite_beside(path: Path) -> int:
    """Write a file of differences or costs in today's words; return whether it changed."""
    content = path.read_text(encoding="utf-8")
    found = json.loads(content)
    for each in found if isinstance(found, list) else ():
        move_setting(each, "row", "model")
    if isinstance(found, dict):
        rename_settings(found["settings"])
    if found == json.loads(content):
        return 0
    write_json(path, found)
    return 1


def rewrite(results: Path) -> int:
    """Take every step on every record of a run below a folder; return how many records changed."""
    changed = 0
    for path in sorted(results.rglob("records/*.json")):
        content = path.read_text(encoding="utf-8")
        record = rewrite_record(json.loads(content))
        if record != json.loads(content):
            write_json(path, record)
            changed += 1
    beside = sorted((*results.rglob(DIFFERENCES_FILE), *results.rglob("costs*/*.json")))
    return changed + sum(map(rewrite_beside, beside))


if __name__ == "__main__":
    print(f"{rewrite(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)} records rewritten")
