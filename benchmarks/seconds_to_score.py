"""Seconds of fine-tuning until a reader's best F1 on dev: ours, Trainer's, and of weights inserted into the encoder."""

import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pydantic import Field, field_validator

from benchmarks.finetune import (
    COMPILED,
    NO_CUDNN,
    STEPS,
    TODAY,
    TRAINERS,
    SideNames,
    check_sides,
    compiling,
    new_output,
)
from benchmarks.measuring import clear, cudnn_attention
from benchmarks.trainer import Recipe, copy_back, question_model, train_with_trainer
from bertvision.data.example import DataConfig
from bertvision.encoder.encode import freeze
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError
from bertvision.experiment import Experiment, build_experiment
from bertvision.files import check_folder
from bertvision.heads.logits import logits_of
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, Side, provenance
from bertvision.records.record import Record, read_file, write_file
from bertvision.settings import Config, Precision, Settings
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.finetune import finetune
from bertvision.steps.predict import predict
from bertvision.steps.results import ENCODER
from bertvision.training.device import wait_for
from bertvision.windows.padding import lengths_of

FASTEST = "fastest"


class RecipeConfig(Config):
    """What is learned at which pace; the schedule is linear."""

    tokens: int = Field(8192, ge=384)  # of a step
    lr: float = Field(1e-4, gt=0)
    epochs: float = Field(3.0, gt=0)
    warmup: float = Field(0.0, ge=0, lt=1)
    compiled: bool = False  # ours: the encoder's blocks are compiled, however few the steps


class InsertedConfig(Config):
    """Weights inserted into a frozen encoder, and their learning rate."""

    insert: str
    lr: float = Field(1e-3, gt=0)


class SecondsBench(Config):
    """What is measured."""

    encoder: str = "default"
    data: DataConfig = DataConfig()
    recipe: RecipeConfig = RecipeConfig()  # of all sides but one
    fastest: RecipeConfig = RecipeConfig(tokens=16384, lr=2e-4, warmup=0.05)  # of the side of that name
    lora: InsertedConfig = InsertedConfig(insert="lora:16")
    houlsby: InsertedConfig = InsertedConfig(insert="houlsby:64")
    sides: SideNames = (TODAY, "packed", FASTEST, "trainer_padded", "lora", "houlsby")  # also as a,b
    workers: int = Field(6, ge=0)  # of Trainer's loader
    folder: Path = Path("runs/seconds-to-score")  # for each finished side's file; what another call left there counts
    seed: int = Field(1, ge=0)
    device: str = "auto"
    precision: Precision = "auto"

    @field_validator("sides")
    @classmethod
    def _are_known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        check_sides(given, [*STEPS, FASTEST, "lora", "houlsby", *TRAINERS])
        return given


class ScoredSide(Record):
    """One side, finished."""

    side: str
    measured_on: Settings  # encoder, data and seed: sides of one table have the same
    recipe: str
    seconds: float  # of fine-tuning
    wall: float  # of fine-tuning, writing, reading and scoring the model
    scores: dict[str, float]


def bench_seconds(config: SecondsBench, progress: Progress = SILENT) -> BenchRecord:
    """Fine-tune and score side after side, each written down as soon as it is finished."""
    context = prepare(experiment_of(config, TODAY), config.folder, progress)
    check_folder(config.folder).mkdir(parents=True, exist_ok=True)
    _warm_up(context)
    for name in config.sides:
        at_once = recipe_of(config, name).compiled or name.removesuffix(NO_CUDNN) == COMPILED
        with cudnn_attention(name == TODAY or name in TRAINERS), compiling(at_once=True) if at_once else nullcontext():
            scored = _scored(config, context, name)
        clear(context.compute.device)
        progress.say(f"{name}: {scored.seconds:.1f} s, best F1 {scored.scores['best_f1']:.2f}")
        write_file(config.folder / f"{name}.json", scored)
    return _record(config, context, _finished(config))


def recipe_of(config: SecondsBench, side: str) -> RecipeConfig:
    """Return what a side learns by."""
    return config.fastest if side.removesuffix(NO_CUDNN) == FASTEST else config.recipe


def experiment_of(config: SecondsBench, side: str) -> Experiment:
    """Describe one of our sides as an experiment."""
    name = side.removesuffix(NO_CUDNN)
    recipe = recipe_of(config, side)
    inserted = {"lora": config.lora, "houlsby": config.houlsby}.get(name)
    settings: Settings = {
        "name": name,
        "encoder": config.encoder,
        "data": config.data.model_dump(mode="json"),
        "windows": {"max_length": 384, "stride": 128},
        "finetune": {
            "fractions": [recipe.epochs],
            "batch": {"tokens": recipe.tokens},
            "lr": recipe.lr if inserted is None else inserted.lr,
            "optim": {"schedule": "linear", "warmup": recipe.warmup},
            "step": STEPS.get(name, "auto"),
        },
        "tune": None if inserted is None else {"train": "none", "insert": inserted.insert},
        "heads": {"train": []},
        "seeds": [config.seed],
        "device": config.device,
        "precision": config.precision,
    }
    return build_experiment(settings, origin=f"side {side}")


def _warm_up(context: RunContext) -> None:
    """Fine-tune on a few windows, so that the first side does not pay for the start of the device."""
    with tempfile.TemporaryDirectory(prefix="bertvision-bench-") as folder:
        finetune(replace(context, out=Path(folder), train=context.train[:64], progress=SILENT))


def _scored(config: SecondsBench, context: RunContext, name: str) -> ScoredSide:
    experiment = experiment_of(config, name)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bertvision-bench-") as folder:
        here = replace(context.of(experiment), out=Path(folder))
        if name.removesuffix(NO_CUDNN) in TRAINERS:
            seconds, scores = _by_trainer(config, here, name)
        else:
            seconds, scores = _by_us(here)
    return ScoredSide(
        side=name,
        measured_on=_measured_on(config),
        recipe=_spelled(experiment.finetune),
        seconds=round(seconds, 3),
        wall=round(time.perf_counter() - started, 3),
        scores={key: scores[key] for key in ("best_f1", "exact", "f1")},
    )


def _by_us(context: RunContext) -> tuple[float, dict[str, float]]:
    (fraction,) = context.experiment.finetune.fractions
    finetune(context)
    (record,) = (each for each in predict(context.at(context.seed, fraction)) if each.model == ENCODER)
    return record.seconds.finetune, record.scores


def _by_trainer(config: SecondsBench, context: RunContext, name: str) -> tuple[float, dict[str, float]]:
    encoder, recipe, compute = load_encoder(config.encoder), config.recipe, context.compute
    output = new_output(encoder, config.seed)
    model = question_model(encoder, output)
    started = time.perf_counter()
    train_with_trainer(
        model,
        encoder,
        context.train,
        TRAINERS[name.removesuffix(NO_CUDNN)],
        Recipe(recipe.lr, recipe.epochs, "linear", recipe.warmup, config.seed),
        step_windows=round(recipe.tokens / float(lengths_of(context.train).mean())),
        workers=config.workers,
        compute=compute,
    )
    wait_for(compute.device)
    seconds = time.perf_counter() - started
    copy_back(model, encoder, output)
    tokens = context.experiment.answers.batch_tokens
    logits = logits_of(
        freeze(encoder, compute), {ENCODER: output}, context.dev.windows, "token", compute, tokens=tokens
    )[ENCODER]
    return seconds, context.dev.score(context.dev.answer(logits), logits)


def _spelled(config: FinetuneConfig) -> str:
    (epochs,), optim = config.fractions, config.optim
    return f"{epochs:g} epochs of {config.batch.tokens} tokens a step at {config.lr:g}, warmup {optim.warmup:g}"


def _measured_on(config: SecondsBench) -> Settings:
    names = {split: Path(str(getattr(config.data, split))).name for split in ("train", "dev")}
    return {"encoder": Path(config.encoder).name, "seed": config.seed, **names}


def _finished(config: SecondsBench) -> list[ScoredSide]:
    """Read what this call and earlier ones have finished; refuse to lay sides of other data beside each other."""
    found = [read_file(ScoredSide, path, "a finished side") for path in sorted(config.folder.glob("*.json"))]
    if other := [each.side for each in found if each.measured_on != _measured_on(config)]:
        raise FolderError(f"{config.folder}: {other[0]} was measured on something else; give another folder")
    order = SecondsBench.model_fields["sides"].default
    return sorted(found, key=lambda each: order.index(each.side) if each.side in order else len(order))


def _record(config: SecondsBench, context: RunContext, sides: Sequence[ScoredSide]) -> BenchRecord:
    columns = {"best F1": "best_f1", "EM at 0": "exact", "F1 at 0": "f1"}
    figures: dict[str, float] = {}
    for each in sides:
        figures |= {f"{each.side}: {what}": round(each.scores[key], 2) for what, key in columns.items()}
        figures[f"{each.side}: seconds in all"] = each.wall
    return BenchRecord(
        name="seconds-to-score",
        variant=Path(config.encoder).name,
        about="seconds of fine-tuning, and how the model then answers dev; each side once, in a process that is warm",
        settings={**_measured_on(config), **{each.side: each.recipe for each in sides}},
        sides=tuple(Side(name=each.side, seconds=(each.seconds,)) for each in sides),
        figures=figures,
        provenance=provenance(context.compute.name, context.compute.precision),
    )
