"""The second stage: OUT/heads/<fraction>/<head>, all heads from one pass over one frozen encoder."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bertvision.encoder.encode import StateSource, freeze
from bertvision.encoder.load import Encoder, folder_of, load_encoder
from bertvision.errors import SettingsError
from bertvision.files import read_json, remove_folder
from bertvision.heads.config import HeadConfig, is_regression, reads_output_layer
from bertvision.heads.head import Head
from bertvision.heads.logits import logits_of
from bertvision.heads.poolers.mixes import LastState
from bertvision.heads.readouts import NullOffsetReadout, SpanReadout
from bertvision.heads.regression import RegressionFit, fit_regression
from bertvision.heads.training import EpochEnd, build_heads, start_at_prior, train_heads_together
from bertvision.kinds.kind import Answering
from bertvision.metrics.squad import Scores
from bertvision.model_config import Pooling
from bertvision.model_folder import load_head, read_model_config
from bertvision.records import fraction_name
from bertvision.run_folder import SETTINGS_FINGERPRINT, check_kept, is_made, resumable
from bertvision.states.config import GIB
from bertvision.states.live import KeptBatches, LiveStates
from bertvision.states.memory import StoredStates
from bertvision.steps.context import RunContext
from bertvision.steps.head_folders import best_epoch, keep_epoch, keep_head, settings_fingerprint_of
from bertvision.steps.mistakes import SHARES, Told, can_tell, tell
from bertvision.steps.states import open_states, suffix_of
from bertvision.training.checkpoint import fingerprint
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
