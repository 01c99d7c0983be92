"""Packs and rewrites the committed records: python tools/rewrite_records.py [FOLDER].

All records of an experiment become one file, `records.jsonl.xz`, each with a thinner course of its training, and other
large files beside them are packed alike. Every change of what records hold is a step here, in the order in which they
were made. Where nothing changes no byte does, so that the script can be run at any time. Afterwards `make report pages`
must give the same pages.
"""

import json
import lzma
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from golden import WORDS, move_setting

from bertvision.files import remove_file, write_bytes, write_json
from bertvision.records import DIFFERENCES_FILE, PACKED_RECORDS, record_paths

RESULTS = Path(__file__).parents[1] / "results"
ALSO_PACKED = ("few_rows.jsonl", "null_shift.json")
LONGEST_COURSE = 60  # points of a training that are kept
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


def drop_ensemble_weights(record: Content) -> None:
    """Drop the weights of an ensemble's members, a setting that is gone, where none were given."""
    for ensemble in record["config"].get("ensembles", []):
        if "weights" in ensemble and ensemble["weights"] is None:
            del ensemble["weights"]


def thin_training(record: Content) -> None:
    """Keep the first and last of a training's points, those with a score, and an even choice of the others."""
    points = record.get("training", [])
    if len(points) <= LONGEST_COURSE:
        return
    kept = {0, len(points) - 1, *(number for number, each in enumerate(points) if each["score"] is not None)}
    others = [number for number in range(len(points)) if number not in kept]
    room = max(LONGEST_COURSE - len(kept), 0)
    kept.update(others[number * len(others) // room] for number in range(room))
    record["training"] = [points[number] for number in sorted(kept)]


STEPS: tuple[Callable[[Content], None], ...] = (rename_words, spell_out_settings, drop_ensemble_weights, thin_training)


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
    """Take every step on every record of a run below a folder, and pack them; return how many files were written."""
    records: dict[Path, list[Content]] = {}
    for pack in sorted(results.rglob(PACKED_RECORDS)):
        records[pack] = [json.loads(line) for line in lzma.decompress(pack.read_bytes()).splitlines()]
    alone = record_paths(results)
    for path in alone:
        record = json.loads(path.read_text(encoding="utf-8"))
        records.setdefault(_pack_of(path, record), []).append(record)
    records = {pack: [rewrite_record(each) for each in found] for pack, found in records.items()}
    lines = {
        pack: "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in found) for pack, found in records.items()
    }
    written = [pack for pack, text in lines.items() if _write_packed(pack, text.encode("utf-8"))]
    for path in alone:
        _remove(path)
    for path in sorted(path for name in ALSO_PACKED for path in results.rglob(name)):
        written += [path] * _write_packed(path.with_name(f"{path.name}.xz"), path.read_bytes())
        remove_file(path)
    beside = sorted((*results.rglob(DIFFERENCES_FILE), *results.rglob("costs*/*.json")))
    return len(written) + sum(map(rewrite_beside, beside))


def _pack_of(path: Path, record: Content) -> Path:
    """Return the packed file of an experiment: in its run folder or, where that is of one variant, beside that."""
    run = path.parent.parent if path.parent.name == "records" else path.parent
    return (run.parent if run.name == record.get("variant") else run) / PACKED_RECORDS


def _write_packed(path: Path, content: bytes) -> bool:
    """Write a packed file unless it has this content; return whether it was written."""
    if path.exists() and lzma.decompress(path.read_bytes()) == content:
        return False
    write_bytes(path, lzma.compress(content))
    return True


def _remove(path: Path) -> None:
    """Remove a record that was packed, and its folders where nothing else is left in them."""
    remove_file(path)
    remove_file(path.with_name("sha256.json"))
    for folder in (path.parent, path.parent.parent):
        if not any(folder.iterdir()):
            folder.rmdir()


if __name__ == "__main__":
    print(f"{rewrite(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)} files written")
