"""What is asked of a text, as an object: how it is cut, what its logits mean, how it is scored, compared and shown.

First what goes into a kind and what comes out, and what sets kinds apart and is no behaviour: one value each. Nothing
outside this package asks which kind a task is, but for the one choice of a loss. No torch in here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bertvision.data.example import ColumnsConfig, DataConfig, Split, TaskName, TextRow
from bertvision.data.shards import ShardRow
from bertvision.data.sources import HubId
from bertvision.data.squad import Need
from bertvision.errors import DataError, FolderError
from bertvision.predictions.ensemble import How, Weights
from bertvision.predictions.files import PREDICTIONS, WHERE
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import AnswerConfig, DecisionRule
from bertvision.progress import SILENT, Progress
from bertvision.records import Mistake
from bertvision.scoring.bootstrap import Draw, Floats, Paired, bounds_of
from bertvision.scoring.disagreements import Disagreement, Outcomes
from bertvision.scoring.squad import Scores
from bertvision.tables import Table, counted
from bertvision.windows.tokens import Tokenizer
from bertvision.windows.window import Window, WindowConfig

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


class TaskInfo(NamedTuple):
    """One row of the table of tasks."""

    kind: "Kind"
    scores: tuple[str, ...]  # in the order of tables; `records.MAIN_SCORES` has the one that stands for the task
    layouts: tuple[ColumnsConfig, ...] = ()  # of its tables, published and on the hub; the first that fits is taken
    labels: tuple[str, ...] = ()  # in GLUE's order, as the hub numbers them; empty: from the training data
    hub: HubId | None = None  # its split is the one for dev
    submission: Mapping[str, str] = {}  # GLUE's name for the file of the test set, by the name of the split
    submits_names: bool = False  # what GLUE wants in it: the labels' names, or their numbers
    files: str = ""  # what to give, in words


class Golds(NamedTuple):
    """What predictions are judged by."""

    task: TaskName
    info: TaskInfo
    examples: Sequence[Any]
    labels: tuple[str, ...]  # names of the classes, labels or tags, by number


@dataclass(frozen=True)
class Answering:
    """Examples in windows, and the way from their logits to predictions, files and scores."""

    task: TaskName
    info: TaskInfo
    labels: tuple[str, ...]
    split: Split[Any]
    windows: Sequence[Window]
    config: AnswerConfig
    part: str = ""  # which split it is, where it is not dev: GLUE's files are named after it
    tokenizer: Tokenizer | None = None
    extra_scores: Mapping[str, "ExtraScore"] = field(default_factory=dict)  # of the caller's own, by name

    @property
    def golds(self) -> Golds:
        """What predictions are judged by."""
        return Golds(self.task, self.info, self.split.examples, self.labels)

    @cached_property
    def layout(self) -> LogitLayout:
        """What decoding needs beside logits, made once for all models."""
        return self.info.kind.lay_out(self.split.examples, self.windows)

    def combine(self, members: Sequence[Logits], how: How, weights: Weights) -> Logits:
        """Make one model's logits of several."""
        return self.info.kind.combine(self.layout, members, how, weights, self.labels)

    def answer(self, logits: Logits, rule: DecisionRule | None = None) -> list[Predicted]:
        """Return a prediction for every example; with a rule as a model in use gives it, else as records score it."""
        kind = self.info.kind
        return kind.decode(self, logits) if rule is None else kind.decode_in_use(self, logits, rule)

    def write(self, folder: Path, predictions: Sequence[Predicted], logits: Logits) -> None:
        """Write a prediction folder."""
        self.info.kind.write(folder, self.golds, predictions, self.part)
        self.info.kind.write_logits(folder, self.layout, logits)

    def score(self, predictions: Sequence[Predicted], logits: Logits, how: How | None = None) -> Scores:
        """Compare predictions with the golds; `how` says in which way an ensemble's logits were made."""
        scores = self.info.kind.score(self.golds, predictions, self.config)
        for extra in self.extra_scores.values():
            scores |= extra(self, logits, how)
        return scores


# Scores of a split that need the logits themselves, and the way in which these were combined, for an ensemble's.
ExtraScore = Callable[[Answering, Logits, How | None], Scores]


class Kind(KindFacts, ABC):
    """A kind of task; what differs between kinds differs here, or is one of its facts."""

    # Text -> examples -> windows

    @abstractmethod
    def read(self, info: TaskInfo, source: str, reading: Reading) -> Labelled:
        """Read a file of examples."""

    @abstractmethod
    def cut(self, examples: Sequence[Any], labels: Sequence[str], how: Cutting) -> list[Window]:
        """Cut examples into what the encoder reads."""

    def columns(self, labels: Sequence[str]) -> int:
        """Return the number of logits of each token or window."""
        return len(labels)

    def group(self, labels: Sequence[str]) -> int:
        """Return how many neighbouring windows are judged together."""
        return 1

    def example(self, identity: str, text: str, second: Any = None) -> AnyExample:  # noqa: ANN401 (of its kind)
        """Return an unlabelled example of a text and, where there is one, what is given beside it."""
        return TextRow(identity, (text,) if second is None else (text, second), None)

    @abstractmethod
    def from_row(
        self, identity: str, row: ShardRow, layouts: Sequence[ColumnsConfig], labels: Sequence[str]
    ) -> AnyExample:
        """Return the unlabelled example that a row of a table holds, or raise a `BadExampleError`.

        `layouts` are those of the task's tables, where it has any.
        """

    @abstractmethod
    def texts(self, example: AnyExample) -> dict[str, str]:
        """Return an example's texts, each with what it is called."""

    def identity(self, example: AnyExample) -> Hashable:
        """Return what tells an example from others, also from those of another file."""
        return str(example.id)

    @abstractmethod
    def count_labels(self, examples: Sequence[Any], labels: Sequence[str]) -> dict[str, int]:
        """Count what is labelled how."""

    # Logits -> predictions

    def lay_out(self, examples: Sequence[Any], windows: Sequence[Window]) -> LogitLayout:
        """Return what decoding needs beside logits, the same for every model."""
        return None

    @abstractmethod
    def decode(self, asked: Answering, logits: Logits) -> list[Predicted]:
        """Return a prediction for every example, in their order."""

    def decode_in_use(self, asked: Answering, logits: Logits, rule: DecisionRule) -> list[Predicted]:
        """Return a prediction for every example as a model in use gives it."""
        return self.decode(asked, logits)

    def decode_rows(self, ids: Sequence[str], logits: Logits, labels: Sequence[str]) -> list[Any]:
        """Return predictions of rows that are one window each, or one group of windows."""
        raise NotImplementedError

    @abstractmethod
    def combine(
        self,
        layout: LogitLayout,
        members: Sequence[Logits],
        how: How,
        weights: Weights = None,
        labels: Sequence[str] = (),
    ) -> Logits:
        """Make one model's logits of several on the same windows; `layout` is what `lay_out` gave."""

    def summarise(self, predictions: Sequence[Predicted]) -> str:
        """Say in a few words what was predicted."""
        return counted(len(predictions), "example")

    @abstractmethod
    def said(self, prediction: Predicted) -> AnyLabel:
        """Return what a prediction says, to be compared with other examples' predictions."""

    @abstractmethod
    def wanted(self, example: AnyExample) -> AnyLabel:
        """Return what an example's gold says, to be compared with other examples'."""

    def name_of(self, said: AnyLabel, labels: Sequence[str]) -> str:
        """Return what was said in words."""
        return str(said)

    # Predictions -> scores

    @abstractmethod
    def score(self, golds: Golds, predictions: Sequence[Predicted], config: AnswerConfig | None = None) -> Scores:
        """Return the task's scores of predictions that `decode` or `read_predictions` gave."""

    def check_null_odds(self, task: TaskName, null_odds: Path | None) -> None:
        """Refuse odds of "no answer" for a task that has none."""
        if null_odds is not None and not self.has_null:
            has = "unanswerable questions" if self.in_context else "null odds"
            raise DataError(f"{task} has no {has}; leave `null_odds` out or score squad2")

    def score_file(
        self, golds: Golds, predictions: Path, null_odds: Path | None, threshold: float
    ) -> tuple[Scores, str]:
        """Score anybody's predictions as the official script does, with a note to the user where there is one."""
        return self.score(golds, self.read_predictions(predictions, golds)), ""

    def can_score(self, examples: Sequence[Any], predictions: Sequence[Predicted]) -> bool:
        """Whether examples that have their golds can be scored."""
        return True

    @abstractmethod
    def guess_scores(self, golds: Golds, train: Sequence[Any]) -> Scores:
        """Score what needs no model, but examples to learn the commonest label from."""

    def guesses(self, golds: Golds, train: Sequence[Any]) -> list[Predicted]:
        """Return those predictions; only kinds with `has_baseline` have them."""
        raise NotImplementedError

    # Prediction files

    @abstractmethod
    def write(self, folder: Path, golds: Golds, predictions: Sequence[Predicted], part: str = "") -> None:
        """Write a prediction folder; `part` names a further split, such as `mismatched`."""

    def write_logits(self, folder: Path, layout: LogitLayout, logits: Logits) -> None:
        """Write logits beside the predictions, where they say more than these."""
        return

    @abstractmethod
    def tabulate(self, golds: Golds, predictions: Sequence[Predicted], names: Sequence[str] = ()) -> list[CellsByName]:
        """Return predictions, in the order of the examples, as lines of a table; `names` are those of the texts."""

    @abstractmethod
    def as_line(self, example: AnyExample, prediction: Predicted, labels: Sequence[str]) -> CellsByName:
        """Return a prediction as a JSON object, without the example's texts."""

    @abstractmethod
    def read_predictions(self, path: Path, golds: Golds, *, whole: bool = False) -> AnyPredictions:
        """Read one model's predictions in the order of the golds; `whole`: all files of a folder."""

    def further_labels(self, values: Sequence[Any]) -> set[str]:
        """Return the labels that written predictions hold, where own data may have more than the gold file shows."""
        return set()

    # One model or two -> tables

    def metrics(self, info: TaskInfo) -> tuple[str, ...]:
        """Return which scores can be compared."""
        return tuple(info.scores)

    def head(self, golds: Golds) -> dict[str, Any]:
        """Return how a comparison begins in JSON."""
        return {"task": golds.task, "examples": len(golds.examples)}

    @abstractmethod
    def pair(
        self, golds: Golds, a: AnyPredictions, b: AnyPredictions, metrics: Sequence[str], draw: Draw
    ) -> dict[str, Paired]:
        """Return both models' scores and their differences in resamples of the examples."""

    def to_pair(self, golds: Golds, predictions: Sequence[Predicted]) -> AnyPredictions:
        """Return predictions as `pair` takes them."""
        return predictions

    def lead(self, golds: Golds, a: AnyPredictions, b: AnyPredictions, metric: str, draw: Draw) -> Bounds | None:
        """Return between which points a lies above b on examples like these, in 95%; None where one has no score."""
        differences = self.pair(golds, b, a, (metric,), draw)[metric].differences
        known = None if differences is None else differences[~np.isnan(differences)]
        return None if known is None or not len(known) else bounds_of(known)

    @abstractmethod
    def resample(self, golds: Golds, models: Sequence[AnyPredictions], metric: str, draw: Draw) -> Floats:
        """Return a score of several models: of all examples, then in resamples that all share, [model, 1 + resample].

        Where there is none, it is NaN.
        """

    @abstractmethod
    def outcomes(self, golds: Golds, a: AnyPredictions, b: AnyPredictions) -> dict[str, Outcomes] | None:
        """Count who is right, by group and in all; None where predictions are not right or wrong."""

    @abstractmethod
    def disagreements(self, golds: Golds, a: AnyPredictions, b: AnyPredictions, count: int) -> list[Disagreement]:
        """Return the first examples on which two models differ, with what a reader needs to see why."""

    @abstractmethod
    def break_down(self, golds: Golds, models: Mapping[str, AnyPredictions]) -> Breakdown:
        """Take one model's predictions apart, or two models'."""

    # One model -> what a report shows of it

    def intervals(self, golds: Golds, predictions: Sequence[Predicted], draw: Draw) -> dict[str, Bounds]:
        """Return the 95% interval of each score: exact for shares of right examples, else where these are resampled.

        Of fewer than `LEAST_EXAMPLES`, only the exact ones.
        """
        return {}

    def confusions(self, golds: Golds, predictions: Sequence[Predicted]) -> dict[str, dict[str, int]]:
        """Count which class is taken for which, by gold; nothing where there are no classes."""
        return {}

    def scatter(self, golds: Golds, predictions: Sequence[Predicted]) -> list[tuple[float, float]]:
        """Return true and predicted numbers; nothing where there are none."""
        return []

    @abstractmethod
    def errors(self, golds: Golds, predictions: Sequence[Predicted]) -> list[int]:
        """Return the places of examples that are predicted wrongly, the worst first."""

    def suspects(self, golds: Golds, predictions: Sequence[Predicted]) -> list[int] | None:
        """Return the places of golds that look wrong to a model that has not seen them; None where it cannot say."""
        return None

    @abstractmethod
    def mistake(self, golds: Golds, place: int, prediction: Predicted, split: str) -> Mistake:
        """Return an example with its texts, its gold and its prediction."""

    # Prediction folders of several models -> one's

    def check_member(self, folder: Path) -> None:
        """Refuse a folder that can be no member, before anything is read."""
        if not (folder / PREDICTIONS).is_file():
            raise FolderError(f"{folder}: no {PREDICTIONS} in it; {WHERE}")

    @abstractmethod
    def read_members(self, folders: Sequence[Path], data: str, golds: Golds) -> Sequence[Any]:
        """Read prediction folders that shall be joined, checked to be about the same examples."""

    @abstractmethod
    def join(self, golds: Golds, members: Sequence[Any], how: How, shares: Weights, config: AnswerConfig) -> Joined:
        """Make one model's predictions of several members'."""

    @abstractmethod
    def predictions_of(self, member: Any, config: AnswerConfig) -> Sequence[Predicted]:  # noqa: ANN401 (of `read_members`)
        """Return one member's predictions."""

    def score_columns(self, info: TaskInfo) -> dict[str, tuple[str, ...]]:
        """Return the scores that a table of members shows, each with the names that it may have."""
        return {score: (score,) for score in info.scores}
