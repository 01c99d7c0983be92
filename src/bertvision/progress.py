"""How long work tells that it goes on; the command line draws bars, a library user sees nothing unless they ask."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Bar(Protocol):
    """One running piece of work."""

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Say that `amount` more is done; a note is asked for when one is drawn, and replaces the one before."""
        ...


@runtime_checkable
class Progress(Protocol):
    """Where work reports to."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Bar]:
        """Open a bar for `total` pieces of work."""
        ...

    def say(self, message: str) -> None:
        """Show the user one line."""
        ...


class Silent:
    """Reports nothing."""

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Bar]:
        """Open a bar that nobody sees."""
        yield SilentBar()

    def say(self, message: str) -> None:
        """Keep quiet."""


class SilentBar:
    """A bar that nobody sees."""

    def advance(self, amount: int, note: Callable[[], str] | None = None) -> None:
        """Keep quiet."""


SILENT = Silent()
