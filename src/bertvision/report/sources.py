"""Records -> where their numbers came from, as plain text."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from bertvision.records import DataFile, Provenance, RunRecord
from bertvision.tables import Cell, Column, Number, Table, without_empty_columns

Value = TypeVar("Value")
DATA = "Data as they were read"
SHORT_HASH = 12
UNSHOWN = ("encoder", "data", "seeds")  # parts of a config that have a line or a table of their own


class Fact(NamedTuple):
    """A line of "Where this came from"; records that differ have several texts."""

    head: str
    texts: list[str]


def data_table(records: Sequence[RunRecord]) -> Table:
    """List the data files that were read, with their counts."""
    counts = ("examples", "near misses", "dropped", "windows")
    columns = ("split", Column("file", "left"), *counts, Column("sha256", "left"))
    rows = _distinct(_data_cells(split, file) for record in records for split, file in record.data.items())
    return without_empty_columns(Table(DATA, columns, tuple(rows)))


def facts(records: Sequence[RunRecord]) -> list[Fact]:
    """Say which encoder, settings, seeds, machine and code made the records."""
    origins = [record.provenance for record in records]
    return [
        Fact("Encoder", _distinct(_encoder_text(record) for record in records if record.kind != "baseline")),
        *_setting_facts(records),
        Fact("Seeds", [", ".join(map(str, sorted({record.seed for record in records})))]),
        *_schedule_facts(records),
        Fact("Device", _distinct(origin.device for origin in origins)),
        Fact("Precision", _distinct(origin.precision for origin in origins)),
        Fact("Versions", _distinct(map(_versions_text, origins))),
        Fact("Code", _distinct(map(_commit_text, origins))),
        *([Fact("Notes", remarks)] if (remarks := notes(records)) else []),
    ]


def notes(records: Sequence[RunRecord]) -> list[str]:
    """Gather the records' notes, each once, with the rows it is about unless it is about all of them."""
    everyone = _distinct(record.model for record in records)
    texts = _distinct(note for record in records for note in record.notes)
    rows_by_note = {text: _distinct(record.model for record in records if text in record.notes) for text in texts}
    return [text if rows == everyone else f"{text} ({', '.join(rows)})" for text, rows in rows_by_note.items()]


def config_texts(records: Sequence[RunRecord]) -> list[str]:
    """Write out every different config among the records."""
    return _distinct(json.dumps(record.config, indent=2, ensure_ascii=False) for record in records)


def _data_cells(split: str, file: DataFile) -> tuple[Cell, ...]:
    made = sum(file.near_misses.values())
    dropped, windows = Number(file.dropped, ","), Number(file.windows, ",")
    examples, near_misses = Number(file.examples, ","), Number(made, ",") if made else ""
    return (split, file.name, examples, near_misses, dropped, windows, (file.sha256 or "")[:SHORT_HASH])


def _encoder_text(record: RunRecord) -> str:
    given = _setting_text(record.config.get("encoder"))
    size = f"{record.parameters.encoder:,} parameters, fingerprint {record.encoder_fingerprint[:SHORT_HASH]}"
    return f"{given}; {size}" if given else size


def _setting_facts(records: Sequence[RunRecord]) -> list[Fact]:
    shown = [{key: value for key, value in record.config.items() if key not in UNSHOWN} for record in records]
    single = [{key: value for key, value in config.items() if not isinstance(value, dict)} for config in shown]
    sections = _distinct(key for config in shown for key, value in config.items() if isinstance(value, dict))
    found = [
        Fact("Experiment", _distinct(map(_setting_text, single))),
        *(Fact(name, _distinct(_setting_text(config.get(name)) for config in shown)) for name in sections),
    ]
    return [fact for fact in found if any(fact.texts)]


def _setting_text(value: Any) -> str:  # noqa: ANN401 (a config holds anything)
    if value is None or value == {}:
        return ""
    if not isinstance(value, dict):
        return _value_text(value)
    return ", ".join(f"{key}={_value_text(leaf)}" for key, leaf in _leaves(value))


def _leaves(section: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in section.items():
        found.extend(_leaves(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)])
    return found


def _value_text(value: Any) -> str:  # noqa: ANN401 (a config holds anything)
    if isinstance(value, list):
        return f"[{', '.join(_value_text(part) for part in value)}]"
    if isinstance(value, dict):  # one of a list of named things, such as heads; the rest is in the full config
        return str(value["name"]) if "name" in value else json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else json.dumps(value)


def _schedule(record: RunRecord) -> str:
    schedule: str = record.config.get("finetune", {}).get("optim", {}).get("schedule", "")
    return {"linear": "a linear decay", "constant": "a warmup"}.get(schedule, "a schedule")


def _schedule_facts(records: Sequence[RunRecord]) -> list[Fact]:
    found = _distinct((record.schedule_horizon, _schedule(record)) for record in records if record.schedule_horizon)
    texts = [
        f"{schedule} with its end at fraction {horizon:g}; fractions before that were taken on the way, so their rates "
        "are not those of a run planned for them"
        for horizon, schedule in found
    ]
    return [Fact("Schedule", texts)] if texts else []


def _versions_text(origin: Provenance) -> str:
    return ", ".join([f"Python {origin.python}", *(f"{name} {version}" for name, version in origin.versions.items())])


def _commit_text(origin: Provenance) -> str:
    if origin.commit is None:
        return "unknown commit (installed without its repository)"
    return f"commit {origin.commit[:SHORT_HASH]}{' with uncommitted changes' if origin.dirty else ''}"


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))
