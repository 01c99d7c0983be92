"""What rows cost: measured in one run -> records that have it, a note, and a table; kinds of tuning."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertvision.records import Efficiency, Inference, RunRecord, Seconds
from bertvision.tables import Cell, Number, Table
from studies.cost_records import CostRecord, Spent

COLUMNS = ("model", "trained", "train ms", "infer ms", "ms alone", "peak GB")
FROZEN, INSERTED = "which of the encoder's own weights are trained", "modules inserted into the encoder"
OUTPUTS, HEADS = "other output layers", "heads on the frozen encoder"
PARTS = (FROZEN, INSERTED, OUTPUTS, HEADS)
NOTHING = Spent(seconds=0.0, data_seconds=0.0, joules=None, peak_process_bytes=0, peak_device_bytes=None)


def costs_table(costs: Iterable[CostRecord]) -> Table:
    """Lay out every row of every method: what one window takes in training and when it is answered."""
    return Table("", COLUMNS, tuple(_cells(each, name) for each in costs for name in each.rows))


def with_costs(records: Iterable[RunRecord], costs: Sequence[CostRecord]) -> list[RunRecord]:
    """Return records with the seconds, memory and energy measured in one run, for the windows that they saw."""
    known = {(each.experiment, each.method): each for each in costs}
    return [_measured(record, known) for record in records]


def costs_note(records: Sequence[RunRecord], costs: Sequence[CostRecord]) -> str:
    """Say how the costs of one experiment's rows were measured; nothing where they are what its own runs noted."""
    own = [each for each in costs if each.experiment == records[0].experiment and each.rounds]
    if not own:
        return ""
    measured = {each.method for each in own}
    others = dict.fromkeys(method for record in records if (method := record.method) not in measured)
    devices, rounds = _listed(each.provenance.device for each in own), sorted({len(each.rounds) for each in own})
    text = (
        f"Seconds, memory and energy were measured in turns, in one process that had {devices} to itself: the "
        f"middle of {_listed(map(str, rounds))} rounds, scaled to the windows that a row has seen."
        f"{_apart(own)}{_other_batches(records, own)}"
    )
    return f"{text} Not so: {', '.join(map(str, others))}." if others else text


def part_of(record: RunRecord) -> str:
    """Return which kind of tuning a row is: what of the encoder was trained, or what stands on it."""
    config, tune = record.config, record.config.get("tune") or {}
    if record.kind != "encoder":
        return HEADS
    if (config.get("finetune") or {}).get("head") is not None:
        return OUTPUTS
    return INSERTED if tune.get("insert", "none") != "none" or tune.get("parasites") else FROZEN


def all_trained(record: RunRecord) -> int | None:
    """Count the weights that were trained for a row, those below a head included; None where costs were not noted."""
    if record.kind == "encoder":
        return record.parameters.trainable
    # Shipped are all weights that differ from where training started.
    return None if record.efficiency is None else record.efficiency.ship_bytes // 4


def _apart(costs: Sequence[CostRecord]) -> str:
    """Say how far rounds lie apart, of the method where they do most; nothing where there is one round alone."""
    named = ("seconds of tuning", "seconds of inference", "milliseconds of one window")
    by_kind = zip(*(each.spread for each in costs), strict=True)
    most = [max((share for share in shares if share is not None), default=None) for shares in by_kind]
    parts = [f"{100 * share:.0f}% in {name}" for name, share in zip(named, most, strict=True) if share is not None]
    return f" Rounds of a method differ by at most {', '.join(parts)}." if parts else ""


def _other_batches(records: Sequence[RunRecord], costs: Sequence[CostRecord]) -> str:
    """Say so where the tuning or inference was measured in other batches than those of these rows."""
    text = ""
    for name, verb, batch_of in (("Tuning", "were tuned", _tuning_batch), ("Inference", "answered", _answers_batch)):
        measured = _listed(batch_of(each.settings) for each in costs)
        own = _listed(batch_of(record.config) for record in records)
        if measured != own:
            text += f" {name} was measured in batches of {measured}; these rows {verb} in {own}."
    return text


def _tuning_batch(settings: Mapping[str, Any]) -> str:
    sizes = (settings.get("finetune") or {}).get("batch") or {}
    return next((f"{size:,} {unit}" for unit, size in sizes.items() if size is not None), "")


def _answers_batch(settings: Mapping[str, Any]) -> str:
    tokens = (settings.get("answers") or {}).get("batch_tokens")
    return "" if tokens is None else f"{tokens:,} tokens"


def _listed(texts: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def _measured(record: RunRecord, known: Mapping[tuple[str, str | None], CostRecord]) -> RunRecord:
    costs = known.get((record.experiment, record.method))
    if costs is None or record.efficiency is None or not costs.rounds:
        return record
    tuning, heads = costs.tuning or NOTHING, (costs.heads if record.kind != "encoder" else None) or NOTHING
    tuned, passed = _num_tuned(record), _num_passed(record)
    tuning_seconds, heads_seconds = tuned * tuning.seconds, passed * heads.seconds
    parts = [(tuning.joules, tuned), (heads.joules, passed)]
    joules = [each * windows for each, windows in parts if each is not None]
    device = [each.peak_device_bytes for each in (tuning, heads) if each.peak_device_bytes is not None]
    efficiency = Efficiency(
        encoder_seconds=tuned * (tuning.seconds - tuning.data_seconds),
        heads_seconds=heads_seconds,
        data_seconds=tuned * tuning.data_seconds,
        peak_process_bytes=max(tuning.peak_process_bytes, heads.peak_process_bytes),
        peak_device_bytes=max(device, default=None),
        joules=sum(joules) if joules else None,
        ship_bytes=record.efficiency.ship_bytes,
        inference=_inference(record, costs) or record.efficiency.inference,
    )
    has_heads = record.seconds.heads is not None
    seconds = Seconds(
        finetune=tuning_seconds, heads=heads_seconds if has_heads else None, predict=record.seconds.predict
    )
    return record.model_copy(update={"efficiency": efficiency, "seconds": seconds})


def _num_tuned(record: RunRecord) -> float:
    """Count the windows that the encoder was tuned on."""
    return (record.fraction or 0.0) * record.data["train"].windows


def _num_passed(record: RunRecord) -> float:
    """Count the windows that heads have learnt from, until the epoch that counts."""
    config = record.config.get("heads", {})
    is_chosen = config.get("keep_best") or config.get("patience")  # there may be fewer than were planned
    epochs = len(record.epoch_scores) if is_chosen else config.get("epochs", 1)
    return float(config.get("data_fraction", 1.0) * epochs * record.data["train"].windows)


def _inference(record: RunRecord, costs: CostRecord) -> Inference | None:
    row, windows = record.model_family, record.data["dev"].windows
    speed = costs.speed(row)
    if speed is None:
        return None
    return Inference(
        seconds=speed.seconds * windows,
        latency=speed.latency,
        operations=costs.rows[row].operations * windows,
        windows=windows,
    )


def _cells(costs: CostRecord, name: str) -> tuple[Cell, ...]:
    size, speed, is_encoder = costs.rows[name], costs.speed(name), name == "encoder"
    spent = costs.tuning if is_encoder else costs.heads
    method = costs.method or costs.experiment
    memory = None if spent is None else spent.peak_device_bytes or spent.peak_process_bytes
    return (
        method if is_encoder else f"{method}:{name}",
        Number(size.parameters.trainable, ","),
        _number(None if spent is None else 1000 * spent.seconds),
        _number(None if speed is None else 1000 * speed.seconds),
        _number(None if speed is None else 1000 * speed.latency),
        _number(None if memory is None else memory / 1e9),
    )


def _number(value: float | None) -> Cell:
    return "" if value is None else Number(value, ".3g")
