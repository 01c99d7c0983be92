"""What a report knows of its figures without matplotlib, which draws them and comes with the extra `train`."""

import re
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple

from bertvision.records import RunRecord

RUN = "bertvision run EXPERIMENT.yaml"
NO_FIGURES = "Figures need the package matplotlib: pip install 'bertvision[train]', then make the report again."
# A file of its own has no page around it, so it says which ink to use on light and on dark.
FILE_STYLE = "<style>:root{color:#1f2328}@media(prefers-color-scheme:dark){:root{color:#d8dee4}}</style>"
Draw = Callable[[Sequence[RunRecord]], Any]  # a matplotlib Figure; None where records are missing


class Drawing(NamedTuple):
    """A figure as it is written."""

    svg: str
    png: bytes


class Picture(NamedTuple):
    """A figure with its words."""

    name: str  # of its files
    title: str
    figure: Draw
    caption: str
    describe: Callable[[Sequence[RunRecord]], str]  # for those who cannot see it
    missing: str  # what to do where its records are missing; ends with the command
    command: str = RUN
    tasks: tuple[str, ...] | None = None  # where it is missed; None: everywhere

    def is_missed(self, task: str) -> bool:
        """Return whether a report on a task should have it."""
        return self.tasks is None or task in self.tasks


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def for_page(svg: str, prefix: str, label: str) -> str:
    """Make an SVG part of a page: ids that no other figure has, and a label for those who cannot see it."""
    owned = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    return owned.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def for_file(svg: str) -> str:
    """Make an SVG a file that can be read on light and dark pages."""
    return svg.replace(">", f">\n {FILE_STYLE}", 1)
