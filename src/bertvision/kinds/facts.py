"""What goes into a kind and what comes out, and what sets kinds apart and is no behaviour: one value each."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from bertvision.data.example import DataConfig, Split
from bertvision.data.squad import Need
from bertvision.predictions.ensemble import How
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


Per = Literal["token", "row"]
PredictorName = Literal["reader", "classifier", "tagger"]
# A linear layer; one that scores pairs of start and end too; a recurrent network over the tokens; or the encoder's own
# output layer as it is, with one or two numbers to train.
Readout = Literal["linear", "joint", "bilstm", "null_offset", "null_offset_scale"]
Contrast = Literal["rows", "texts"]  # what contrastive tuning compares: rows with each other, or a row's two texts


class KindFacts:
    """Facts about a kind; as they stand here, they are those of most."""

    name: ClassVar[str]
    per: ClassVar[Per] = "row"  # whether there are logits for each token or for each window
    noun: ClassVar[str] = "row"  # one example
    cluster: ClassVar[str | None] = None  # what examples are like each other in: articles, documents
    # What a softmax of the logits runs over, if any: the tokens of a window, its columns, or the windows of a group.
    softmax: ClassVar[Literal["tokens", "columns", "windows"] | None] = "columns"
    readouts: ClassVar[tuple[Readout, ...]] = ("linear", "bilstm")
    in_context: ClassVar[bool] = False  # whether the answer is a place in the window's second text
    asks_questions: ClassVar[bool] = False  # whether examples are questions about contexts, in SQuAD's files
    row_columns: ClassVar[str] = ""  # what a row to predict needs, in words; empty: the columns of its layout
    can_be_taught: ClassVar[bool] = False  # by another model's logits
    contrast: ClassVar[Contrast | None] = None  # None: it has no contrastive tuning
    has_baseline: ClassVar[bool] = True  # whether a guess that needs no model is a result of its own
    has_null: bool = False  # whether a model may abstain
    loses_ends: ClassVar[bool] = False  # whether texts that are too long lose their end, rather than be cut in two
    hows: ClassVar[tuple[How, ...]] = ("max", "mean", "logits", "weighted")  # in which logits can be combined
    labels_words: ClassVar[bool] = False  # whether words, not examples, have labels
    needs_two_labels: ClassVar[bool] = False  # whether there is nothing to learn where all examples have one label
    names_labels: ClassVar[bool] = False  # whether prediction files hold names that own data may have more of
    may_lack_scores: ClassVar[bool] = True  # whether a score may have no value, as a correlation of equal numbers
    is_right_or_wrong: ClassVar[bool] = True  # whether a prediction is either of them
    right: ClassVar[str] = "Who is right"  # the title of a table of this
    pipeline: ClassVar[str] = "text-classification"  # the hub's word for a model of it
    usage: ClassVar[str] = 'model("The weir was built in 1887.").label'
    predictor: ClassVar[PredictorName] = "classifier"  # what `bertvision.load` gives for a model of it
    first: ClassVar[str] = "text"  # what a row begins with
    second: ClassVar[str] = "second text"  # what is given beside it
    has_endings: ClassVar[bool] = False  # whether several are given beside it, to choose from

    def __str__(self) -> str:
        return self.name

    @property
    def learns_unanswerable(self) -> bool:
        """Return whether questions without an answer can be learned from."""
        return self.asks_questions

    @property
    def nouns(self) -> str:
        """Several examples."""
        return f"{self.noun}s"

    @property
    def others(self) -> str:
        """Examples that are not like given ones."""
        return f"other {self.nouns}"
