"""Everything that decides what a pre-training does; the defaults are those of BERT-base (Devlin et al. 2019)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bertvision.errors import SettingsError
from bertvision.settings import (
    NAME,
    Config,
    Precision,
    Settings,
    find_config,
    merge,
    named_after,
    read_yaml,
    validate,
    with_overrides,
)
from bertvision.training.config import OptimConfig

# Masked words and whether the second text follows the first; masked words alone; every next word from those before it.
ObjectiveName = Literal["mlm_nsp", "mlm", "ltr"]
SPECIAL = 3  # tokens around a pair: [CLS] A [SEP] B [SEP]
LEAST_PIECES = 100  # of a vocabulary: letters and digits alone are 62


class CorpusConfig(Config):
    """Where the text is: files and folders (text, JSONL, also .gz and .xz; tables), `sample`, or a hub data set."""

    train: tuple[str, ...] = Field(min_length=1)
    held_out: tuple[str, ...] = ()  # documents to measure the loss on; none: some of `train`
    held_out_every: int = Field(200, ge=2)  # without `held_out`: every 200th document, of fewer the last one
    text_column: str = "text"  # the key of the text in JSONL and hub data sets, its column in tables
    folder: str | None = None  # of vocabulary and tokens, for several pre-trainings; None: OUT/data


class VocabularyConfig(Config):
    """A WordPiece vocabulary, trained on the text or taken from an encoder."""

    size: int = Field(30_000, ge=LEAST_PIECES)
    cased: bool = False
    encoder: str | None = (
        None  # an encoder of BERT's kind whose vocabulary is taken; `size` and `cased` are then its own
    )


class SizeConfig(Config):
    """The size of the encoder."""

    layers: int = Field(12, ge=1)
    hidden: int = Field(768, ge=1)
    heads: int = Field(12, ge=1)
    feed_forward: int | None = Field(None, ge=1)  # None: 4 times the hidden size
    positions: int = Field(512, ge=8)  # the longest row that it will ever read

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> "SizeConfig":
        if self.hidden % self.heads:
            raise ValueError(f"`hidden` ({self.hidden}) is no multiple of `heads` ({self.heads})")
        return self


class MaskingConfig(Config):
    """Which tokens are predicted, and what the encoder sees in their place; the shares are those of table 8."""

    fraction: float = Field(0.15, gt=0, lt=1)  # of a row's tokens
    mask: float = Field(0.8, ge=0, le=1)  # of these: [MASK]
    unchanged: float = Field(0.1, ge=0, le=1)  # the token itself
    random: float = Field(0.1, ge=0, le=1)  # any token
    whole_words: bool = False  # all pieces of a word or none

    @model_validator(mode="after")
    def _shares_add_up(self) -> "MaskingConfig":
        total = self.mask + self.unchanged + self.random
        if abs(total - 1) > 1e-6:
            raise ValueError(
                f"`mask`, `same` and `random` are shares of the masked tokens and add up to {total:g}, not 1"
            )
        return self


class StageConfig(Config):
    """Some steps on rows of one length."""

    length: int = Field(128, ge=8)
    steps: int = Field(ge=1)
    batch_tokens: int = Field(ge=8)  # of a step of all processes together, special ones included

    @model_validator(mode="after")
    def _holds_a_row(self) -> "StageConfig":
        if self.batch_tokens < self.length:
            raise ValueError(f"`tokens` ({self.batch_tokens}) is less than one row ({self.length})")
        return self


class PretrainConfig(Config):
    """One pre-training, from text to an encoder."""

    name: str = Field("pretraining", pattern=NAME)
    data: CorpusConfig
    encoder: str | None = None  # of BERT's kind, to go on from: its weights, size and vocabulary; None: random weights
    vocabulary: VocabularyConfig = VocabularyConfig()
    size: SizeConfig = SizeConfig()
    objective: ObjectiveName = "mlm_nsp"
    masking: MaskingConfig = MaskingConfig()
    short_fraction: float = Field(0.1, ge=0, le=1)  # of rows that are cut to a random length, as BERT's code does
    # BERT's: 256 rows a step, 900,000 steps at length 128, then 100,000 at 512.
    stages: tuple[StageConfig, ...] = Field(
        (
            StageConfig(length=128, steps=900_000, batch_tokens=32_768),
            StageConfig(length=512, steps=100_000, batch_tokens=131_072),
        ),
        min_length=1,
    )
    accumulate: int = Field(1, ge=1)  # batches that the tokens of a step are taken in, where memory is short
    lr: float = Field(1e-4, gt=0)
    optim: OptimConfig = OptimConfig()
    dropout: float = Field(0.1, ge=0, lt=1)
    # Rows packed without padding, each step replayed by the GPU as a graph; or padded. auto: packed on a GPU in bf16.
    step_mode: Literal["auto", "packed", "eager"] = "auto"
    evaluate_every: int = Field(1000, ge=1)  # steps between two measurements of the held-out loss
    evaluate_tokens: int = Field(262_144, ge=1)  # that it is measured on
    checkpoints: tuple[Annotated[int, Field(ge=1)], ...] = ()  # steps after which the encoder is kept in OUT/steps/STEP
    save_every: float = Field(120.0, gt=0)  # seconds between savings from which a stopped pre-training goes on
    seed: int = Field(1, ge=0)
    device: str = "auto"
    precision: Precision = "auto"

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        longest = max(stage.length for stage in self.stages)
        if longest > self.size.positions:
            raise ValueError(f"a stage has rows of {longest} tokens, and size.positions is {self.size.positions}")
        if late := [step for step in self.checkpoints if step > self.num_steps]:
            raise ValueError(f"`checkpoints` names step {late[0]}, and there are {self.num_steps}")
        return self

    @property
    def num_steps(self) -> int:
        """Count the steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def pairs(self) -> bool:
        """Return whether rows are pairs of texts, of which the second follows the first or does not."""
        return self.objective == "mlm_nsp"

    @property
    def special(self) -> int:
        """Count the special tokens of a row."""
        return SPECIAL if self.pairs else SPECIAL - 1

    def data_settings(self) -> Settings:
        """Return what decides the vocabulary and the tokens on the disk."""
        data = self.data.model_dump(mode="json", exclude={"folder"})
        return {"data": data, "vocabulary": self.vocabulary.model_dump(mode="json")}

    def training_settings(self) -> Settings:
        """Return what decides the weights."""
        without = {"name", "save_every", "evaluate_every", "evaluate_tokens", "checkpoints", "device"}
        settings = self.model_dump(mode="json", exclude=without)
        return {**settings, "data": self.data_settings()["data"]}


# BERT's own optimizer (SPEC 12): no correction of Adam's moments, 10,000 steps of warmup, then down to 0.
DEFAULTS: Settings = {"optim": {"eps": 1e-6, "bias_correction": False, "schedule": "linear", "warmup": 0.01}}


def read_pretraining(path: Path, overrides: Iterable[str] = ()) -> PretrainConfig:
    """Read a pre-training's YAML, with `a.b=value` overrides on top; a path without a file may name a shipped one."""
    path = find_config(path)
    settings = {"name": named_after(path), **read_yaml(path)}
    _refuse_experiment(path, settings)
    return build_pretraining(with_overrides(settings, overrides), str(path))


def build_pretraining(settings: Settings, origin: str = "settings") -> PretrainConfig:
    """Lay settings over the defaults and check the result."""
    data: Any = settings.get("data")
    if isinstance(data, dict):  # one source may stand without brackets
        one = {key: [value] for key, value in data.items() if key in ("train", "held_out") and isinstance(value, str)}
        settings = {**settings, "data": {**data, **one}}
    for key in ("size", "vocabulary"):
        if settings.get("encoder") is not None and key in settings:
            raise SettingsError(f"{origin}: `{key}` stands beside `encoder`, which has its own; leave one of them out")
    return validate(PretrainConfig, merge(DEFAULTS, settings), origin)


def _refuse_experiment(path: Path, settings: Settings) -> None:
    if found := [key for key in ("task", "heads", "finetune") if key in settings]:
        raise SettingsError(
            f"{path}: `{found[0]}` belongs to an experiment; give it to `bertvision run`, or a pre-training's YAML here"
        )
