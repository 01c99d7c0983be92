"""Examples to learn from and to be scored on, and how files of them are laid out."""

from dataclasses import dataclass
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from bertvision.data.text_format import TextFormat, known_encoding
from bertvision.settings import NAME, Config

GlueName = Literal["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"]
OwnName = Literal["classification", "multilabel", "regression"]
TaskName = Literal["squad1", "squad2", "answerability", GlueName, "swag", "ner", OwnName]
OnBad = Literal["fail", "drop"]
Tagging = Literal["auto", "iob1", "iob2", "bioes"]
NearMissRule = Literal["name", "number", "antonym", "negation", "condition", "borrowed"]
Column = str | Annotated[int, Field(ge=0)]  # its name, or its number from 0 on


class ColumnsConfig(Config):
    """Which columns of a table hold what."""

    text: Column | tuple[Column, Column] = "text"  # two for a pair of texts
    label: Column | tuple[Column, ...] = "label"  # several for `multilabel`: a column of 0 and 1 for each label
    id: Column | None = None  # None: rows are numbered from 0 on

    @property
    def texts(self) -> tuple[Column, ...]:
        """Return the columns of the texts."""
        return self.text if isinstance(self.text, tuple) else (self.text,)

    @property
    def text_names(self) -> tuple[str, ...]:
        """Return the names of the texts' columns; none where one of them has a number instead."""
        names = tuple(column for column in self.texts if isinstance(column, str))
        return names if len(names) == len(self.texts) else ()


class NearMissConfig(Config):
    """Unanswerable questions made by rule from the answerable ones, to learn from (`data/near_miss.py`)."""

    fraction: float = Field(0.5, ge=0, le=1)  # of the answerable questions that get one
    seed: int = Field(1, ge=0)
    rules: tuple[NearMissRule, ...] = Field(get_args(NearMissRule), min_length=1)

    @field_validator("rules")
    @classmethod
    def _are_different(cls, given: tuple[NearMissRule, ...]) -> tuple[NearMissRule, ...]:
        if len(set(given)) < len(given):
            raise ValueError(f"a rule is named twice in {', '.join(given)}")
        return given


class DataConfig(Config):
    """Where the examples are: files, `sample:train` and `sample:dev`, or `owner/name[/config][:split]` on the hub.

    `[first:end]` after any of them takes a slice of its examples, as in `rows.jsonl[:8000]`.
    """

    train: str = "sample:train"
    dev: str = "sample:dev"
    extra_dev_sets: dict[
        Annotated[str, Field(pattern=NAME)], str
    ] = {}  # further files to score, by the names that their scores get, such as `mismatched`
    on_bad: OnBad = "fail"
    # To choose thresholds and the best weights by: a share of the training examples (of questions whole articles), or a
    # file of others, about other texts.
    held_out: float | str = 0.0
    near_misses: NearMissConfig | None = None  # made when train is read, of what is left to learn from
    columns: ColumnsConfig | None = None  # None: as the task's files are published; own data: `text` and `label`
    header: bool | None = None  # whether the first line names the columns; None: unless all `columns` are numbers
    quoted: bool | None = None  # whether cells may be quoted as in RFC 4180; None: in .csv, and not in .tsv and .txt
    # Between cells; None: a comma in .csv, a tab in .tsv and .txt, unless the header has the columns with another one.
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    encoding: str | None = None  # of text files, such as cp1252; None: UTF-8, or UTF-16 where it begins with its mark
    label_separator: str = Field(",", min_length=1)  # between the labels in a cell, for `multilabel`
    labels: tuple[str, ...] = ()  # their order; empty: the task's own, else sorted from train
    tagging: Tagging = "auto"  # how the tags of `ner` are written
    folds: int | None = Field(None, ge=2)  # train and dev are parts of the file `train`, and `dev` is not read
    fold: int = Field(1, ge=1)  # which of them is dev

    @property
    def scored_file(self) -> str:
        """Return the file that holds what is scored: dev, or train where dev is a part of it."""
        return self.dev if self.folds is None else self.train

    def layout(self) -> "DataConfig":
        """Return how files are laid out, without which files they are and how these are encoded."""
        names = ("columns", "header", "quoted", "delimiter", "label_separator", "tagging")
        return DataConfig().model_copy(update={name: getattr(self, name) for name in names})

    @property
    def form(self) -> TextFormat:
        """Return how tables are written."""
        return TextFormat(self.quoted, self.delimiter, self.encoding)

    @field_validator("delimiter")
    @classmethod
    def _parts_cells(cls, given: str | None) -> str | None:
        if given in ("\n", "\r", '"'):
            raise ValueError(f"{given!r} cannot stand between cells")
        return given

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, given: str | None) -> str | None:
        return None if given is None else known_encoding(given)

    @field_validator("held_out")
    @classmethod
    def _is_share_or_file(cls, given: float | str) -> float | str:
        if given == "" or (not isinstance(given, str) and not 0 <= given <= 0.5):
            raise ValueError(f"expected a share from 0 to 0.5, or a file, got {given!r}")
        return given

    @model_validator(mode="after")
    def _has_its_fold(self) -> "DataConfig":
        if self.fold > (self.folds or 1):
            raise ValueError(f"`fold` is {self.fold} and there are {self.folds or 'no'} `folds`; count from 1")
        return self


class GoldAnswer(NamedTuple):
    """A gold answer and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one context; without answers it is unanswerable (or unlabelled)."""

    id: str
    text: str
    context: str
    answers: tuple[GoldAnswer, ...]
    title: str

    @property
    def is_impossible(self) -> bool:
        """Return whether the context holds no answer."""
        return not self.answers


@dataclass(frozen=True, slots=True)
class TextRow:
    """One text or a pair of them; its label is a class, classes, a number, or None where it is unknown."""

    id: str
    texts: tuple[str, ...]
    label: int | float | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A beginning and its possible continuations, of which one is right (None: unknown)."""

    id: str
    context: str
    endings: tuple[str, ...]
    label: int | None


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, each with a tag in IOB2 (None: unknown), and the document that they are from."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int


Example = TypeVar("Example", bound=Question | TextRow | ChoiceRow | Sentence)


@dataclass(frozen=True, slots=True)
class Split(Generic[Example]):
    """The examples of one file, and what was left out of them."""

    name: str
    examples: tuple[Example, ...]
    dropped: int
    sha256: str | None
    first_bad: str = ""  # what is wrong with the first of those that were dropped
