"""`StudyRecord`: one table of a paper, run again: what was published, what came out, and what that says."""

from pathlib import Path
from typing import Any, Literal

from bertvision.records.runs import Provenance, Record, read_file, write_file
from bertvision.settings import Config

STUDY_FILE = "study.json"
Verdict = Literal["holds", "does not hold", "cannot tell"]


class SeedMean(Config):
    """A mean over seeds, and where it lies with 95%; None where there is only one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


class JudgedResult(Config):
    """A published result beside ours."""

    row: str
    fraction: float | None
    published: dict[str, float]  # by score; empty for a control, which the papers lack
    ours: dict[str, SeedMean]  # by score: the paper's own, and the official ones
    published_gain: float | None = None  # over the row that results are compared with, by the study's first score
    gain: SeedMean | None = None
    over_control: SeedMean | None = None
    verdict: Verdict | None = None  # None for controls
    note: str = ""  # what is known to be wrong with the published numbers


class JudgedClaim(Config):
    """A claim of a paper, and what records say of it."""

    text: str
    where: str  # in the paper
    score: str | None = None  # that it was judged by
    published: float | None = None
    ours: SeedMean | None = None  # None where no records are of it
    verdict: Verdict | None = None  # None: untested


class StudyRecord(Record):
    """A study that was run."""

    study: str
    title: str
    encoder: str
    seeds: tuple[int, ...]
    data: dict[str, str]  # by split, the name of its file
    metric: str  # by which the paper's numbers were computed
    margin: float  # of what counts as equal
    results: tuple[JudgedResult, ...]
    claims: tuple[JudgedClaim, ...]
    analyses: tuple[dict[str, Any], ...] = ()  # of the study's analysis, a seed each
    provenance: Provenance


def write_study(folder: Path, record: StudyRecord) -> Path:
    """Write a study's record beside its runs."""
    return write_file(folder / STUDY_FILE, record)


def read_study_records(folder: Path) -> list[StudyRecord]:
    """Read all studies below a folder; there may be none."""
    return [read_file(StudyRecord, path, "a study's record") for path in sorted(folder.rglob(STUDY_FILE))]
