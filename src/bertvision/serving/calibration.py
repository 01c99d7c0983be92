"""When a model abstains and how sure it is: `calibration.json` beside `model.json`, or what its run's record says."""

import glob
from pathlib import Path

from bertvision.model_config import Calibration, UseConfig, read_calibration_file
from bertvision.records import RunRecord, read_record
from bertvision.run_folder import folder_of_seed


def read_calibration(folder: Path, config: UseConfig) -> Calibration:
    """Read a MODEL_DIR's calibration; without held-out questions, its experiment's threshold and temperature 1."""
    if (written := read_calibration_file(folder)) is not None:
        return written
    record = find_record(folder, config)
    if record is None or "tuned_threshold" not in record.scores:
        return Calibration(threshold=config.answers.null_threshold)
    scores = record.scores
    if "reader_tuned_threshold" not in scores:  # `answers.decoders` had no `reader`
        return Calibration(threshold=scores["tuned_threshold"], temperature=scores["temperature"])
    return Calibration(
        threshold=scores["reader_tuned_threshold"],
        temperature=scores["reader_temperature"],
        official_threshold=scores["tuned_threshold"],
    )


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
