"""When a model declines and how sure it is: `calibration.json` beside `model.json`, or what its run's record says."""

import glob
from pathlib import Path

from pydantic import Field

from bertvision.files import read_json
from bertvision.records import RunRecord, read_record
from bertvision.run_folder import folder_of_seed
from bertvision.settings import Config, validate
from bertvision.stages.use_config import UseConfig

CALIBRATION = "calibration.json"


class Calibration(Config):
    """A decision that was fitted on held-out questions, or what stands in for one."""

    threshold: float = 0.0  # no answer is given where the null odds exceed it
    temperature: float = Field(1.0, gt=0)  # scores are divided by it before they become probabilities


def read_calibration(folder: Path, config: UseConfig) -> Calibration:
    """Read a MODEL_DIR's calibration; without held-out questions, its experiment's threshold and temperature 1."""
    if (folder / CALIBRATION).is_file():
        return validate(Calibration, read_json(folder / CALIBRATION), str(folder / CALIBRATION))
    record = find_record(folder, config)
    if record is None or "tuned_threshold" not in record.scores:
        return Calibration(threshold=config.answers.null_threshold)
    return Calibration(threshold=record.scores["tuned_threshold"], temperature=record.scores["temperature"])


def find_record(folder: Path, config: UseConfig) -> RunRecord | None:
    """Find the record of a MODEL_DIR that lies in its run folder; None where it was copied out of it."""
    place = folder.resolve()
    if place.parent.name == "encoder":
        row, fraction, root = "encoder", place.name, place.parent.parent
    elif place.parent.parent.name == "heads":
        row, fraction, root = place.name, place.parent.name, place.parent.parent.parent
    else:
        return None
    out = root.parent.parent if root.parent.name == "seeds" else root
    paths = sorted((out / "records").glob(f"{glob.escape(f'{row}-{fraction}')}-seed*.json"))
    records = [record for record in map(read_record, paths) if record.encoder_fingerprint == config.encoder_fingerprint]
    return next((each for each in records if _folder_of(out, each) == root), None)


def _folder_of(out: Path, record: RunRecord) -> Path:
    return folder_of_seed(out, record.seed, tuple(record.config["seeds"])).root
