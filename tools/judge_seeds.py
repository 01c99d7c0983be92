"""Judges a study that was run seed by seed: python tools/judge_seeds.py NAME DEV OUT RUN...

Each RUN is the run folder of some seeds (`python -m studies run NAME --set seeds='[3]' --out OUT3`: OUT3/NAME), so that
several can run at once. Writes OUT/study.json and study.md as that does, their records to OUT/records, or
OUT/VARIANT/records, and of the headline all answers to OUT/predictions.jsonl.xz.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from arguments import read_arguments

from bertvision.evaluate.compare import Shown, predictions_of
from bertvision.files import write_text
from bertvision.records import located_records, write_record

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks and studies are in no wheel
from studies.claims import HEADLINE
from studies.kept_predictions import keep_predictions
from studies.records import write_study
from studies.run import resample_claims, study_page
from studies.study import find_study
from studies.verdicts import judge


def judge_seeds(name: str, dev: str, out: Path, runs: Sequence[Path]) -> None:
    """Judge all records of a study below some run folders as one."""
    study = find_study(name)
    found = [each for run in runs for each in located_records(run)]
    shown = [Shown(record, record.model, predictions_of(record, run)) for record, run in found]
    record = judge(study, [each for each, _ in found], None, resample_claims(study, shown, dev))
    for each, _ in found:
        write_record(out / (each.variant or "") / "records", each)
    write_study(out, record)
    if name == HEADLINE:
        places = [place for claim in study.claims for place in (claim.one, claim.other) if place is not None]
        with_odds = {(place.row, float(place.fraction)) for place in places if place.score == "best_f1"}
        keep_predictions(out, shown, Path(dev), with_odds)
    write_text(out / "study.md", study_page(study, record))


if __name__ == "__main__":
    study, dev, out, runs = read_arguments(__doc__, "NAME", "DEV", "OUT", "RUN...")
    judge_seeds(study, dev, Path(out), [Path(each) for each in runs])
