"""What a full disk, no memory, a signal or another library's exception makes of a command: one line and a code."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from tokenizers import Tokenizer
from torch import nn
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.cli.console import StoppedError, exit_code, explain, stopped_by_signals


def raised_by(fault):
    """Return an exception, or the one that a function raises."""
    if isinstance(fault, BaseException):
        return fault
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any)
        fault()
    return caught.value


def no_such_file():
    return Path("no such file").open()


def a_tensor_of_another_size():
    nn.Linear(2, 3).load_state_dict({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)})


def write_to_a_full_disk():
    with Path("/dev/full").open("wb", buffering=0) as file:  # the kernel's own error
        file.write(b"x")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            write_to_a_full_disk,
            "No space left on device; free some space, or choose a folder on another disk; then give the same",
        ),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "No space left on device; free some"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "out/a"), "out/a: Disk quota exceeded; free some of your quota"),
        (OSError(errno.EROFS, "Read-only file system", "a"), "a: Read-only file system; choose a folder that can be"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied; choose another folder or"),
        (no_such_file, "no such file: No such file or directory; it is gone, or was never there"),
        (OSError("the hub says no"), "the hub says no"),
        (MemoryError(), "out of memory (MemoryError); choose smaller batches"),
        (lambda: np.empty(2**50), "out of memory (Unable to allocate"),
        (lambda: torch.empty(2**50), "out of memory ("),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory (CUDA out of memory."),
        (a_tensor_of_another_size, "a tensor has another size than expected ("),
        (lambda: torch.zeros(2, 3) @ torch.zeros(2, 3), "a tensor has another size than expected ("),
        (lambda: load(b"no tensors"), "safetensors failed: Error while deserializing"),
        (lambda: Tokenizer.from_str("{"), "tokenizers failed: "),
        (lambda: onnxruntime.InferenceSession(b"no graph"), "onnxruntime failed: "),
        (lambda: pyarrow.ipc.open_file(b"no table"), "pyarrow failed: "),
        (SafetensorError("I/O error: Disk quota exceeded (os error 122)"), f"{os.strerror(122)}; free some of"),
        (KeyError("x"), None),
        (AssertionError(), None),
        (RuntimeError("a bug"), None),
    ],
)
def test_ordinary_faults_are_explained_and_bugs_are_not(fault, told):
    line = explain(raised_by(fault))
    assert line is None if told is None else line.startswith(told)
    assert "\n" not in (line or "")


def call(monkeypatch, error):
    """Run a command in which something is raised, at the bottom of what it does."""

    def fail(*given, **more):
        raise error

    monkeypatch.setattr("bertvision.evaluate.score.score_file", fail)
    return CliRunner().invoke(app, ["score", "squad2", "--gold", "gold.json", "--predictions", "answers.json"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a"), "error: a: No space left on device; free some space"),
        (MemoryError(), "error: out of memory"),
        (Exception("bad\nvocabulary"), "error: tokenizers failed: bad vocabulary"),
    ],
)
def test_an_ordinary_fault_ends_a_command_with_one_line_and_code_2(monkeypatch, error, line):
    shown = call(monkeypatch, error)
    assert shown.exit_code == 2
    assert shown.stderr.startswith(line)
    assert len(shown.stderr.splitlines()) == 1


def test_a_bug_is_one_line_that_names_a_file_with_the_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = call(monkeypatch, KeyError("weir"))
    (path,) = tmp_path.iterdir()
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error: this is a bug of bertvision (KeyError: 'weir'); the traceback is in ")
    assert str(path) in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert path.read_text().startswith("Traceback")


def test_a_bug_shows_its_traceback_where_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("BERTVISION_DEBUG", "1")
    assert isinstance(call(monkeypatch, KeyError("weir")).exception, KeyError)


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (StoppedError(signal.SIGTERM), 143), (StoppedError(signal.SIGHUP), 129)],
)
def test_a_stopped_command_says_so_and_ends_with_its_signals_code(monkeypatch, error, code):
    shown = call(monkeypatch, error)
    assert (shown.exit_code, shown.stderr) == (code, "stopped\n")
    assert exit_code(error) == code


def test_a_full_standard_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bertvision", "show", "heads", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: No space left on device; free some space")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("signals_act")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_stops_a_run_which_says_how_to_go_on(monkeypatch, tmp_path, name, code):
    monkeypatch.setattr("bertvision.stages.run.run", lambda *given, **more: signal.raise_signal(getattr(signal, name)))
    done = CliRunner().invoke(app, ["quickstart", "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == code
    assert done.stderr.splitlines() == ["stopped; the same run goes on from its last saving (see save_every)"]


@pytest.mark.usefixtures("signals_act")
def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stopped_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
