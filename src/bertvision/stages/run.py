"""The whole line, from text to scored records."""

from pathlib import Path

from bertvision.experiment import Experiment
from bertvision.files import locked, write_text
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord, in_order
from bertvision.stages.finetune import finetune
from bertvision.stages.heads import train_heads
from bertvision.stages.line import Line, prepare
from bertvision.stages.predict import predict

EXPERIMENT = "experiment.json"


def run(experiment: Experiment, out: Path, progress: Progress = SILENT) -> list[RunRecord]:
    """Take one experiment from text to records, one per row, fraction and seed; what OUT already holds is kept."""
    records = []
    with locked(out):
        line = start(experiment, out, progress)
        for seed in experiment.seeds:
            finetune(line, seed)
            for fraction in line.fractions:
                train_heads(line, seed, fraction)  # all heads, one pass
                records += predict(line, seed, fraction)
        write_experiment(experiment, out)
    return in_order(records)


def run_finetune(experiment: Experiment, out: Path, progress: Progress = SILENT) -> list[Path]:
    """Run the first stage alone: OUT/encoder/<fraction> for every seed."""
    with locked(out):
        line = start(experiment, out, progress)
        for seed in experiment.seeds:
            finetune(line, seed)
    folders = [line.folder(seed) for seed in experiment.seeds]
    return [folder.encoder(fraction) for folder in folders for fraction in experiment.finetune.fractions]


def run_train_heads(experiment: Experiment, out: Path, progress: Progress = SILENT) -> list[Path]:
    """Run the first two stages: OUT/heads/<fraction>/<head> for every seed."""
    with locked(out):
        line = start(experiment, out, progress)
        for seed in experiment.seeds:
            finetune(line, seed)
            for fraction in line.fractions:
                train_heads(line, seed, fraction)
    folders = [line.folder(seed) for seed in experiment.seeds]
    heads = [head.name for head in experiment.heads.train]
    return [folder.head(fraction, head) for folder in folders for fraction in line.fractions for head in heads]


def start(experiment: Experiment, out: Path, progress: Progress) -> Line:
    """Prepare the line and write down the experiment as it was resolved."""
    line = prepare(experiment, out, progress)
    if not (out / EXPERIMENT).exists():  # the settings of a folder that is refused stay as they are
        write_experiment(experiment, out)
    return line


def write_experiment(experiment: Experiment, out: Path) -> None:
    """Write down the experiment as it was resolved."""
    write_text(out / EXPERIMENT, experiment.model_dump_json(indent=2) + "\n")
