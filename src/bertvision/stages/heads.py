"""The second stage: OUT/heads/<fraction>/<head>, all heads from one pass over one frozen encoder.

And what a run folder holds of heads: the epochs of a stage that goes on, and the folders of heads that are trained.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertvision.encoder.encode import StateSource, freeze
from bertvision.encoder.load import Encoder, folder_of, load_encoder
from bertvision.errors import FolderError, SettingsError
from bertvision.files import read_json, remove_folder, whole_folder, write_json
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig, is_regression, reads_output_layer
from bertvision.heads.head import Head
from bertvision.heads.logits import logits_of
from bertvision.heads.poolers.layers import LastState
from bertvision.heads.readouts import NullOffsetReadout, SpanReadout
from bertvision.heads.regression import RegressionFit, fit_regression
from bertvision.heads.training import EpochEnd, build_heads, start_at_prior, train_heads_together
from bertvision.kinds.kind import Answering
from bertvision.manifest import check_manifest, write_manifest
from bertvision.model_config import Pooling
from bertvision.model_folder import ModelConfig, load_head, read_model_config, save_head
from bertvision.records import TrainingPoint, fraction_name
from bertvision.run_folder import SETTINGS_FINGERPRINT, check_kept, is_made, resumable, write_settings
from bertvision.scoring.squad import Scores
from bertvision.settings import Settings
from bertvision.stages.context import RunContext
from bertvision.stages.notes import SHARES, Told, can_tell, tell
from bertvision.stages.states import open_states, suffix_of
from bertvision.states.config import GIB
from bertvision.states.live import KeptBatches, LiveStates
from bertvision.states.memory import StoredStates
from bertvision.training.checkpoint import best_of, fingerprint, load_weights, save_weights
from bertvision.training.loop import seed_for


def train_heads(context: RunContext) -> None:
    """Train every head that the run folder does not hold yet, in one pass.

    Heads that read one state per layer have a pass of their own beside heads that read all tokens'.
    """
    made = context.processes.agreed(
        lambda: [
            is_made(context.folder.head(head.name), settings_fingerprint_of(context, [head]))
            for head in context.experiment.heads.train
        ]
    )
    missing = [head for head, is_there in zip(context.experiment.heads.train, made, strict=True) if not is_there]
    for pooling in context.shapes:
        if own := [head for head in missing if context.pooling_of(head) == pooling]:
            _train_together(context, own, pooling)


def _train_together(context: RunContext, missing: list[HeadConfig], pooling: Pooling | None) -> None:
    config, objective = context.experiment.heads, context.objective
    stage = context.folder.unfinished(f"heads-{fraction_name(context.fraction)}{suffix_of(pooling)}")
    names = context.processes.agreed(lambda: [head.name for head in _going_on(stage, missing, config.train)])
    together = [head for head in config.train if head.name in names]
    encoder, weights = frozen_encoder(context)
    heads = build_heads(together, context.shapes[pooling], context.seed, objective, pooling or "first")
    if config.initial_bias == "prior":
        start_at_prior(heads.values(), objective, context.head_windows())
    _give_output_layer(context, heads, [head.name for head in together if reads_output_layer(head)])
    settings_fingerprint = {**settings_fingerprint_of(context, together), "device": context.compute.device.type}
    results = [context.folder.head(head.name) for head in together]
    with resumable(stage, settings_fingerprint, results, is_main=context.is_main) as saved:
        context.processes.wait()
        source, states = open_states(context, encoder, weights, heads.values(), pooling=pooling)
        kept, fits = kept_states(context), dict[str, RegressionFit]()
        score = partial(_score_heads, context, encoder, kept)
        for end in _train(context, together, heads, source, saved, fits):
            keep_epoch(context, stage, heads, end, states, score)
            if _is_over(context, stage, together, end):
                context.progress.say(f"heads stopped early, after epoch {end.epoch} of {config.epochs}")
                break
        told = _tell(context, encoder, fits, kept["dev"]) if can_tell(context) else {}
        if context.is_main:
            check_kept([stage / SETTINGS_FINGERPRINT])  # else scores of earlier epochs may have gone with it
            for head in together:
                keep_head(context, stage, head, weights, end, told.get(head.name, Told()))
    context.processes.wait()  # until all is written


def _give_output_layer(context: RunContext, heads: Mapping[str, Head], names: Sequence[str]) -> None:
    """Hand the encoder's own output layer to the heads that correct its scores."""
    if not names:
        return
    output = output_layer_of(context)
    if output is None or not isinstance(output.pooler, LastState) or not isinstance(output.readout, SpanReadout):
        raise SettingsError(
            f"head {names[0]!r} corrects the scores of a linear output layer; tune the encoder with one"
        )
    for name in names:
        readout = heads[name].readout
        assert isinstance(readout, NullOffsetReadout)
        readout.take(output.readout.linear)


def output_layer_of(context: RunContext) -> Head | None:
    """Load the encoder's own output layer, or give None for an encoder as given that has none."""
    if context.fraction is None and not context.is_own_checkpoint():
        return None
    place = encoder_folder(context)
    return load_head(place, read_model_config(place))


def encoder_folder(context: RunContext) -> Path:
    """Return where the encoder of a fraction lies, with its output layer."""
    if context.fraction is None:
        return folder_of(context.experiment.encoder)
    return context.folder.encoder(context.fraction)


def _train(
    context: RunContext,
    configs: Sequence[HeadConfig],
    heads: Mapping[str, Head],
    source: StateSource,
    saved: Path,
    fits: dict[str, RegressionFit],
) -> Iterator[EpochEnd]:
    """Fit the regressions at once, which go into `fits`, and let the other heads take steps."""
    config, objective, started = context.experiment.heads, context.objective, time.perf_counter()
    shares = SHARES if can_tell(context) else ()
    for name in (head.name for head in configs if is_regression(head)):
        seed = seed_for(context.seed, "regression")
        assert isinstance(source, LiveStates | StoredStates)  # packed states are for heads that score tokens
        pooled = source.whole().epoch(0)  # a fit has no steps to share: of several processes each makes the same
        fits[name] = fit_regression(heads[name], pooled, objective, seed, shares)
    stepping = {head.name: heads[head.name] for head in configs if not is_regression(head)}
    if not stepping:
        yield EpochEnd(config.epochs, time.perf_counter() - started, ())
        return
    yield from train_heads_together(
        stepping,
        source,
        config,
        seed=context.seed,
        compute=context.compute,
        objective=objective,
        log=context.log,
        saved=saved,
        progress=context.progress,
    )


def _tell(
    context: RunContext, encoder: Encoder, fits: Mapping[str, RegressionFit], kept: KeptBatches
) -> dict[str, Told]:
    """Score the regressions on fewer rows on dev, all in one pass, and look for training rows that they contradict."""
    copies = {
        f"{name} {rows} {number}": head
        for name, fit in fits.items()
        for rows, heads in fit.fewer.items()
        for number, head in enumerate(heads)
    }
    scores = score_on(context, encoder, kept, copies, context.dev) if copies else {}
    return {
        name: tell(
            context,
            fit,
            {
                rows: [scores[f"{name} {rows} {number}"] for number in range(len(each))]
                for rows, each in fit.fewer.items()
            },
        )
        for name, fit in fits.items()
    }


def _going_on(stage: Path, missing: list[HeadConfig], configured: Sequence[HeadConfig]) -> list[HeadConfig]:
    """Return the heads to train: those of a stage that was cut short, if it covers what is missing, else just these.

    A stage that was cut short while its heads were moved to their folders has fewer missing than it trained; one that
    other heads are asked of now is begun anew.
    """
    if not (stage / SETTINGS_FINGERPRINT).exists():
        return missing
    listed = read_json(stage / SETTINGS_FINGERPRINT)["trained"]
    together = [head for head in configured if head.model_dump(mode="json") in listed]
    if len(together) == len(listed) and all(head in together for head in missing):
        return together
    remove_folder(stage)
    return missing


def frozen_encoder(context: RunContext) -> tuple[Encoder, str]:
    """Load the encoder of a fraction for good, with the fingerprint of its float32 weights."""
    place = context.experiment.encoder if context.fraction is None else str(context.folder.encoder(context.fraction))
    encoder = load_encoder(place)
    weights = fingerprint(encoder.model)
    return freeze(encoder, context.compute), weights


def _is_over(context: RunContext, stage: Path, trained: Sequence[HeadConfig], end: EpochEnd) -> bool:
    """Return whether training has waited long enough for a head to get better."""
    patience = context.experiment.heads.patience
    if patience is None:
        return False
    return context.processes.agreed(lambda: _waited(context, stage, trained, end) >= patience)


def _waited(context: RunContext, stage: Path, trained: Sequence[HeadConfig], end: EpochEnd) -> int:
    """Count the epochs in which no head that takes steps got better."""
    names = [head.name for head in trained if not is_regression(head) and head.name not in end.diverged]
    return min((end.epoch - best_epoch(context, stage, name, end.epoch) for name in names), default=0)


def kept_states(context: RunContext) -> dict[str, KeptBatches]:
    """Return room for the states of what is scored after every epoch."""
    room = int(context.experiment.states.memory * GIB) // (4 if context.held_out is None else 8)
    return {part: KeptBatches(room) for part in ("dev", "held_out")}


def _score_heads(
    context: RunContext, encoder: Encoder, kept: Mapping[str, KeptBatches], heads: Mapping[str, Head]
) -> dict[str, Scores]:
    scores = score_on(context, encoder, kept["dev"], heads, context.dev)
    if context.held_out is not None:
        for name, own in score_on(context, encoder, kept["held_out"], heads, context.held_out).items():
            if context.metric in own:
                scores[name] = {**scores[name], context.watched_score: own[context.metric]}
    return scores


def score_on(
    context: RunContext, encoder: Encoder, kept: KeptBatches, heads: Mapping[str, Head], asked: Answering
) -> dict[str, Scores]:
    """Score heads on a split; its states are kept for the next time, where they fit."""
    tokens, layers = context.experiment.answers.batch_tokens, context.experiment.states.chosen_layers
    per, windows = context.objective.per, asked.windows
    found = logits_of(encoder, heads, windows, per, context.compute, context.progress, tokens, layers, kept)
    return {name: asked.score(asked.answer(logits), logits) for name, logits in found.items()}


TRAINING, SCORES = "training.json", "scores.json"
REPORTED, BEST = "reported", "best"  # of an unfinished stage: weights that count
Score = Callable[[Mapping[str, Head]], dict[str, Scores]]


@dataclass(frozen=True)
class TrainedHead:
    """A head of the run folder, with how its training went."""

    config: HeadConfig
    head: Head
    seconds: float  # of the pass that trained it, together with others
    epochs: dict[int, Scores]  # scores on dev after epochs other than the reported one
    states: str  # where its states came from
    points: Sequence[TrainingPoint] = ()  # the course of its training
    best: int | None = None  # the epoch that its weights are of, where the best one is kept
    told: Told = Told()  # what a regression tells beside its weights


def load_heads(context: RunContext) -> dict[str, TrainedHead]:
    """Load the heads of a fraction from the run folder; those that diverged are not among them."""
    trained = {}
    for config in context.experiment.heads.train:
        place = context.folder.head(config.name)
        if not is_made(place, settings_fingerprint_of(context, [config])):
            raise FolderError(f"{place}: was removed while the run went on; give the same command again")
        check_manifest(place)
        training = read_json(place / TRAINING)
        if training["diverged"]:
            continue
        epochs = {int(epoch): scores for epoch, scores in training["epoch_scores"].items()}
        # The experiment's own config: a pooler given from Python is in no file.
        saved = read_model_config(place).model_copy(update={"head": config})
        head = load_head(place, saved)
        points = [TrainingPoint(**point) for point in training["points"]]
        told = Told.model_validate(training["regression"])
        seconds, states, best = training["seconds"], training["states"], training.get("best")
        trained[config.name] = TrainedHead(config, head, seconds, epochs, states, points, best, told)
    return trained


def keep_epoch(
    context: RunContext, stage: Path, heads: Mapping[str, Head], end: EpochEnd, states: str, score: Score
) -> None:
    """Keep the weights of the reported epoch and the scores of every one, for when the stage is cut short."""
    config = context.experiment.heads
    going = {name: head for name, head in heads.items() if name not in end.diverged}
    training = {"seconds": round(end.seconds, 3), "states": states}
    if end.epoch == config.epochs and not config.keeps_best and context.is_main:
        with whole_folder(stage / REPORTED) as beside:
            for name, head in going.items():
                save_weights(beside / name, head)
            write_json(beside / TRAINING, {**training, "heads": list(going)})
            write_manifest(beside)
    if config.epochs > 1 or config.keeps_best:
        scores = score(going)
        if context.is_main:
            with whole_folder(stage / f"epoch-{end.epoch}") as beside:
                write_json(beside / SCORES, scores)
                write_manifest(beside)
        if end.history is not None:
            end.history.mark({name: own.get(context.watched_score) for name, own in scores.items()})
    if config.keeps_best and context.is_main:
        _keep_best(context, stage, going, end, training)


def _keep_best(context: RunContext, stage: Path, heads: Mapping[str, Head], end: EpochEnd, training: Settings) -> None:
    """Keep the weights of the heads whose best epoch this is."""
    for name, head in heads.items():
        if best_epoch(context, stage, name, end.epoch) == end.epoch:
            with whole_folder(stage / BEST / name) as beside:
                save_weights(beside / name, head)
                write_json(beside / TRAINING, {**training, "heads": [name], "best": end.epoch})
                write_manifest(beside)


def best_epoch(context: RunContext, stage: Path, name: str, last: int) -> int:
    """Return a head's first best epoch until the last one."""
    epochs, metric = _epochs_of(stage, name, last), context.watched_score
    return [*epochs][best_of([scores.get(metric) for scores in epochs.values()])]


def keep_head(context: RunContext, stage: Path, config: HeadConfig, weights: str, end: EpochEnd, told: Told) -> None:
    """Move a head from the unfinished stage to its MODEL_DIR."""
    settings_fingerprint = settings_fingerprint_of(context, [config])
    if is_made(context.folder.head(config.name), settings_fingerprint):
        return
    place = stage / BEST / config.name if context.experiment.heads.keeps_best else stage / REPORTED
    check_manifest(place)
    training = read_json(place / TRAINING) if place.exists() else {}
    if not (place / config.name).exists():
        context.progress.say(f"head {config.name} diverged and was left out; try a lower lr for it")
        with whole_folder(context.folder.head(config.name)) as beside:
            write_json(beside / TRAINING, {"diverged": True})  # so that it is not tried again
            write_settings(beside, settings_fingerprint)
            write_manifest(beside)
        return
    head = build_head(config, context.shape_for(config), context.objective, context.experiment.states.chosen_pooling)
    training.pop("heads", None)
    load_weights(place / config.name, head)
    points = end.history.points.get(config.name, []) if end.history is not None else []
    training |= {
        "epoch_scores": _epochs_of(stage, config.name, end.epoch),
        "points": [each.model_dump() for each in points],
    }
    with whole_folder(context.folder.head(config.name)) as beside:
        save_head(beside, head.in_unit(1.0), _model_config(context, config, weights))
        write_json(beside / TRAINING, {**training, "diverged": False, "regression": told.model_dump(mode="json")})
        write_settings(beside, settings_fingerprint)
        write_manifest(beside)


def _epochs_of(stage: Path, name: str, last: int) -> dict[int, Scores]:
    """Return a head's scores after the epochs until the last one, in their order."""
    places = {int(place.stem.removeprefix("epoch-")): place for place in stage.glob("epoch-*")}
    scores = {epoch: _read_scores(place) for epoch, place in sorted(places.items()) if epoch <= last}
    return {epoch: own[name] for epoch, own in scores.items() if name in own}


def _read_scores(place: Path) -> dict[str, Scores]:
    check_manifest(place)
    scores: dict[str, Scores] = read_json(place / SCORES if place.is_dir() else place)  # a file: of an older version
    return scores


def _model_config(context: RunContext, config: HeadConfig, weights: str) -> ModelConfig:
    encoder, is_path = context.experiment.encoder, Path(context.experiment.encoder).exists()
    if context.fraction is not None:
        encoder, is_path = str(context.folder.encoder(context.fraction)), True
    place, inside = Path(encoder).resolve(), context.out.resolve()
    if is_path and place.is_relative_to(inside):  # relative, so that a run folder can be moved
        encoder = os.path.relpath(place, context.folder.head(config.name).resolve())
    elif is_path:
        encoder = str(place)
    return context.model_config(config, encoder, is_path, weights)


def settings_fingerprint_of(context: RunContext, heads: list[HeadConfig]) -> Settings:
    """Return the settings that trained heads depend on."""
    return context.settings_fingerprint(
        "heads",
        fraction=context.fraction,
        **(context.experiment.tuning_settings() if context.fraction is not None else {"finetune": None}),
        horizon=context.experiment.finetune.horizon,
        heads=_settings(context),
        states=_states(context),
        scored_on=_scored_on(context, heads),
        **({"chosen_on": context.chosen_on.split.sha256} if context.experiment.heads.keeps_best else {}),
        trained=[head.model_dump(mode="json") for head in heads],
    )


def _scored_on(context: RunContext, heads: Sequence[HeadConfig]) -> Settings | None:
    """Return what the scores that are part of a result depend on: those after every epoch, and those of fewer rows."""
    if context.experiment.heads.epochs == 1 and not (can_tell(context) and any(map(is_regression, heads))):
        return None
    held_out = context.held_out if isinstance(context.experiment.data.held_out, str) else None
    apart = {} if held_out is None else {"held_out": held_out.split.sha256}  # a share of train is told by train
    extra = {"extra_scores": list(context.extra_scores)} if context.extra_scores else {}
    return {"dev": context.task.dev.sha256, "answers": _answers(context), **apart, **extra}


def _settings(context: RunContext) -> Settings:
    """Return the settings of all heads; folders that were made when heads learnt from all windows name no fraction."""
    config = context.experiment.heads
    without = {"train", "save_every"} | ({"data_fraction"} if config.data_fraction == 1 else set())
    return config.model_dump(mode="json", exclude=without | (set() if config.keep_best else {"keep_best"}))


def _states(context: RunContext) -> Settings:
    """Return the settings of states; a folder of them may lie anywhere."""
    config = context.experiment.states
    source = {} if config.folder is None else {"source": "folder"}
    return {**config.model_dump(mode="json", exclude={"folder"}), **source}


def _answers(context: RunContext) -> Settings:
    """Return the settings of answers; which decoders there are beside the papers' changes no head."""
    config = context.experiment.answers
    return config.model_dump(
        mode="json", exclude={"decoders"} if {*config.decoders} <= {"official", "reader"} else None
    )
