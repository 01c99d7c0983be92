"""What a run folder holds of heads: the epochs of a stage that goes on, and the folders of heads that are trained."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.errors import FolderError
from bertvision.files import read_json, whole_folder, write_json
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig, is_regression
from bertvision.heads.head import Head
from bertvision.heads.training import EpochEnd
from bertvision.manifest import check_manifest, write_manifest
from bertvision.metrics.squad import Scores
from bertvision.model_folder import ModelConfig, load_head, read_model_config, save_head
from bertvision.records import TrainingPoint
from bertvision.run_folder import is_made, write_settings
from bertvision.settings import Settings
from bertvision.steps.context import RunContext
from bertvision.steps.mistakes import Told, can_tell
from bertvision.training.checkpoint import best_of, load_weights, save_weights

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
