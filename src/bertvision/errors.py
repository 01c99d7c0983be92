"""Every error raised on purpose; the command line prints them in one line and exits with code 2."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

# In messages of torch (CPU, CUDA, cuBLAS) and onnxruntime, which have no class of their own for it.
NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "failed to allocate memory",
    "alloc_failed",
)

TRAIN = ("torch", "transformers", "jaxtyping", "matplotlib")  # what the extra of this name brings


class BertVisionError(Exception):
    """Base of all errors that a user can fix."""


class DataError(BertVisionError):
    """The data are not what the task needs."""


class SettingsError(BertVisionError):
    """A setting is unknown, has the wrong type or contradicts another one."""


class EncoderError(BertVisionError):
    """An encoder cannot be loaded or cannot be used for the task."""


class FolderError(BertVisionError):
    """A run folder or model folder is incomplete, damaged or belongs to another experiment."""


class LockedError(FolderError):
    """Another process is working there."""


class TrainingError(BertVisionError):
    """Training cannot go on."""


class MissingExtraError(BertVisionError):
    """A package that is only installed with an extra is needed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}: pip install 'bertvision[{extra}]'")


def reason_of(error: BaseException) -> str:
    """Return what another library says is wrong: one line, cut between words where it is long."""
    return textwrap.shorten(str(error), 240, placeholder=" ...")


@contextmanager
def needing_torch() -> Iterator[None]:
    """Name the extra `train` where something that is imported in the block needs one of its packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in TRAIN:
            raise
        raise MissingExtraError(error.name, "train") from None


@contextmanager
def told_as(kind: type[BertVisionError], what: str) -> Iterator[None]:
    """Turn whatever another library raises in the block into one of our errors, which begins with `what`.

    What a damaged or hostile file makes a library raise is anything, also a panic of one that is written in Rust.
    """
    try:
        yield
    except BertVisionError as error:
        raise kind(f"{what}: {error}") from None
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise kind(f"{what}: {reason_of(error) or type(error).__name__}") from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise kind(f"{what}: {reason_of(error)}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether there was no memory left, on the CPU or a GPU, whichever library says so."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in NO_MEMORY)


def is_panic(error: BaseException) -> bool:
    """Return whether a library that is written in Rust, such as tokenizers, gave up; pyo3 exports no such class."""
    return type(error).__name__ == "PanicException"
