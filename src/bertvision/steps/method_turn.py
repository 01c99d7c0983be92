"""One method's turn: tune an untrained encoder for some steps, train its heads, run its rows alone."""

import gc
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from bertvision.encoder.encode import freeze, layers_of_output
from bertvision.encoder.finetune import plan_steps
from bertvision.encoder.load import Encoder
from bertvision.encoder.tuning.freezing import count_trainable
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.heads.build import HeadConfig, reads_cls
from bertvision.heads.head import Head, count_parameters
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.model_folder import as_saved
from bertvision.records import Parameters, Round, RowSize, Speed, Spent
from bertvision.steps.context import RunContext
from bertvision.steps.finetune import Output, output_layer, tune_together
from bertvision.steps.measure import Alone, open_alone
from bertvision.steps.rows import ENCODER, Row
from bertvision.steps.states import open_states
from bertvision.training.accounting import Costs, Meter
from bertvision.training.device import Compute


class Size(NamedTuple):
    """How much a turn trains and answers: enough for a steady figure in seconds."""

    examples: int  # of train, from which windows are cut
    warm: int  # steps of tuning that do not count
    steps: int  # that do
    passes: int  # of heads over all these windows, after one that does not count
    answered: int  # windows of dev that a row answers alone
    repeats: int  # of that, and of answering one by one, after one that does not count; the middle counts


# On a GPU about two seconds of tuning: a driver's meter of energy moves ten to fifty times a second. And about a second
# of answering, by a small encoder on an H200: single passes of 1,024 windows, 0.08 s, differed by up to half.
SIZES = {"cpu": Size(24, 1, 2, 1, 32, 1), "cuda": Size(4096, 6, 40, 2, 4096, 3)}


class Turn(NamedTuple):
    """What a turn found."""

    round: Round
    rows: dict[str, RowSize]


def size_for(compute: Compute) -> Size:
    """Return what suits a device."""
    return SIZES.get(compute.device.type, SIZES["cpu"])


def num_measured(context: RunContext) -> int:
    """Count the windows that a turn measures the tuning on."""
    warm, whole = _stops(context)
    return whole - warm


def take_turn(context: RunContext, start: Encoder, known: Mapping[str, RowSize]) -> Turn:
    """Measure the method of a line whose train is a sample; `known` are sizes that an earlier turn has found.

    `start` is the encoder before any training and stays as it is.
    """
    gc.collect()  # what the turn before left in cycles has no part in this one's peak
    encoder, rows, tuning, inside = replace(start, model=deepcopy(start.model)), [], None, 0
    if context.experiment.finetune.fractions:
        output = output_layer(context)
        start_tuning(encoder.model, context.experiment.tune, context.seed)
        tuning, inside = _tuning(context, encoder, output), count_trainable(encoder.model)
        encoder = as_saved(encoder)
        rows.append(_output_row(context, encoder, output, inside))
    freeze(encoder, context.compute)
    trained, heads = _heads(context, encoder, inside)
    rows += trained
    return Turn(
        Round(tuning=tuning, heads=heads, rows={row.name: _speed(context, encoder, row) for row in rows}),
        {row.name: known.get(row.name) or _size(context, encoder, row) for row in rows},
    )


def _stops(context: RunContext) -> tuple[int, int]:
    """Count the windows that are seen before the steps that count, and with them."""
    size, config = size_for(context.compute), context.experiment.finetune
    once = config.model_copy(update={"fractions": (1.0,)})
    epochs = math.ceil(
        (size.warm + size.steps) / len(plan_steps(context.train, once, context.seed, context.objective.group))
    )
    several = config.model_copy(update={"fractions": (float(epochs),)})
    steps = plan_steps(context.train, several, context.seed, context.objective.group)
    seen = [sum(len(rows) for rows in step) for step in steps]
    return sum(seen[: size.warm]), sum(seen[: size.warm + size.steps])


def _tuning(context: RunContext, encoder: Encoder, output: Output) -> Spent:
    """Tune for some steps; those before the first of two stops are the warm-up."""
    stops = _stops(context)
    fractions = tuple(stop / len(context.train) for stop in stops)
    config = context.experiment.finetune.model_copy(update={"fractions": fractions})
    short = replace(context, experiment=context.experiment.model_copy(update={"finetune": config}))
    warm, whole = (checkpoint.costs for checkpoint in tune_together(short, encoder, output))
    measured = whole._replace(
        seconds=whole.seconds - warm.seconds,
        data_seconds=whole.data_seconds - warm.data_seconds,
        joules=None if whole.joules is None else whole.joules - (warm.joules or 0.0),
    )
    return _spent(measured, stops[1] - stops[0])


def _heads(context: RunContext, encoder: Encoder, inside: int) -> tuple[list[Row], Spent | None]:
    """Train all heads together as the second stage does, and give one of each that differ in their rate alone."""
    rows: dict[str, Row] = {}
    spent: list[Spent] = []
    for cls in (False, True):
        own = [head for head in context.experiment.heads.train if reads_cls(head, context.objective) == cls]
        if not own:
            continue
        heads = build_heads(own, context.shapes[cls], context.seed, context.objective)
        spent.append(_pass(context, encoder, own, heads, cls=cls))
        for config in own:
            head, count = heads[config.name], count_parameters(heads[config.name])
            head.layers = context.places[cls]
            parameters = Parameters(total=count.total, trainable=count.trainable, encoder=encoder.num_parameters)
            name = config.setting_of or config.name
            rows.setdefault(name, Row(name, config.kind, parameters, head, config, inside + count.total))
    return list(rows.values()), _both(spent)


def _pass(
    context: RunContext, encoder: Encoder, own: Sequence[HeadConfig], heads: Mapping[str, Head], *, cls: bool
) -> Spent:
    passes = size_for(context.compute).passes
    config = context.experiment.heads.model_copy(
        update={"train": tuple(own), "share": 1.0, "epochs": 1 + passes, "report_epoch": None}
    )
    states = context.experiment.states.model_copy(update={"source": "live"})
    live = replace(context, experiment=context.experiment.model_copy(update={"heads": config, "states": states}))
    meter = Meter(context.compute.device)
    with open_states(live, encoder, "", own, objective=context.objective, cls=cls) as (source, _):
        for end in train_heads_together(
            heads, source, config, seed=context.seed, compute=context.compute, objective=context.objective
        ):
            if end.epoch == 1:  # a pass to warm up
                meter.go()
    return _spent(meter.stop(), passes * len(context.train))


def _output_row(context: RunContext, encoder: Encoder, output: Output, inside: int) -> Row:
    """Describe the encoder with its output layer as `list_rows` does."""
    count, size = count_parameters(output.head), encoder.num_parameters
    if output.is_plain:  # it was trained on the one state that it reads; from now on it is given several
        output.head.layers = layers_of_output(encoder, context.objective)
    parameters = Parameters(total=size + count.total, trainable=inside + count.trainable, encoder=size)
    return Row(ENCODER, "encoder", parameters, output.head, output.config, inside + count.total)


def _alone(context: RunContext, encoder: Encoder, row: Row, wanted: int | None = None) -> Alone:
    assert row.head is not None
    assert row.config is not None
    tokens = context.experiment.answers.tokens
    return open_alone(encoder, row.config, row.head, context.dev.windows, context.compute, tokens, wanted)


def _speed(context: RunContext, encoder: Encoder, row: Row) -> Speed:
    size = size_for(context.compute)
    alone, windows = _alone(context, encoder, row, size.answered), len(context.dev.windows)
    return Speed(seconds=alone.seconds(size.repeats) / windows, latency=alone.latency(size.repeats))


def _size(context: RunContext, encoder: Encoder, row: Row) -> RowSize:
    operations = _alone(context, encoder, row).operations() / len(context.dev.windows)
    return RowSize(parameters=row.parameters, ship_bytes=4 * row.ship_parameters, operations=operations)


def _spent(costs: Costs, num_windows: int) -> Spent:
    return Spent(
        seconds=costs.seconds / num_windows,
        data_seconds=costs.data_seconds / num_windows,
        joules=None if costs.joules is None else costs.joules / num_windows,
        peak_process_bytes=costs.peak_process_bytes,
        peak_device_bytes=costs.peak_device_bytes,
    )


def _both(found: Sequence[Spent]) -> Spent | None:
    """Add up the passes of heads that read all tokens and of those that read the first."""
    if not found:
        return None
    joules = [each.joules for each in found if each.joules is not None]
    return Spent(
        seconds=sum(each.seconds for each in found),
        data_seconds=0.0,
        joules=sum(joules) if joules else None,
        peak_process_bytes=max(each.peak_process_bytes for each in found),
        peak_device_bytes=max((each.peak_device_bytes for each in found if each.peak_device_bytes), default=None),
    )
