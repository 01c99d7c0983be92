"""Every error raised on purpose; the command line prints them in one line and exits with code 2."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager


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


class TrainingError(BertVisionError):
    """Training cannot go on."""


class MissingExtraError(BertVisionError):
    """A package that is only installed with an extra is needed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}: pip install 'bertvision[{extra}]'")


def reason_of(error: Exception) -> str:
    """Return what another library says is wrong: one line, cut between words where it is long."""
    return textwrap.shorten(str(error), 240, placeholder=" ...")


@contextmanager
def needing_torch() -> Iterator[None]:
    """Name the extra where something that is imported in the block needs torch and torch is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jaxtyping"):  # what the extra brings
            raise
        raise MissingExtraError("torch", "torch") from None
