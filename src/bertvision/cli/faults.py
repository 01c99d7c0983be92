"""What ends a command that is no error of ours: a full disk, no memory, a signal, another library; and bugs."""

import errno
import os
import re
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bertvision.errors import is_out_of_memory, is_panic, reason_of

DEBUG = "BERTVISION_DEBUG"  # in the environment: show tracebacks
ISSUES = "please report it, with that file"
CURES = {
    errno.ENOSPC: "free some space, or choose a folder on another disk; then give the same command again",
    errno.EDQUOT: "free some of your quota, or choose a folder on another disk; then give the same command again",
    errno.EROFS: "choose a folder that can be written to",
    errno.EACCES: "choose another folder or change its permissions",
    errno.EPERM: "choose another folder or change its permissions",
    errno.ENOENT: "it is gone, or was never there: put it back, or run the command that makes it",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "the disk fails; copy what you need to another one",
}
NO_MEMORY = "choose smaller batches (such as --set finetune.batch.tokens=2048), a smaller encoder, or a larger machine"
# What torch says, in a RuntimeError, of tensors that do not fit each other.
ODD_SIZES = re.compile(
    r"size mismatch|sizes? of tensor|shapes cannot be multiplied|invalid for input of size", re.IGNORECASE
)
LIBRARIES = (
    "tokenizers",
    "onnxruntime",
    "safetensors",
    "pyarrow",
    "torch",
    "transformers",
    "huggingface_hub",
    "datasets",
)


class StoppedError(KeyboardInterrupt):
    """A signal that asks the process to end, raised where an interrupt of the keyboard would be."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as SIGINT does; one that is ignored (nohup) stays so."""
    numbers = [each for name in ("SIGTERM", "SIGHUP") if (each := getattr(signal, name, None)) is not None]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # Python sets handlers there alone
    default = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in default:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number in default:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError(number)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a shell gives for a process that such a signal ended."""
    return 128 + (interrupt.number if isinstance(interrupt, StoppedError) else signal.SIGINT)


def explain(error: BaseException) -> str | None:
    """Return what is wrong and what to do, in one line; None for a bug of ours."""
    if is_out_of_memory(error):
        return f"out of memory ({reason_of(error) or type(error).__name__}); {NO_MEMORY}"
    if (number := _errno_of(error)) is not None:
        name = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        cure = f"; {CURES[number]}" if number in CURES else ""
        return f"{name}{os.strerror(number)}{cure}"
    if isinstance(error, OSError):
        return reason_of(error) or type(error).__name__
    if isinstance(error, RuntimeError) and ODD_SIZES.search(str(error)):
        return f"a tensor has another size than expected ({reason_of(error)}); are all files of the folder of one run?"
    if (library := _library_of(error)) is not None:
        return f"{library} failed: {reason_of(error) or type(error).__name__}"
    return None


def describe_bug(error: BaseException) -> str:
    """Keep a bug's traceback in a file, and return the line that names it."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="bertvision-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write("".join(traceback.format_exception(error)))
    what = f"{type(error).__name__}: {reason_of(error)}"
    return f"this is a bug of bertvision ({what}); the traceback is in {file.name}; {ISSUES} ({DEBUG}=1 shows it)"


def _errno_of(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return error.errno
    # Libraries in Rust write it into their message.
    found = re.search(r"\(os error (\d+)\)", str(error)) if _library_of(error) is not None else None
    return int(found[1]) if found is not None else None


def _library_of(error: BaseException) -> str | None:
    """Name the library that an exception is of; tokenizers raises plain ones, which nobody else does."""
    if type(error) is Exception or is_panic(error):
        return "tokenizers"
    root = type(error).__module__.partition(".")[0].removesuffix("_rust")
    return root if root in LIBRARIES else None
