"""The run folder: where each stage's results lie, whether they are there, and whether they are this experiment's."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bertvision.errors import FolderError
from bertvision.files import read_json, write_json
from bertvision.records import fraction_name
from bertvision.settings import Settings, first_difference

MADE_BY = "made_by.json"


@dataclass(frozen=True)
class RunFolder:
    """`OUT` of one seed; the first seed's stages lie in OUT itself, the others' in OUT/seeds/<seed>."""

    out: Path
    root: Path
    fraction: float | None = None

    def encoder(self, fraction: float) -> Path:
        """Return the place of the encoder tuned for a fraction."""
        return self.root / "encoder" / fraction_name(fraction)

    def head(self, name: str) -> Path:
        """Return the place of a head trained on that encoder."""
        return self.root / "heads" / fraction_name(self.fraction) / name

    def predictions(self, row: str) -> Path:
        """Return the place of a row's answers to dev."""
        return self.root / "predictions" / fraction_name(self.fraction) / row

    def held_out_predictions(self, row: str) -> Path:
        """Return the place of a row's answers to the held-out questions."""
        return self.root / "predictions_held_out" / fraction_name(self.fraction) / row

    def unfinished(self, stage: str) -> Path:
        """Return the place of what a stopped stage needs to go on."""
        return self.root / "unfinished" / stage

    @property
    def held_out(self) -> Path:
        """Return the place of the held-out questions, the same for all seeds."""
        return self.out / "held_out.json"

    @property
    def records(self) -> Path:
        """Return the place of all seeds' records."""
        return self.out / "records"


def folder_of_seed(out: Path, seed: int, seeds: tuple[int, ...], fraction: float | None = None) -> RunFolder:
    """Return the part of a run folder that belongs to one seed, at a fraction."""
    return RunFolder(out, out if seed == seeds[0] else out / "seeds" / str(seed), fraction)


def is_made(folder: Path, made_by: Settings) -> bool:
    """Return whether a stage's result is there; refuse one that other settings made."""
    if not (folder / MADE_BY).exists():
        return False
    if difference := first_difference(read_json(folder / MADE_BY), made_by):
        raise FolderError(
            f"{folder}: made by other settings ({difference}); choose another --out, or delete this folder"
        )
    return True


def sign(folder: Path, made_by: Settings) -> None:
    """Write down which settings made a result."""
    write_json(folder / MADE_BY, made_by)


@contextmanager
def resumable(folder: Path, made_by: Settings) -> Iterator[Path]:
    """Return a folder for a stage's progress: kept when the block is cut short, removed when it ends well."""
    if not is_made(folder, made_by):
        sign(folder, made_by)
    yield folder / "progress"
    shutil.rmtree(folder)
    with suppress(OSError):  # what another stage left may lie beside it
        folder.parent.rmdir()
