"""The run folder: where each stage's results lie, whether they are there, and whether they are this experiment's."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bertvision.errors import FolderError
from bertvision.files import LOCK, read_json, recover_all, remove_folder, remove_if_empty, whole_folder, write_json
from bertvision.records import RunRecord, fraction_name
from bertvision.settings import Settings, first_difference

EXPERIMENT = "experiment.json"
SETTINGS_FINGERPRINT = "settings_fingerprint.json"
PROGRESS = "progress"  # of an unfinished stage: what a training needs to go on
RESULTS = "results.json"  # of an unfinished stage: the folders that it is to make
TRIAL = ".bertvision-"  # begins the name of a folder in which a disk's speed is measured
PARTS = ("encoder", "figures", "heads", "predictions", "predictions_held_out", "records", "states", "unfinished")
ENCODER, HEADS = "encoder", "heads"
PREDICTIONS, HELD_OUT_PREDICTIONS = "predictions", "predictions_held_out"
RECORDS = "records"
_MODEL_FILES = ("head.safetensors", "model.json", "settings_fingerprint.json", "sha256.json", "training.json")
_ENCODER_FILES = ("adapters.safetensors", "lora.safetensors", "model.safetensors*", "config.json", "*token*", "vocab*")
_PREDICTION_FILES = (
    "best_spans.json",
    "logits.safetensors",
    "nbest_predictions.json",
    "null_odds.json",
    "paper_v1_predictions.json",
    "predictions.conll",
    "predictions.json",
    "probabilities.json",
    "sha256.json",
)
# Every file that a finished run may leave in OUT and, but for the first and last line, in OUT/seeds/SEED.
FILES = {
    "": ("experiment.json", "held_out.json", "training.jsonl", "report.html", "report.md", "tables.tex"),
    "encoder/FRACTION/": (*_MODEL_FILES, *_ENCODER_FILES),
    "heads/FRACTION/HEAD/": _MODEL_FILES,
    "predictions/FRACTION/MODEL/": (*_PREDICTION_FILES, "mistakes.json"),
    "predictions_held_out/FRACTION/MODEL/": _PREDICTION_FILES,
    "records/": ("*-seed*.json", "sha256.json"),
}
FRACTION = re.compile(r"given|[0-9][0-9.e+-]*")  # as `fraction_name` writes it


@dataclass(frozen=True)
class RunFolder:
    """`OUT` of one seed; the first seed's stages lie in OUT itself, the others' in OUT/seeds/<seed>."""

    out: Path
    root: Path
    fraction: float | None = None

    def encoder(self, fraction: float) -> Path:
        """Return the place of the encoder tuned for a fraction."""
        return self.root / ENCODER / fraction_name(fraction)

    def head(self, name: str) -> Path:
        """Return the place of a head trained on that encoder."""
        return self.root / HEADS / fraction_name(self.fraction) / name

    def predictions(self, row: str) -> Path:
        """Return the place of a row's answers to dev."""
        return self.root / PREDICTIONS / fraction_name(self.fraction) / row

    def held_out_predictions(self, row: str) -> Path:
        """Return the place of a row's answers to the held-out questions."""
        return self.root / HELD_OUT_PREDICTIONS / fraction_name(self.fraction) / row

    def unfinished(self, stage: str) -> Path:
        """Return the place of what a stopped stage needs to go on."""
        return self.root / "unfinished" / stage

    @property
    def training(self) -> Path:
        """Return the place of the course of all trainings of this seed, a line for each point."""
        return self.root / "training.jsonl"

    @property
    def held_out(self) -> Path:
        """Return the place of the held-out questions, the same for all seeds."""
        return self.out / "held_out.json"

    @property
    def records(self) -> Path:
        """Return the place of all seeds' records."""
        return self.out / RECORDS


def folder_of_seed(out: Path, seed: int, seeds: tuple[int, ...], fraction: float | None = None) -> RunFolder:
    """Return the part of a run folder that belongs to one seed, at a fraction."""
    return RunFolder(out, out if seed == seeds[0] else out / "seeds" / str(seed), fraction)


def folder_of_record(out: Path, record: RunRecord) -> RunFolder:
    """Return the part of a run folder that a record is of."""
    return folder_of_seed(out, record.seed, tuple(record.config["seeds"]), record.fraction)


class RunPath(NamedTuple):
    """Where a folder lies in a run folder: OUT[/seeds/SEED]/STAGE/FRACTION[/MODEL[/PART]]."""

    root: Path  # OUT, or OUT/seeds/SEED
    stage: str  # encoder, heads, predictions or predictions_held_out
    fraction: str  # as `fraction_name` writes it
    model: str  # `encoder`, or the name of a head or an ensemble
    part: str = ""  # of the predictions: those of one of `data.extra_dev_sets`, by its name

    @property
    def is_model(self) -> bool:
        """Return whether it is the folder of a model; else it holds predictions."""
        return self.stage in (ENCODER, HEADS)

    @property
    def is_held_out(self) -> bool:
        """Return whether it holds predictions on the held-out examples."""
        return self.stage == HELD_OUT_PREDICTIONS

    @property
    def out(self) -> Path:
        """Return the run folder."""
        return self.root.parent.parent if self.root.parent.name == "seeds" else self.root

    @property
    def predictions(self) -> Path:
        """Return the folder of the model's predictions on dev."""
        return self.root / PREDICTIONS / self.fraction / self.model

    @property
    def held_out_predictions(self) -> Path:
        """Return the folder of the model's predictions on the held-out examples."""
        return self.root / HELD_OUT_PREDICTIONS / self.fraction / self.model

    @property
    def held_out(self) -> Path:
        """Return the file of the held-out examples."""
        return RunFolder(self.out, self.root).held_out

    @property
    def record_paths(self) -> list[Path]:
        """List the records of the model at this fraction, those of all seeds."""
        name = glob.escape(f"{self.model}-{self.fraction}")
        return sorted((self.out / RECORDS).glob(f"{name}-seed*.json"))


def parse_run_path(folder: Path) -> RunPath | None:
    """Return where a folder lies in a run folder, or None if its path is none of a run's models or predictions."""
    for above in folder.parents:
        fraction, *names = folder.relative_to(above).parts
        if above.name in (PREDICTIONS, HELD_OUT_PREDICTIONS) and names and FRACTION.fullmatch(fraction):
            return RunPath(above.parent, above.name, fraction, names[0], "/".join(names[1:]))
    fraction_folder = folder.parent
    if fraction_folder.name == ENCODER:
        return RunPath(fraction_folder.parent, ENCODER, folder.name, "encoder")
    if fraction_folder.parent.name == HEADS:
        return RunPath(fraction_folder.parent.parent, HEADS, fraction_folder.name, folder.name)
    return None


def is_inside(encoder: Path, model: Path) -> bool:
    """Return whether a model's encoder lies in the model's own folder or, for a head of a run, in the same run."""
    folder = model.resolve()
    encoder = encoder.resolve()
    if encoder.is_relative_to(folder):
        return True
    place = parse_run_path(folder)
    return place is not None and place.stage == HEADS and encoder.parent == place.root / ENCODER


def folder_of_record_file(path: Path, record: RunRecord) -> RunFolder:
    """Return the part of a run folder that the record of a file, OUT/records/NAME.json, is of."""
    return folder_of_record(path.parent.parent, record)


def is_made(folder: Path, settings_fingerprint: Settings) -> bool:
    """Return whether a stage's result is there; refuse one that other settings made."""
    if not (folder / SETTINGS_FINGERPRINT).exists():
        return False
    if difference := first_difference(read_json(folder / SETTINGS_FINGERPRINT), settings_fingerprint):
        raise FolderError(
            f"{folder}: made by other settings ({difference}); choose another `out`, or delete this folder"
        )
    return True


def write_settings(folder: Path, settings_fingerprint: Settings) -> None:
    """Write down which settings made a result."""
    write_json(folder / SETTINGS_FINGERPRINT, settings_fingerprint)


@contextmanager
def resumable(
    folder: Path, settings_fingerprint: Settings, results: Sequence[Path], *, is_main: bool = True
) -> Iterator[Path]:
    """Return a folder for a stage's progress: kept when the block is cut short, removed when it ends well.

    It comes and goes together with its settings, and what lies there without them is never gone on with. `results` are
    the folders that the stage is to make. Without `is_main` another process makes and removes it.
    """
    if not is_main:
        yield folder / PROGRESS
        return
    names = [os.path.relpath(result, folder.parent.parent) for result in results]
    if not is_made(folder, settings_fingerprint):
        with whole_folder(folder) as beside:
            write_json(beside / RESULTS, names)
            write_settings(beside, settings_fingerprint)
    elif _results_of(folder) != names:
        write_json(folder / RESULTS, names)
    yield folder / PROGRESS
    remove_folder(folder)
    remove_if_empty(folder.parent)  # what another stage left may lie in it


def tidy(out: Path) -> None:
    """Put right what a killed run left in its folder; for whoever holds the lock."""
    for root in (out, *out.glob("seeds/*")):
        recover_all(root, "")
        for part in PARTS:
            recover_all(root / part)
        for lock in root.glob(f"states/*/{LOCK}"):
            lock.unlink()
        for trial in (*root.glob(f"{TRIAL}*"), *root.glob(f"states/{TRIAL}*")):
            remove_folder(trial)
        for stage in root.glob("unfinished/*"):
            if _has_ended(root, stage):
                remove_folder(stage)
        for part in ("states", "unfinished"):
            remove_if_empty(root / part)


def _has_ended(root: Path, stage: Path) -> bool:
    """Return whether a stage was killed after it had made all its results, so that nobody would go on with it."""
    results = _results_of(stage)
    return bool(results) and all((root / result / SETTINGS_FINGERPRINT).exists() for result in results)


def _results_of(stage: Path) -> list[str]:
    """Return which folders a stage is to make; none are known where an older version began it."""
    results: list[str] = read_json(stage / RESULTS) if (stage / RESULTS).exists() else []
    return results


def check_kept(files: Iterable[Path]) -> None:
    """Refuse to call a run finished whose results were removed while it went on."""
    if gone := next((path for path in files if not path.exists()), None):
        raise FolderError(f"{gone}: was removed while the run went on; give the same command again")
