"""What one must know of a model to use it, whatever runs it; no torch in here."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from bertvision.data.example import DataConfig, TaskName
from bertvision.errors import FolderError
from bertvision.files import read_json
from bertvision.manifest import check_manifest
from bertvision.predictions.prediction import AnswerConfig
from bertvision.records import Choice, RunRecord, choose_model, main_score, read_records
from bertvision.run_folder import EXPERIMENT, folder_of_record
from bertvision.settings import BASE, DEFAULT, Config, Precision, Settings, merge, validate
from bertvision.windows.window import WindowConfig

CONFIG = "model.json"
CALIBRATION = "calibration.json"  # beside it, where the model was calibrated
ONNX_FORMAT: Literal["onnx-1"] = "onnx-1"  # where a whole number stands in a MODEL_DIR's config
ONNX_CONFIG = "onnx.json"  # beside both, where a MODEL_DIR holds a graph of its weights
SHIPPED = {name: Path(__file__).parent / f"{name}_model" for name in (DEFAULT, BASE)}
# The state of the first token, or of the last one, which alone has seen the whole row where an encoder reads from left
# to right; the mean or the maximum over all tokens; first, mean and maximum side by side; or both texts of a pair.
Pooling = Literal["first", "last", "mean", "max", "first_mean_max", "pair_difference"]


def shipped_model(name: str = DEFAULT) -> Path:
    """Find the folder of a model that ships with this package."""
    folder = SHIPPED[name]
    if not (folder / CONFIG).is_file():
        raise FolderError(
            f"this installation has no {name} model ({folder / CONFIG} is missing); install bertvision again, or "
            "train a model and give its folder"
        )
    return folder


class Calibration(Config):
    """A decision that was fitted on held-out questions, or what stands in for one."""

    threshold: float = 0.0  # the reader's: "no answer" scores less by it, and is given where it is likelier even so
    temperature: float = Field(1.0, gt=0)  # the reader's: scores are divided by it before they become probabilities
    official_threshold: float | None = None  # of the official decoder, for `predict`; None: the same as the reader's
    min_accuracy: float | None = None  # of answers that are given, which the thresholds were chosen for; None: best F1

    @property
    def null_threshold(self) -> float:
        """Return the threshold of the official decoder."""
        return self.threshold if self.official_threshold is None else self.official_threshold


class UseConfig(Config):
    """The base of models' configs: what they were trained for, how texts are cut and logits become answers."""

    encoder_fingerprint: str
    task: TaskName
    labels: tuple[str, ...] = ()  # names of its classes, labels or tags, by number
    text_counts: tuple[int, ...] | None = None  # how many texts it reads at once; None: as its table has them
    data: DataConfig = DataConfig()  # how the tables that it learned from are laid out
    windows: WindowConfig
    answers: AnswerConfig


class ComputeConfig(Config):
    """What a model runs on when it is used."""

    device: str = "auto"
    precision: Precision = "auto"


class PredictConfig(ComputeConfig):
    """What may be changed when a model is used."""

    answers: AnswerConfig
    data: DataConfig = DataConfig()  # how the file is laid out


def read_compute(settings: Settings) -> ComputeConfig:
    """Return on what a model is to run, which must be known before it is loaded; other settings are left for later."""
    own = {name: settings[name] for name in ComputeConfig.model_fields if name in settings}
    return validate(ComputeConfig, own, "settings")


def read_settings(model: UseConfig, settings: Settings, calibration: Calibration | None = None) -> PredictConfig:
    """Lay changed settings over those that a model was trained with, and over how it was calibrated."""
    own = {"answers": model.answers.model_dump(mode="json"), "data": model.data.model_dump(mode="json")}
    if calibration is not None:
        own["answers"]["null_threshold"] = calibration.null_threshold
    return validate(PredictConfig, merge(own, settings), "settings")


def best_model(folder: Path) -> Path:
    """Return the model of a run folder that scores best on dev, or else the path itself."""
    if (folder / CONFIG).exists():
        return folder
    if not (folder / "records").is_dir():
        refuse_without_result(folder)
        return folder
    choice = choose_from(folder, read_records(folder / "records"))
    return folder if choice is None else model_of(folder, choice.best[0])


def choose_from(folder: Path, records: Sequence[RunRecord]) -> Choice | None:
    """Return the best of the models that lie in a run folder, by its records; None where there are none."""
    own = [[each] for each in records if _has_model(folder, each)]
    return choose_model(own) if own else None


def refuse_without_result(folder: Path) -> None:
    """Refuse the folder of several runs, such as a file's variants, and that of a run which is not finished."""
    if runs := sorted(place.parent for place in folder.glob("*/records") if place.is_dir()):
        names = ", ".join(run.name for run in runs[:8]) + (", ..." if len(runs) > 8 else "")
        raise FolderError(f"{folder}: holds the runs {names}; give one, such as {runs[0]}")
    if (folder / EXPERIMENT).is_file():
        raise FolderError(
            f"{folder}: its run is not finished; the same `bertvision run` goes on with it, or give a model that it "
            "made, OUT/encoder/FRACTION or OUT/heads/FRACTION/HEAD"
        )


def better_than_models(folder: Path, records: Sequence[RunRecord]) -> RunRecord | None:
    """Return the best result of a run where that is no model of its folder: an ensemble, or the encoder as given."""
    results = [[each] for each in records if each.kind != "baseline"]
    most = max((main_score(each) for each in records if _has_model(folder, each)), default=math.inf)
    best = choose_model(results).best[0] if results else None
    return best if best is not None and main_score(best) > most else None


def _has_model(out: Path, record: RunRecord) -> bool:
    return (model_of(out, record) / CONFIG).is_file()


def model_of(out: Path, record: RunRecord) -> Path:
    """Return the folder of a record's model, if it has one."""
    place = folder_of_record(out, record)
    if record.model == "encoder" and record.fraction is not None:
        return place.encoder(record.fraction)
    return place.head(record.model)


def read_calibration_file(folder: Path) -> Calibration | None:
    """Read the calibration that lies beside a model; None where there is none."""
    path = folder / CALIBRATION
    check_manifest(folder, [CALIBRATION])
    return validate(Calibration, read_json(path), str(path)) if path.is_file() else None
