"""A request as steps: it asks for windows to be run, gets a result for each, and ends with what was asked for.

Whoever takes the steps decides when windows run, and beside which others: all at once (`run_steps`) or in slices
(`batcher`). No torch in here.
"""

from collections.abc import Callable, Generator, Sequence, Sized
from typing import Any, NamedTuple, TypeVar

from bertvision.progress import SILENT, Progress

Result = TypeVar("Result")


class AskedWindows(NamedTuple):
    """Windows that a request wants run, and what runs them: (windows, progress) -> a result for each."""

    run: Callable[..., list[Any]]
    windows: Sequence[Sized]
    later: int = 0  # tokens that later steps may want run, at most: known only when these windows have been


Steps = Generator[AskedWindows, list[Any], Result]


def run_steps(steps: Steps[Result], progress: Progress = SILENT) -> Result:
    """Take all steps of a request now."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(asked.run(asked.windows, progress))
    except StopIteration as end:
        found: Result = end.value
        return found
