"""OUT/costs: what every method of an experiment costs, measured in turns in one process, warm.

One method's turn: tune an untrained encoder for some steps, train its heads, run its rows alone.
"""

import gc
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.encoder.encode import freeze, layers_of_output
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.encoder.tuning.freezing import count_trainable
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.errors import FolderError, SettingsError
from bertvision.experiment import Experiment, read_experiments
from bertvision.files import locked
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Head, count_parameters
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.model_config import Pooling
from bertvision.model_folder import as_saved
from bertvision.progress import SILENT, Progress
from bertvision.records import Parameters, provenance
from bertvision.settings import Settings, first_difference
from bertvision.stages.candidates import ENCODER, ResultModel
from bertvision.stages.context import RunContext, prepare
from bertvision.stages.finetune import Output, output_layer, tune_together
from bertvision.stages.measure import Alone, open_alone
from bertvision.stages.prepare import ExperimentData, read_data
from bertvision.stages.states import open_states
from bertvision.training.accounting import Costs, Meter
from bertvision.training.device import Compute, choose_compute
from studies.cost_records import (
    COSTS_FOLDER,
    CostRecord,
    Round,
    RowSize,
    Speed,
    Spent,
    costs_path,
    read_method_costs,
    write_costs,
)

ROUNDS = 3
CONFIG = "config="
# Alike for all methods of a file.
SHARED = (
    *("task", "data", "encoder", "windows", "answers", "device", "precision"),
    *("states.layers", "finetune.batch", "finetune.accumulate"),
)
# What costs do not depend on.
UNLIKE: dict[str, Any] = {
    **dict.fromkeys(("name", "variant", "method", "seeds", "measure", "ensembles"), True),
    "finetune": {"lr", "fractions", "save_every"},
}


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


class MeasuredTraining(NamedTuple):
    """What tuning and heads have cost for each window, and the models that came out."""

    encoder: Encoder  # frozen
    rows: list[ResultModel]
    tuning: Spent | None
    heads: Spent | None


def bench_costs(overrides: Sequence[str], out: Path, progress: Progress = SILENT) -> list[CostRecord]:
    """Measure the experiment that `config=FILE` names, with the other settings laid over it."""
    own = [each for each in overrides if each.startswith(CONFIG)]
    if not own:
        raise SettingsError("costs are those of an experiment's variants; name its file: --set config=mine.yaml")
    others = [each for each in overrides if each not in own]
    experiments = read_experiments(Path(own[-1].removeprefix(CONFIG)), others)
    return measure_methods(experiments, out, progress, read_data(experiments[0], progress))


def measure_methods(
    experiments: Sequence[Experiment], out: Path, progress: Progress = SILENT, data: ExperimentData | None = None
) -> list[CostRecord]:
    """Measure every method once a round, forwards in one and backwards in the next; what OUT/costs holds is kept.

    Variants that differ in their learning rate alone are one method. `data` are those of the first, where they are read
    already.
    """
    methods = one_rate_each(experiments)
    _check_alike(methods, SHARED)
    first = next(iter(methods.values()))
    size = size_for(choose_compute(first.device, first.precision))
    with locked(out):
        context = replace(prepare(first, out, progress, size.examples, data=data), progress=SILENT)
        methods = {name: context.fitted(method) for name, method in methods.items()}
        _check_alike(methods, ("states.pooling",))
        costs = {name: _kept(context, method) for name, method in methods.items()}
        if num_left := _count_left(costs.values(), out, progress):
            with progress.bar("measure", num_left) as bar:
                for name in _take_turns(context, methods, costs, progress):
                    bar.advance(1, lambda name=name: name)  # type: ignore[misc]
    return list(costs.values())


def one_rate_each(experiments: Sequence[Experiment]) -> dict[str, Experiment]:
    """Return a file's methods by name, each with the first of its learning rates."""
    methods: dict[str, Experiment] = {}
    for experiment in experiments:
        methods.setdefault(experiment.method or experiment.name, experiment)
    return methods


def _check_alike(methods: Mapping[str, Experiment], shared: Sequence[str]) -> None:
    """Refuse methods that do not see the same windows in the same batches: their costs could not be compared."""
    (first, start), *others = ((name, _shared(method, shared)) for name, method in methods.items())
    for name, settings in others:
        if difference := first_difference(start, settings):
            raise SettingsError(
                f"{first} and {name} cannot be measured side by side: {difference}; let all variants share "
                f"{', '.join(shared)} (--set KEY=VALUE holds for all of them), or measure some alone with "
                "--set variant=NAME and an --out of their own"
            )


def _shared(experiment: Experiment, names: Sequence[str]) -> Settings:
    settings = experiment.model_dump(mode="json")
    return {name: reduce(getitem, name.split("."), settings) for name in names}


def _kept(context: RunContext, experiment: Experiment) -> CostRecord:
    """Return what OUT/costs holds of a method; refuse what was measured with other settings or on another device."""
    settings = experiment.model_dump(mode="json", exclude=UNLIKE)
    fresh = CostRecord(
        experiment=experiment.name,
        method=experiment.method,
        rows={},
        rounds=(),
        num_windows=num_measured(context.of(experiment)),
        settings=settings,
        provenance=provenance(context.compute.name, context.compute.precision),
    )
    path = costs_path(context.out, fresh.experiment, fresh.method)
    if not path.exists():
        return fresh
    there = read_method_costs(path)
    old, new = ({"device": each.provenance.device, "settings": each.settings} for each in (there, fresh))
    if difference := first_difference(old, new):
        raise FolderError(f"{path}: measured differently ({difference}); delete it, or choose another --out")
    return there


def _count_left(costs: Collection[CostRecord], out: Path, progress: Progress) -> int:
    """Count the turns that are still to take, and say so where some were taken before."""
    kept, total = sum(len(each.rounds) for each in costs), ROUNDS * len(costs)
    if kept == total:
        progress.say(f"all {total} turns are in {out / COSTS_FOLDER} already; delete it to measure again")
    elif kept:
        progress.say(f"{kept} of {total} turns are in {out / COSTS_FOLDER} already")
    return total - kept


def _take_turns(
    context: RunContext, methods: Mapping[str, Experiment], costs: dict[str, CostRecord], progress: Progress
) -> Iterator[str]:
    """Take the turns that are left, add each to its method's costs, and give the method's name after it."""
    first = next(iter(methods.values()))
    start = load_encoder(first.encoder)
    if context.compute.device.type == "cuda":  # the first to run in a process loads kernels: three times as long
        take_turn(context.of(first), start, {})
    for number in range(ROUNDS):
        left = [name for name in methods if len(costs[name].rounds) == number]
        if left:
            progress.say(f"round {number + 1} of {ROUNDS}")
        for name in left[:: -1 if number % 2 else 1]:
            turn = take_turn(context.of(methods[name]), start, costs[name].rows)
            rounds = (*costs[name].rounds, turn.round)
            costs[name] = costs[name].model_copy(update={"rounds": rounds, "rows": turn.rows})
            write_costs(context.out, costs[name])
            yield name


def num_measured(context: RunContext) -> int:
    """Count the windows that a turn measures the tuning on."""
    warm, whole = _stops(context)
    return whole - warm


def take_turn(context: RunContext, start: Encoder, known: Mapping[str, RowSize]) -> Turn:
    """Measure the method of a line whose train is a sample; `known` are sizes that an earlier turn has found.

    `start` is the encoder before any training and stays as it is.
    """
    trained = measure_training(context, start)
    encoder, rows = trained.encoder, trained.rows
    return Turn(
        Round(
            tuning=trained.tuning,
            heads=trained.heads,
            rows={row.name: speed_of(context, encoder, row) for row in rows},
        ),
        {row.name: known.get(row.name) or size_of(context, encoder, row) for row in rows},
    )


def measure_training(context: RunContext, start: Encoder) -> MeasuredTraining:
    """Tune a copy of an encoder for some steps and train its heads, as the stages do."""
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
    return MeasuredTraining(encoder, [*rows, *trained], tuning, heads)


def _stops(context: RunContext) -> tuple[int, int]:
    """Count the windows that are seen before the steps that count, and with them."""
    size, config = size_for(context.compute), context.experiment.finetune
    once = config.model_copy(update={"fractions": (1.0,)})
    epochs = math.ceil((size.warm + size.steps) / len(context.tuning_steps(once)))
    several = config.model_copy(update={"fractions": (float(epochs),)})
    steps = context.tuning_steps(several)
    seen = [sum(len(rows) for rows in step) for step in steps]
    return sum(seen[: size.warm]), sum(seen[: size.warm + size.steps])


def _tuning(context: RunContext, encoder: Encoder, output: Output) -> Spent:
    """Tune for some steps; those before the first of two stops are the warm-up."""
    stops = _stops(context)
    fractions = tuple(stop / len(context.tuning_windows()) for stop in stops)
    config = context.experiment.finetune.model_copy(update={"fractions": fractions})
    short = replace(context, experiment=context.experiment.model_copy(update={"finetune": config}))
    warm, whole = (checkpoint.costs for checkpoint in tune_together(short, encoder, output))
    measured = whole._replace(
        seconds=whole.seconds - warm.seconds,
        data_seconds=whole.data_seconds - warm.data_seconds,
        joules=None if whole.joules is None else whole.joules - (warm.joules or 0.0),
    )
    return spent_per_window(measured, stops[1] - stops[0])


def _heads(context: RunContext, encoder: Encoder, inside: int) -> tuple[list[ResultModel], Spent | None]:
    """Train all heads together as the second stage does, and give one of each that differ in their rate alone."""
    rows: dict[str, ResultModel] = {}
    spent: list[Spent] = []
    for pooling in context.shapes:
        own = [head for head in context.experiment.heads.train if context.pooling_of(head) == pooling]
        if not own:
            continue
        heads = build_heads(own, context.shapes[pooling], context.seed, context.objective, pooling or "first")
        spent.append(_pass(context, encoder, own, heads, pooling=pooling))
        for config in own:
            head, count = heads[config.name], count_parameters(heads[config.name])
            head.layers = context.places[pooling]
            parameters = Parameters(total=count.total, trainable=count.trainable, encoder=encoder.num_parameters)
            name = config.variant_of or config.name
            rows.setdefault(name, ResultModel(name, config.kind, parameters, head, config, inside + count.total))
    return list(rows.values()), add_passes(spent)


def _pass(
    context: RunContext,
    encoder: Encoder,
    own: Sequence[HeadConfig],
    heads: Mapping[str, Head],
    *,
    pooling: Pooling | None,
) -> Spent:
    passes = size_for(context.compute).passes
    config = context.experiment.heads.model_copy(
        update={"train": tuple(own), "data_fraction": 1.0, "epochs": 1 + passes}
    )
    states = context.experiment.states.model_copy(update={"source": "live", "folder": None})
    live = replace(context, experiment=context.experiment.model_copy(update={"heads": config, "states": states}))
    meter = Meter(context.compute.device)
    source, _ = open_states(live, encoder, "", pooling=pooling)
    for end in train_heads_together(
        heads, source, config, seed=context.seed, compute=context.compute, objective=context.objective
    ):
        if end.epoch == 1:  # a pass to warm up
            meter.go()
    return spent_per_window(meter.stop(), passes * len(context.train))


def _output_row(context: RunContext, encoder: Encoder, output: Output, inside: int) -> ResultModel:
    """Describe the encoder with its output layer as `list_models` does."""
    count, size = count_parameters(output.head), encoder.num_parameters
    if output.is_plain:  # it was trained on the one state that it reads; from now on it is given several
        output.head.layers = layers_of_output(encoder, context.objective, output.head.pooling or "first")
    parameters = Parameters(total=size + count.total, trainable=inside + count.trainable, encoder=size)
    return ResultModel(ENCODER, "encoder", parameters, output.head, output.config, inside + count.total)


def size_for(compute: Compute) -> Size:
    """Return what suits a device."""
    return SIZES.get(compute.device.type, SIZES["cpu"])


def speed_of(context: RunContext, encoder: Encoder, row: ResultModel) -> Speed:
    """Time one row alone, per window."""
    size = size_for(context.compute)
    alone, windows = _alone(context, encoder, row, size.answered), len(context.dev.windows)
    return Speed(seconds=alone.seconds(size.repeats) / windows, latency=alone.latency(size.repeats))


def size_of(context: RunContext, encoder: Encoder, row: ResultModel) -> RowSize:
    """Return how large a row is, and count its operations per window."""
    operations = _alone(context, encoder, row).operations() / len(context.dev.windows)
    return RowSize(parameters=row.parameters, ship_bytes=4 * row.ship_parameters, operations=operations)


def spent_per_window(costs: Costs, num_windows: int) -> Spent:
    """Return what a window has cost."""
    return Spent(
        seconds=costs.seconds / num_windows,
        data_seconds=costs.data_seconds / num_windows,
        joules=None if costs.joules is None else costs.joules / num_windows,
        peak_process_bytes=costs.peak_process_bytes,
        peak_device_bytes=costs.peak_device_bytes,
    )


def add_passes(found: Sequence[Spent]) -> Spent | None:
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


def _alone(context: RunContext, encoder: Encoder, row: ResultModel, wanted: int | None = None) -> Alone:
    assert row.head is not None
    assert row.config is not None
    tokens = context.experiment.answers.batch_tokens
    return open_alone(encoder, row.config, row.head, context.dev.windows, context.compute, tokens, wanted)
