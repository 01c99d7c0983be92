"""A whole experiment file, gathered from the stages' configs."""

import re
from collections.abc import Iterable
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bertvision.data.example import DataConfig, TaskName
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.errors import SettingsError
from bertvision.heads.catalog import serves
from bertvision.heads.config import HeadConfig, HeadsConfig, output_head
from bertvision.kinds.kind import Contrast, Kind
from bertvision.predictions.prediction import AnswerConfig
from bertvision.recipes import recipe_for, with_baseline
from bertvision.search_space import SearchConfig, space_of
from bertvision.settings import (
    NAME,
    REPLACED_WHOLE,
    Config,
    Precision,
    Settings,
    VariantSettings,
    expand_variants,
    find_config,
    merge,
    named_after,
    parse_yaml,
    read_yaml,
    suggest,
    validate,
    with_overrides,
)
from bertvision.states.config import StatesConfig
from bertvision.tasks import TASKS
from bertvision.windows.plan import BatchConfig
from bertvision.windows.window import WindowConfig


class EnsembleConfig(Config):
    """Models that answer together."""

    models: tuple[str, ...] = Field(min_length=2)
    method: Literal["max", "mean", "logits"] = "max"

    @property
    def name(self) -> str:
        """Name it after its members; the papers' way of combining goes without saying."""
        return "+".join(self.models) + ("" if self.method == "max" else f"-{self.method}")


class MeasureConfig(Config):
    """What is measured beside the scores."""

    inference: bool = False  # each row alone on a sample of dev: some seconds for each


Tracker = Literal["tensorboard", "trackio", "wandb"]
SAMPLE = "sample:"  # data that come with the package
OWN_FOLDS = 5  # without a file to score on, every fifth example is scored, always the same
TAKEN = ("costs", "figures", "records")  # folders in the one of all variants
LEAST_BATCH = 8  # that batches shrink to before epochs are added


class Experiment(Config):
    """Everything that decides what a run does; each (row, fraction, seed) of it becomes one record."""

    name: str = Field("experiment", pattern=NAME)
    variant: str | None = Field(None, pattern=NAME)  # which of a file's `variants` this is
    method: str | None = Field(None, pattern=NAME)  # that variant, whatever its learning rate
    task: TaskName = "squad2"
    data: DataConfig = DataConfig()
    encoder: str = "default"  # `default`, `default-model`, a folder (also an earlier OUT/encoder/<fraction>), a hub id
    recipe: Literal["default", "paper-v1", "paper-v2"] = "default"
    windows: WindowConfig = WindowConfig()
    finetune: FinetuneConfig = FinetuneConfig()
    tune: TuneConfig | None = None  # what is trained inside the encoder; None: every weight, and nothing is inserted
    states: StatesConfig = StatesConfig()
    heads: HeadsConfig = HeadsConfig()
    ensembles: tuple[EnsembleConfig, ...] = ()
    transfer: tuple[Annotated[float, Field(gt=0)], ...] | None = None  # heads of these fractions read later states too
    answers: AnswerConfig = AnswerConfig()
    measure: MeasureConfig | None = None  # None: nothing more
    search: SearchConfig | None = None  # what `bertvision search` varies; None: its defaults
    report_to: tuple[Tracker, ...] = ()  # trackers that see the course of training; training.jsonl always has it
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((1,), min_length=1)
    device: str = "auto"
    precision: Precision = "auto"
    deterministic: bool = False  # whether kernels whose results differ from run to run are left out; slower on a GPU

    @field_validator("tune", "measure")
    @classmethod
    def _default_is_none(cls, given: Config | None) -> Config | None:
        """Return one name for a default, so that spelling it out changes no run folder and no record."""
        return None if given in (TuneConfig(), MeasureConfig()) else given

    @model_validator(mode="after")
    def _output_fits(self) -> "Experiment":
        kind = TASKS[self.task].kind
        try:
            output = self.output
        except SettingsError as error:
            raise ValueError(str(error)) from None
        if self.finetune.objective == "contrastive" and kind.contrast is None:
            raise ValueError(
                f"finetune.objective: contrastive is for classes, labels and numbers of rows, and {self.task} asks for "
                f"{kind.nouns} of the kind {kind}; use task"
            )
        if not serves(output.pooler, output.readout, kind):
            raise ValueError(f"finetune.head is not for tasks of the kind {kind}, as {self.task} is; leave it out")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> "Experiment":
        kind = TASKS[self.task].kind
        if self.finetune.gradient_checkpointing and self.tune is not None and self.tune.parasites is not None:
            raise ValueError(
                "finetune.gradient_checkpointing does not go with tune.parasites, which read what earlier blocks gave; "
                "leave one of them out"
            )
        if unfit := [head.name for head in self.heads.train if not serves(head.pooler, head.readout, kind)]:
            raise ValueError(f"head {unfit[0]!r} is not for tasks of the kind {kind}, as {self.task} is; leave it out")
        self._check_ensembles(kind)
        batches = {"finetune": self.finetune.batch, "states": self.states.batch, "heads": self.heads.batch}
        for stage, batch in batches.items():
            if batch is not None and batch.tokens is not None and batch.tokens < self.windows.max_length:
                raise ValueError(
                    f"{stage}.batch.tokens ({batch.tokens}) is less than one window ({self.windows.max_length})"
                )
        if untuned := [each for each in self.transfer or () if each not in self.finetune.fractions]:
            raise ValueError(f"`transfer` has {untuned[0]:g}, which is none of finetune.fractions; add it there")
        if self.search is not None:
            space_of(self.search, kind, self.seeds)
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"`seeds` holds one twice: {list(self.seeds)}")
        return self

    def _check_ensembles(self, kind: Kind) -> None:
        if unfit := [each.name for each in self.ensembles if each.method not in kind.hows]:
            raise ValueError(f"ensemble {unfit[0]!r}: numbers have no probabilities for `max`; use method: mean")
        known = ["encoder", *(head.name for head in self.heads.train)]
        for ensemble in self.ensembles:
            if unknown := [name for name in ensemble.models if name not in known]:
                hint = suggest(unknown[0], known) or f"; known: {', '.join(known)}"
                no_more = " (`ensembles: []` leaves all out)"
                raise ValueError(f"ensemble of {unknown[0]!r}, which is not trained here{hint}{no_more}")
        joint = [head.name for head in self.heads.train if head.readout == "joint"]
        if members := [name for ensemble in self.ensembles for name in ensemble.models if name in joint]:
            raise ValueError(
                f"ensemble of {members[0]!r}, whose joint readout cannot be combined token by token; leave it out"
            )
        ensembles = [ensemble.name for ensemble in self.ensembles]
        if repeated := [name for name in ensembles if ensembles.count(name) > 1]:
            raise ValueError(f"two ensembles are called {repeated[0]!r}; leave one out")

    @property
    def contrast(self) -> Contrast | None:
        """Return what contrastive tuning compares; None: the encoder is tuned by the task's own loss, or not at all."""
        is_contrastive = self.finetune.objective == "contrastive" and self.finetune.fractions
        return TASKS[self.task].kind.contrast if is_contrastive else None

    @property
    def folder(self) -> Path:
        """Return its run folder: a file's variants lie side by side in one."""
        return Path(self.name, self.variant or "")

    @property
    def title(self) -> str:
        """Return what sets it apart from the other variants of its file."""
        return self.name if self.variant is None else f"{self.name}-{self.variant}"

    @property
    def output(self) -> HeadConfig:
        """Describe the output layer that is tuned together with the encoder."""
        return output_head(self.finetune.head)

    def tuning_settings(self) -> Settings:
        """Return what decides a tuned encoder."""
        # Whether blocks run twice changes nothing; `step_mode: auto` is up to the device.
        without = {"fractions", "save_every", "gradient_checkpointing"}
        without |= {"step_mode"} if self.finetune.step_mode == "auto" else set()
        without |= {"evaluate_every", "keep_best", "patience"} if not self.finetune.keeps_best else set()
        without |= {"pairs_per_epoch"} if self.finetune.objective == "task" else set()
        finetune = self.finetune.model_dump(mode="json", exclude=without)
        return {"finetune": finetune, "tune": None if self.tune is None else self.tune.model_dump(mode="json")}


def read_experiment(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment's YAML, with `a.b=value` overrides on top; it is named after its file unless it says so."""
    found = read_experiments(Path(path), overrides)
    if len(found) > 1:
        names = ", ".join(str(each.variant) for each in found)
        raise SettingsError(f"{path}: holds {len(found)} variants; choose one with `variant=NAME`, of {names}")
    return found[0]


def read_experiments(path: Path, overrides: Iterable[str] = ()) -> list[Experiment]:
    """Read a YAML whose `variants` (name: settings that go on top) are an experiment each; without any it is one.

    The override `variant=NAME` chooses one of them. A variant whose `finetune.lr` is a list stands for one with each,
    and its own name chooses all of these. A path at which there is no file may name a shipped one: squad2/minilm.
    """
    path = find_config(path)
    settings = {"name": named_after(path), **read_yaml(path)}
    if found := [key for key in ("vocabulary", "stages") if key in settings]:
        raise SettingsError(f"{path}: `{found[0]}` belongs to a pre-training; give it to `bertvision pretrain`")
    return build_experiments(settings, overrides, str(path))


def build_experiments(settings: Settings, overrides: Iterable[str] = (), origin: str = "settings") -> list[Experiment]:
    """Build what `read_experiments` reads, from the content of a file."""
    settings, overrides = dict(settings), list(overrides)
    chosen = [each.partition("=")[2] for each in overrides if each.startswith("variant=")]
    variants = expand_variants(settings.pop("variants", None), origin)
    if unknown := [name for name in chosen if not any(name in (each.name, each.method) for each in variants)]:
        known = ", ".join(each.name for each in variants) or "none, it is one experiment"
        raise SettingsError(f"{origin}: no variant {unknown[0]!r}; known: {known}")
    variants = [each for each in variants if not chosen or {each.name, each.method} & set(chosen)]
    rest = [each for each in overrides if not each.startswith("variant=")]
    _check_variants(origin, variants, rest)
    if not variants:
        return [build_experiment(settings, rest, origin)]
    return [
        build_experiment(
            merge(settings, {**own, "variant": name, "method": method}),
            rest,
            f"{origin}, {name}",
        )
        for name, method, own, _ in variants
    ]


def _check_variants(origin: str, variants: Iterable[VariantSettings], overrides: Iterable[str]) -> None:
    """Refuse names that a report's own folders have, and a rate that would belie those in names."""
    if taken := [each.name for each in variants if each.name in TAKEN]:
        raise SettingsError(f"{origin}: {taken[0]!r} is a folder of reports; call the variant something else")
    rated = [each.name for each in variants if each.has_own_rate]
    if rated and any(each.startswith("finetune.lr=") for each in overrides):
        raise SettingsError(
            f"{origin}: {rated[0]} has its learning rate by the list in the file; leave finetune.lr out and choose one "
            "with `variant=NAME`, or change the list"
        )


def quickstart_experiment(overrides: Iterable[str] = ()) -> Experiment:
    """Read the experiment that ships with the package."""
    text = (files("bertvision.sample") / "quickstart.yaml").read_text(encoding="utf-8")
    return build_experiment({"name": "quickstart", **parse_yaml(text, "quickstart.yaml")}, overrides, "quickstart")


def build_experiment(settings: Settings, overrides: Iterable[str] = (), origin: str = "settings") -> Experiment:
    """Lay recipe, settings and overrides over each other and check the result."""
    settings = with_overrides(_spelled_out(settings), (_spelled_out_override(each) for each in overrides))
    settings = _with_own_dev(settings, origin)
    whole = merge(recipe_for(settings, origin), settings)
    return validate(Experiment, {**whole, "heads": with_baseline(whole.get("heads", {}))}, origin)


def fit_to_rows(experiment: Experiment, num_rows: int, *, pairs: bool) -> Experiment:
    """Resolve what depends on the training rows: whether the encoder is tuned, batches, epochs and pooling."""
    finetune, heads, states = experiment.finetune, experiment.heads, experiment.states
    fractions = finetune.fractions if num_rows >= finetune.min_rows else ()
    batch, epochs = enough_steps(finetune.batch, max(fractions, default=0), num_rows, finetune.min_steps)
    if fractions and epochs > fractions[-1]:
        fractions = tuple(fraction * epochs / fractions[-1] for fraction in fractions)
    own_batch, own_epochs = enough_steps(heads.batch, heads.epochs, num_rows, heads.min_steps)
    pooling = states.pooling
    if pooling == "auto":
        is_compared = not fractions or experiment.contrast == "texts"  # else a tuned encoder reads both at once
        pooling = "pair_difference" if pairs and is_compared else "mean"
    return experiment.model_copy(
        update={
            "finetune": finetune.model_copy(update={"fractions": fractions, "batch": batch}),
            "heads": heads.model_copy(update={"batch": own_batch, "epochs": int(own_epochs)}),
            "states": states.model_copy(update={"pooling": pooling}),
        }
    )


def enough_steps(batch: BatchConfig, epochs: float, num_rows: int, min_steps: int) -> tuple[BatchConfig, float]:
    """Shrink batches of rows, then add epochs, until there are so many steps."""
    size = batch.windows
    if size is None or not epochs or not num_rows:
        return batch, epochs
    while size > LEAST_BATCH and epochs * ceil(num_rows / size) < min_steps:
        size = max(LEAST_BATCH, size // 2)
    return BatchConfig(windows=size), max(epochs, ceil(min_steps / ceil(num_rows / size)))


def to_settings(experiment: Experiment) -> Settings:
    """Return short settings that build an experiment again: those that its task and recipe do not bring along."""
    whole = experiment.model_dump(mode="json")
    named = {key: whole[key] for key in ("name", "task", "recipe")}
    short = {**named, **_differing(whole, build_experiment(named).model_dump(mode="json"))}
    # A recipe may depend on what else is given; then all is written out.
    return short if build_experiment(short) == experiment else whole


def _differing(whole: Settings, usual: Settings) -> Settings:
    """Return what differs from the usual, key by key; items of lists come without keys that say nothing."""
    found: Settings = {}
    for key, value in whole.items():
        if value == usual.get(key):
            continue
        if isinstance(value, dict) and isinstance(usual.get(key), dict) and key not in REPLACED_WHOLE:
            found[key] = _differing(value, usual[key])
        else:
            found[key] = [_said(each) for each in value] if isinstance(value, list) else _said(value)
    return found


def _said(value: Any) -> Any:  # noqa: ANN401 (what JSON holds)
    return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value


def _with_own_dev(settings: Settings, origin: str) -> Settings:
    """Score a part of the user's own file where no other is named: `sample:` never stands beside it unasked."""
    data = settings.get("data")
    if not isinstance(data, dict):  # what is no mapping is refused later
        return settings
    train, dev = data.get("train"), data.get("dev")
    if isinstance(dev, str) and train is None and not dev.startswith(SAMPLE):
        raise SettingsError(f"{origin}: data.dev is {dev}, and data.train names no file to learn from; name one")
    if not isinstance(train, str) or train.startswith(SAMPLE) or dev is not None or data.get("folds") is not None:
        return settings
    return {**settings, "data": {**data, "folds": OWN_FOLDS}}


def _spelled_out(settings: Settings) -> Settings:
    """Write `states: live` as a mapping, so that overrides of its other keys lie beside the word."""
    states = settings.get("states")
    return {**settings, "states": {"source": states}} if isinstance(states, str) else settings


def _spelled_out_override(override: str) -> str:
    return re.sub(r"^states=(\w+)$", r"states.source=\1", override)
