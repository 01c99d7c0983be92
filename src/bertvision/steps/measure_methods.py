"""OUT/costs: what every method of an experiment costs, measured in turns in one process, warm."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError, SettingsError
from bertvision.experiment import Experiment
from bertvision.files import locked
from bertvision.progress import SILENT, Progress
from bertvision.records import COSTS_FOLDER, CostRecord, costs_path, provenance, read_method_costs, write_costs
from bertvision.settings import Settings, first_difference
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.method_turn import Turn, num_measured, size_for, take_turn
from bertvision.training.device import choose_compute

ROUNDS = 3
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


def measure_methods(experiments: Sequence[Experiment], out: Path, progress: Progress = SILENT) -> list[CostRecord]:
    """Measure every method once a round, forwards in one and backwards in the next; what OUT/costs holds is kept.

    Variants that differ in their learning rate alone are one method.
    """
    methods = one_rate_each(experiments)
    _check_alike(methods)
    first = next(iter(methods.values()))
    size = size_for(choose_compute(first.device, first.precision))
    with locked(out):
        context = replace(prepare(first, out, progress, size.examples), progress=SILENT)
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


def _check_alike(methods: Mapping[str, Experiment]) -> None:
    """Refuse methods that do not see the same windows in the same batches: their costs could not be compared."""
    (first, start), *others = ((name, _shared(method)) for name, method in methods.items())
    for name, settings in others:
        if difference := first_difference(start, settings):
            raise SettingsError(
                f"{first} and {name} cannot be measured side by side: {difference}; let all variants share "
                f"{', '.join(SHARED)} (--set KEY=VALUE holds for all of them), or measure some alone with "
                "--set variant=NAME and an --out of their own"
            )


def _shared(experiment: Experiment) -> Settings:
    settings = experiment.model_dump(mode="json")
    return {name: reduce(getitem, name.split("."), settings) for name in SHARED}


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
            costs[name] = _with_turn(costs[name], turn)
            write_costs(context.out, costs[name])
            yield name


def _with_turn(costs: CostRecord, turn: Turn) -> CostRecord:
    return costs.model_copy(update={"rounds": (*costs.rounds, turn.round), "rows": turn.rows})
