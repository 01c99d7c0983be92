"""The first stage: OUT/encoder/<fraction>, one folder per fraction, all from one run.

Trained models may teach it: their logits are what a smaller one learns beside its labels.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from bertvision.encoder.encode import Read, freeze, layers_of_output, read_output, shape_of_states
from bertvision.encoder.finetune import Checkpoint, finetune_encoder
from bertvision.encoder.finetune_plan import steps_of_fractions
from bertvision.encoder.load import Encoder, folder_of, load_encoder
from bertvision.encoder.tuning.adapter_file import save_adapters
from bertvision.encoder.tuning.freezing import count_trainable, first_above_bottom
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.errors import SettingsError
from bertvision.files import read_json, remove_folder, whole_folder, write_json
from bertvision.heads.config import HeadConfig, output_head
from bertvision.heads.head import Head
from bertvision.heads.logits import output_logits, reading_of
from bertvision.heads.regression import fit_regression
from bertvision.heads.training import build_heads, start_at_prior
from bertvision.manifest import write_manifest
from bertvision.model_config import Pooling
from bertvision.model_folder import LORA, as_saved, load_head, load_model, read_model_config, save_encoder
from bertvision.records import TrainingPoint, fraction_name
from bertvision.run_folder import SETTINGS_FINGERPRINT, is_made, resumable, write_settings
from bertvision.settings import Settings, first_difference
from bertvision.shapes import StackShape
from bertvision.stages.context import RunContext
from bertvision.states.live import outputs_in_order_of_length, read_quietly
from bertvision.training.accounting import Costs
from bertvision.training.checkpoint import fingerprint
from bertvision.training.history import UNLOGGED, TrainingLog
from bertvision.training.loop import seed_for
from bertvision.training.objective import Teach
from bertvision.windows.batches import WindowBatch

TRAINING = "training.json"
PLAIN_OUTPUT = output_head(None)


@dataclass(frozen=True)
class Output:
    """The output layer that is tuned together with an encoder."""

    config: HeadConfig
    head: Head
    shape: StackShape  # of the states that it was made for

    @property
    def is_plain(self) -> bool:
        """Return whether it is the usual one, which reads what `encode_output` gives."""
        return self.config == PLAIN_OUTPUT

    @property
    def pooling(self) -> Pooling:
        """Return which one state it reads for a row."""
        return self.head.pooling or "first"


@dataclass(frozen=True)
class TuningReport:
    """How a fine-tuning went, as the folder of its encoder tells."""

    costs: Costs = Costs()
    trained: int | None = None  # weights, output layer included; None for a model without its run
    steps: str | None = None  # how steps were taken
    best: int | None = None  # the step that the weights are of, where the best ones were kept
    points: Sequence[TrainingPoint] = ()  # its course


def finetune(context: RunContext) -> None:
    """Tune the encoder for every fraction that the run folder does not hold yet."""
    config, folder = context.experiment.finetune, context.folder
    wanted = {fraction: folder.encoder(fraction) for fraction in config.fractions}
    if context.is_main:
        for fraction, place in wanted.items():
            _borrow(context, fraction, place)
    made = context.processes.agreed(
        lambda: [is_made(place, _settings_fingerprint(context, fraction)) for fraction, place in wanted.items()]
    )
    if all(made):
        return
    _tune_missing(context, wanted, [fraction for fraction, is_there in zip(wanted, made, strict=True) if not is_there])
    context.processes.wait()  # until all is written


def _tune_missing(context: RunContext, wanted: Mapping[float, Path], missing: list[float]) -> None:
    encoder, output = load_encoder(context.experiment.encoder), output_layer(context)
    start_tuning(encoder.model, context.experiment.tune, context.seed)
    unfinished = {**_settings_fingerprint(context, None), "device": context.compute.device.type}
    stage, results = context.folder.unfinished("finetune"), list(wanted.values())
    with resumable(stage, unfinished, results, is_main=context.is_main) as saved:
        context.processes.agreed(lambda: _forget_if_past(saved, context, missing))
        for checkpoint in tune_together(context, encoder, output, saved, context.log):
            place = wanted[checkpoint.fraction]
            if context.processes.agreed(place.exists):
                continue
            if context.is_main:
                if context.contrast is not None:
                    _fit_output(context.alone(), encoder, output)
                _save(context, place, encoder, output, checkpoint)


def _forget_if_past(saved: Path, context: RunContext, missing: list[float]) -> None:
    if _is_past(saved, context, missing):
        remove_folder(saved)


def _borrow(context: RunContext, fraction: float, place: Path) -> None:
    """Take an encoder that another run has tuned by the same settings, where there is one."""
    if context.lender is None or place.exists():
        return
    wanted = _settings_fingerprint(context, fraction)
    for made in sorted(context.lender.rglob(f"encoder/{fraction_name(fraction)}/{SETTINGS_FINGERPRINT}")):
        if first_difference(read_json(made), wanted) is None:
            context.progress.say(f"the encoder of fraction {fraction:g} is that of {made.parent}")
            with whole_folder(place) as beside:
                shutil.copytree(made.parent, beside, copy_function=_link, dirs_exist_ok=True)
            return


def _link(source: str, target: str) -> None:
    """Let two folders share a file; a copy where the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _fit_output(context: RunContext, encoder: Encoder, output: Output) -> None:
    """Fit the output layer, which contrastive tuning does not train, as SetFit does: a regression on the last state."""
    batch, tokens = context.experiment.finetune.batch, context.experiment.windows.max_length
    read = partial(read_output, objective=context.objective, pooling=output.pooling)
    at_once = batch.tokens or tokens * (batch.windows or 1)
    states = outputs_in_order_of_length(encoder, read, context.train, at_once, context.compute)
    output.head.to(context.compute.device)
    fit_regression(output.head, states, context.objective, seed_for(context.seed, "regression"))


def tune_together(
    context: RunContext,
    encoder: Encoder,
    output: Output,
    saved: Path | None = None,
    log: TrainingLog | None = None,
) -> Iterator[Checkpoint]:
    """Tune an encoder that `start_tuning` made ready and its output layer; hand control back at each fraction.

    Without a `log` nothing is evaluated.
    """
    return finetune_encoder(
        encoder,
        output.head if context.contrast is None else nn.Identity(),
        context.tuning_windows(),
        context.experiment.finetune,
        seed=context.seed,
        compute=context.compute,
        objective=context.objective,
        read=_reading_in_training(context, encoder, output),
        teach=teacher_of(context, encoder.tokenizer),
        contrast=context.contrast,
        rates=context.experiment.tune.rates if context.experiment.tune is not None else None,
        # Contrastive tuning has no output layer to score until it ends.
        evaluate=partial(score_output, context, encoder, output)
        if log is not None and context.contrast is None
        else None,
        log=log or UNLOGGED,
        saved=saved,
        progress=context.progress,
    )


def score_output(context: RunContext, encoder: Encoder, output: Output) -> float | None:
    """Score encoder and output layer as they are."""
    read = _reading(context, output) or partial(read_output, objective=context.objective)
    asked, tokens = context.chosen_on, context.experiment.answers.batch_tokens
    logits = output_logits(encoder, output.head, read, asked.windows, context.objective.per, context.compute, tokens)
    return asked.score(asked.answer(logits), logits).get(context.metric)


def _is_past(saved: Path, context: RunContext, missing: list[float]) -> bool:
    """Return whether a stopped training has gone past a fraction that is asked for now."""
    if not (saved / "position.json").exists():
        return False
    steps = context.tuning_steps(context.experiment.finetune)
    done = read_json(saved / "position.json")["step"]
    return any(stop < done for _, stop in steps_of_fractions(missing, steps, len(context.tuning_windows())))


def tuning_of(context: RunContext) -> TuningReport:
    """Return how the encoder of a fraction was tuned; an encoder as given was not."""
    return TuningReport() if context.fraction is None else read_tuning(context.folder.encoder(context.fraction))


def read_tuning(place: Path) -> TuningReport:
    """Read how the encoder of a folder was tuned."""
    told = read_json(place / TRAINING)
    return TuningReport(
        costs=Costs(**told["costs"]),
        trained=told["trainable"],
        steps=told["step_mode"],
        best=told["best"],
        points=[TrainingPoint(**point) for point in told["points"]],
    )


def _save(context: RunContext, place: Path, encoder: Encoder, output: Output, checkpoint: Checkpoint) -> None:
    costs = checkpoint.costs
    with whole_folder(place) as beside:
        saved = as_saved(encoder)
        config = context.model_config(output.config, ".", True, fingerprint(saved.model))
        layers, state_layers = output.shape.layers, output.head.layers
        if output.is_plain:
            layers = shape_of_states(encoder, pooling=output.head.pooling).layers
            state_layers = layers_of_output(encoder, context.objective, output.pooling)
        made_for = {"layers": layers, "hidden": output.shape.hidden, "pooling": output.pooling}
        config = config.model_copy(update={**made_for, "state_layers": state_layers})
        save_encoder(beside, saved, output.head.in_unit(1.0), config)
        if saved is not encoder:
            save_adapters(beside / LORA, encoder.model)
        trained = count_trainable(encoder.model) + count_trainable(output.head)
        how = {"step_mode": checkpoint.steps, "best": checkpoint.best}
        points = [point.model_dump() for point in checkpoint.points]
        costs_as = {"seconds": round(costs.seconds, 3), "trainable": trained, "costs": costs._asdict()}
        timing = {**costs_as, **how, "points": points}
        write_json(beside / TRAINING, timing)
        write_settings(beside, _settings_fingerprint(context, checkpoint.fraction))
        write_manifest(beside)


def output_layer(context: RunContext) -> Output:
    """Make the layer that is tuned together with the encoder; an earlier run's on the same task goes on."""
    wanted, given = context.experiment.output, context.experiment.finetune.head
    if context.is_own_checkpoint():
        place = folder_of(context.experiment.encoder)
        config = read_model_config(place)
        if given is None or config.head == wanted:
            head = load_head(place, config).in_unit(context.objective.unit)
            return Output(config.head, head, StackShape(config.layers, config.hidden))
    shape = context.shape_for(wanted)
    pooling = context.experiment.states.chosen_pooling
    head = build_heads([wanted], shape, context.seed, context.objective, pooling)[wanted.name]
    if context.experiment.finetune.initial_bias == "prior":
        start_at_prior([head], context.objective, context.train)
    output = Output(wanted, head, shape)
    if not output.is_plain:
        output.head.layers = context.model_config(wanted, ".", True, "").state_layers
    return output


def _reading_in_training(context: RunContext, encoder: Encoder, output: Output) -> Read | None:
    """Return what the output layer sees while both learn: frozen blocks below all that learns run without dropout."""
    read, tune = _reading(context, output), context.experiment.tune
    first = first_above_bottom(encoder.model) if tune is not None and tune.freezes_bottom else None
    if first is None:
        return read
    return read_quietly(read or partial(read_output, objective=context.objective), first)


def _reading(context: RunContext, output: Output) -> Read | None:
    """Return what the output layer sees: a head of the catalog sees what it would on a frozen encoder."""
    if not output.is_plain:
        return reading_of(output.config, output.head)
    return (
        None if output.pooling == "first" else partial(read_output, objective=context.objective, pooling=output.pooling)
    )


def _settings_fingerprint(context: RunContext, fraction: float | None) -> Settings:
    settings, config = context.experiment.tuning_settings(), context.experiment.finetune
    chosen_on = {"chosen_on": context.chosen_on.split.sha256} if config.keeps_best else {}
    return context.settings_fingerprint(
        "finetune", **settings, **teacher_signature(context), **chosen_on, horizon=config.horizon, fraction=fraction
    )


def teacher_of(context: RunContext, tokenizer: PreTrainedTokenizerBase) -> Teach | None:
    """Load an experiment's teachers and return what gives the mean of their logits for a batch."""
    config = context.experiment.finetune.teacher
    if config is None:
        return None
    if not context.objective.kind.can_be_taught:
        raise SettingsError(
            f"finetune.teacher is for questions and classes, and {context.task.name} has none; leave it out"
        )
    teachers = [_one_teacher(context, name, tokenizer) for name in config.models]

    return lambda batch: torch.stack([each(batch) for each in teachers]).mean(dim=0)


def _one_teacher(context: RunContext, name: str, tokenizer: PreTrainedTokenizerBase) -> Teach:
    """Load a teacher and return what runs it on a batch; refuse one that cannot read the same tokens."""
    model = load_model(Path(name), allow_outside=True)  # an experiment names what its user trusts
    if not context.objective.asks_as(model.config.objective) or model.config.labels != context.task.labels:
        raise SettingsError(f"finetune.teacher: {name} is a model of {model.config.task}; give one of this task")
    if model.encoder.tokenizer.get_vocab() != tokenizer.get_vocab():
        raise SettingsError(
            f"finetune.teacher: {name} has another vocabulary than {context.experiment.encoder}; give a teacher with "
            "the same one"
        )
    if "joint" in (model.config.head.readout, context.experiment.output.readout):
        raise SettingsError(
            "finetune.teacher: joint readouts, which score pairs, cannot teach or be taught; use others"
        )
    encoder, head = freeze(model.encoder, context.compute), model.head.to(context.compute.device).eval()
    read = reading_of(model.config.head, head)

    def teach(batch: WindowBatch) -> Tensor:
        with torch.no_grad(), context.compute.autocast():
            logits: Tensor = head(*read(encoder, batch).seen)
        return logits.float()

    return teach


def teacher_signature(context: RunContext) -> Settings:
    """Name what decides the teachers, beside their settings: their weights."""
    config = context.experiment.finetune.teacher
    if config is None:
        return {}
    weights = [read_model_config(Path(name)).encoder_fingerprint for name in config.models]
    return {"teacher": weights[0] if len(weights) == 1 else weights}
