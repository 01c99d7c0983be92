"""What goes into a kind and what comes out: how files are read and cut, what models are joined and taken apart into."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, Split
from bertvision.data.squad import Need
from bertvision.predictions.logits import Logits
from bertvision.progress import SILENT, Progress
from bertvision.tables import Table
from bertvision.windows.tokens import Tokenizer
from bertvision.windows.window import WindowConfig

Bounds = tuple[float, float]
CellsByName = dict[str, Any]  # one line of a table
LogitLayout = Any  # what decoding needs beside logits, of its kind
AnyExample = Any  # of its kind
AnyLabel = Any  # what a gold or a prediction says, of its kind
AnyPredictions = Any  # of one model, as its kind reads them from files
Predicted = Any  # what a kind makes of logits, or reads from files: one for each example


class Labelled(NamedTuple):
    """A split and the names of its labels, by number."""

    split: Split[Any]
    labels: tuple[str, ...]


class Reading(NamedTuple):
    """How a file of examples is read."""

    data: DataConfig
    labels: tuple[str, ...] = ()  # their order; empty: that of the file
    hub_split: str = "validation"
    need: Need = "placed"  # whether an example without a label is an error, or a gold answer that is not where it says
    advice: str = ""  # what an error on a bad example says could be done


class Cutting(NamedTuple):
    """How examples are cut; without `labelled` their labels are not looked at where they may be missing or new."""

    tokenizer: Tokenizer
    config: WindowConfig
    labelled: bool = True
    progress: Progress = SILENT


class Breakdown(NamedTuple):
    """Predictions taken apart: as JSON values, and as tables; `against` is what sets two models apart."""

    plain: dict[str, Any]
    sections: list[Table]
    against: dict[str, Any] = {}
    against_sections: Sequence[Table] = ()


class Joined(NamedTuple):
    """What several members make together."""

    predictions: Sequence[Predicted]
    by: str  # what was combined: tokens, spans, probabilities, ...
    layout: Any = None  # of the logits, where there are any
    logits: Logits | None = None
