"""`MistakesRecord`: examples to read, with texts; it lies with a run's predictions and never among its records."""

from pathlib import Path

from bertvision.records.record import Record, read_file, write_file
from bertvision.records.runs import RunRecord
from bertvision.settings import Config

MISTAKES_FILE = "mistakes.json"


class Mistake(Config):
    """An example on which data and model differ."""

    split: str  # `dev` or `train`
    id: str
    texts: dict[str, str]  # each with what it is called; long ones are cut
    gold: str
    predicted: str
    probability: float | None  # of what is predicted; None where there is none


class MistakesRecord(Record):
    """What is worth reading of one (row, fraction, seed)."""

    experiment: str
    variant: str | None
    task: str
    row: str
    place: int  # as its record has it
    fraction: float | None
    seed: int
    examples: int  # of dev
    wrong: int | None  # of these; None where predictions are not right or wrong
    errors: list[Mistake]  # the worst first
    checked: dict[str, int]  # by split: how many examples were looked at for wrong labels
    suspects: dict[str, int]  # by split: how many of these look mislabelled
    mislabelled: list[Mistake]  # the likeliest first

    def is_of(self, record: RunRecord) -> bool:
        """Return whether it is about a record, also one that a report has given another name (`merge_variants`)."""
        own = (self.experiment, self.variant, self.task, self.fraction, self.seed, self.place)
        return own == (record.experiment, record.variant, record.task, record.fraction, record.seed, record.place)


def write_mistakes(folder: Path, mistakes: MistakesRecord) -> Path:
    """Write what is worth reading into a prediction folder."""
    return write_file(folder / MISTAKES_FILE, mistakes)


def read_mistakes(folder: Path) -> list[MistakesRecord]:
    """Read what is worth reading below a run folder; none where its predictions are gone."""
    paths = sorted(folder.rglob(f"predictions/*/*/{MISTAKES_FILE}"))
    return [read_file(MistakesRecord, path, "mistakes", "delete it and run again") for path in paths]
