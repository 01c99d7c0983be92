"""The whole line, from text to scored records; each step lies beside this file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bertvision.experiment import Experiment
from bertvision.files import locked, write_text
from bertvision.kinds.kind import ExtraScore
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord, in_order
from bertvision.run_folder import EXPERIMENT, SETTINGS_FINGERPRINT, check_kept, tidy
from bertvision.stages.context import RunContext, prepare
from bertvision.stages.finetune import finetune
from bertvision.stages.heads import train_heads
from bertvision.stages.notes import caution, tips
from bertvision.stages.predict import files_of, predict
from bertvision.stages.prepare import ExperimentData
from bertvision.stages.trackers import tracking
from bertvision.training.device import choose_compute, deterministic
from bertvision.training.distributed import join_processes
from bertvision.training.history import Callback


def run(
    experiment: Experiment,
    out: str | Path,
    progress: Progress = SILENT,
    callbacks: Sequence[Callback] = (),
    lender: str | Path | None = None,
    data: ExperimentData | None = None,
    extra_scores: Mapping[str, ExtraScore] | None = None,
) -> list[RunRecord]:
    """Take one experiment from text to records, one per result, fraction and seed; what OUT already holds is kept.

    `callbacks` see the course of every training, beside the trackers of `experiment.report_to`. Encoders that a run
    below `lender` tuned by the same settings are taken from there. `data` are those of the experiment, where they are
    read already. `extra_scores` are functions by name, which get a split (`Answering`), a model's logits and how these
    were combined, and return further scores; a run that goes on needs the same ones. Of several processes, which
    Accelerate or `bertvision run --processes` starts, the main one returns the records, the others none.
    """
    records, out = [], Path(out)
    lent = None if lender is None else Path(lender)
    with opened(experiment, out, progress, callbacks, lent, data, extra_scores) as context:
        for seed in experiment.seeds:
            finetune(context.at(seed))
            for fraction in context.fractions:
                train_heads(context.at(seed, fraction))  # all heads, one pass
                records += predict(context.at(seed, fraction))
        if context.is_main:
            _check_records(context, records)
            write_experiment(context.experiment, out)
    return in_order(records)


def _check_records(context: RunContext, records: Sequence[RunRecord]) -> None:
    check_kept(file for record in records for file in files_of(context.at(record.seed, record.fraction), record))


def run_finetune(
    experiment: Experiment, out: Path, progress: Progress = SILENT, data: ExperimentData | None = None
) -> list[Path]:
    """Run the first step alone: OUT/encoder/<fraction> for every seed."""
    with opened(experiment, out, progress, data=data) as context:
        for seed in experiment.seeds:
            finetune(context.at(seed))
        folders = [context.at(seed).folder for seed in experiment.seeds]
        fractions = context.experiment.finetune.fractions
        places = [folder.encoder(fraction) for folder in folders for fraction in fractions]
        context.processes.agreed(lambda: check_kept(place / SETTINGS_FINGERPRINT for place in places))
    return places


def run_train_heads(
    experiment: Experiment, out: Path, progress: Progress = SILENT, data: ExperimentData | None = None
) -> list[Path]:
    """Run the first two steps: OUT/heads/<fraction>/<head> for every seed."""
    places = []
    with opened(experiment, out, progress, data=data) as context:
        for seed in experiment.seeds:
            finetune(context.at(seed))
            for fraction in context.fractions:
                train_heads(context.at(seed, fraction))
                folder = context.at(seed, fraction).folder
                places += [folder.head(head.name) for head in experiment.heads.train]
        context.processes.agreed(lambda: check_kept(place / SETTINGS_FINGERPRINT for place in places))
    return places


@contextmanager
def opened(
    experiment: Experiment,
    out: Path,
    progress: Progress,
    callbacks: Sequence[Callback] = (),
    lender: Path | None = None,
    data: ExperimentData | None = None,
    extra_scores: Mapping[str, ExtraScore] | None = None,
) -> Iterator[RunContext]:
    """Lock the run folder, prepare the context, and write down the experiment as it was resolved.

    Of several processes the main one does so; the others wait until the folder is tidy, and for the end of the run.
    """
    with deterministic(experiment.deterministic):
        processes = join_processes(choose_compute(experiment.device, experiment.precision).device)
        if not processes.is_main:
            processes.wait()
            context = prepare(experiment, out, SILENT, data=data, extra_scores=extra_scores)
            yield replace(context, compute=context.compute._replace(processes=processes))
            processes.wait()
            return
        with locked(out), tracking(experiment, out) as trackers:
            tidy(out)
            processes.wait()
            context = prepare(experiment, out, progress, data=data, extra_scores=extra_scores)
            context = replace(context, callbacks=(*callbacks, *trackers), lender=lender)
            context = replace(context, compute=context.compute._replace(processes=processes))
            if not (out / EXPERIMENT).exists():  # the settings of a folder that is refused stay as they are
                write_experiment(context.experiment, out)
            for said in caution(context):
                progress.say(f"warning: {said}")
            for said in tips(context):
                progress.say(f"tip: {said}")
            yield context
            processes.wait()


def write_experiment(experiment: Experiment, out: Path) -> None:
    """Write down the experiment as it was resolved."""
    write_text(out / EXPERIMENT, experiment.model_dump_json(indent=2) + "\n")
