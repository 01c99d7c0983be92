"""Judges a study that was run seed by seed: python tools/judge_seeds.py NAME DEV OUT RUN...

Each RUN is the run folder of some seeds (`python -m studies run NAME --set seeds='[3]' --out OUT3`: OUT3/NAME), so that
several can run at once. Writes OUT/study.json and study.md as that does, and their records to OUT/records, or
OUT/VARIANT/records.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from arguments import read_arguments

from bertvision.evaluate.compare_methods import Shown, predictions_of
from bertvision.files import write_text
from bertvision.records import read_record, record_paths, write_record

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.records import write_study
from studies.run import resample_claims, study_page
from studies.study import find_study
from studies.verdicts import judge


def judge_seeds(name: str, dev: str, out: Path, runs: Sequence[Path]) -> None:
    """Judge all records of a study below some run folders as one."""
    study = find_study(name)
    found = [(read_record(path), path) for run in runs for path in record_paths(run / "records")]
    shown = [Shown(record, record.model, predictions_of(record, path)) for record, path in found]
    record = judge(study, [each for each, _ in found], None, resample_claims(study, shown, dev))
    for each, _ in found:
        write_record(out / (each.variant or "") / "records", each)
    write_study(out, record)
    write_text(out / "study.md", study_page(study, record))


if __name__ == "__main__":
    study, dev, out, runs = read_arguments(__doc__, "NAME", "DEV", "OUT", "RUN...")
    judge_seeds(study, dev, Path(out), [Path(each) for each in runs])
