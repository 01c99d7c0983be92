"""What a disk holds at some moments of a run is what a loss of power leaves: `make faults` goes on from each."""

import filecmp
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import yaml
from faults import content_of

MOMENTS = 8
# The file system writes names within a second and contents as late as it can, as one does that knows no mercy.
OPTIONS = "loop,noauto_da_alloc,commit=1"
NOT_SYNCED = "import os; os.fsync = lambda _: None; from bertvision.cli import main; main()"


@pytest.fixture
def disk(tmp_path):
    """An empty file system in a file."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    return image


@contextmanager
def mounted(image, place):
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", OPTIONS, str(image), str(place)], check=True)
    try:
        yield place / "out"
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def config(saving_always, tmp_path):
    """Enough epochs to be seen at several moments."""
    settings = {**saving_always, "finetune": {**saving_always["finetune"], "fractions": [10, 20]}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path / "tiny.yaml"


def command(config, out, program=("-m", "bertvision")):
    return [sys.executable, *program, "run", str(config), "--out", str(out), "--quiet"]


def snapshots(config, disk, place, program):
    """Run on the disk, and copy what it holds from the first file on, in equal steps of time."""
    copies = []
    with mounted(disk, place) as out, subprocess.Popen(command(config, out, program)) as running:
        while running.poll() is None:
            if out.exists():
                copies.append(copy_still(disk, disk.with_name(f"{len(copies)}.img"), running))
            time.sleep(0.1)
        assert running.returncode == 0
        whole = lasting(out)
    step = max(1, len(copies) // MOMENTS)
    return copies[::step], whole


def copy_still(disk, copy, running):
    """Copy a disk while nothing is written to it: a copy of two moments is what no loss of power leaves."""
    running.send_signal(signal.SIGSTOP)
    shutil.copy(disk, copy)
    while not filecmp.cmp(shutil.copy(disk, copy.with_suffix(".again")), copy, shallow=False):
        copy.with_suffix(".again").replace(copy)
    running.send_signal(signal.SIGCONT)
    return copy


def goes_on(config, copy, place, whole):
    with mounted(copy, place) as out:
        again = subprocess.run(command(config, out), check=False, capture_output=True)
        if again.returncode:
            return False
        try:
            return lasting(out) == whole
        except ValueError:  # no JSON any more
            return False


def lasting(out):
    """Return what a run holds but for its report, which tells how long it took."""
    return {
        name: content
        for name, content in content_of(out).items()
        if not name.startswith(("report", "figures", "tables"))
    }


@pytest.mark.faults
@pytest.mark.parametrize(("program", "lasts"), [(("-m", "bertvision"), True), (("-c", NOT_SYNCED), False)])
def test_a_run_goes_on_from_what_a_loss_of_power_leaves_as_files_are_synced(program, lasts, config, disk, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    copies, whole = snapshots(config, disk, tmp_path / "place", program)
    assert len(copies) >= MOMENTS // 2
    ends = [goes_on(config, copy, tmp_path / "place", whole) for copy in copies]
    assert all(ends) == lasts, ends
