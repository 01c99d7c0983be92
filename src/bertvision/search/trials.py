"""Trials of a search, scored on held-out rows: heads that learn from one pass over the states, or fine-tunings."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bertvision.encoder.encode import StateSource, places_of_states, shape_of_states
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.encoder.tuning.tune import start_tuning
from bertvision.errors import TrainingError
from bertvision.experiment import Experiment
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Head
from bertvision.heads.training import EpochEnd, build_heads, start_at_prior, train_heads_together
from bertvision.kinds.kind import Answering
from bertvision.model_config import Pooling
from bertvision.recipes import BASELINE
from bertvision.search_space import Space, Value, layers_of
from bertvision.stages.context import RunContext
from bertvision.stages.finetune import finetune, output_layer, score_output, tune_together
from bertvision.stages.heads import frozen_encoder, kept_states, score_on
from bertvision.stages.states import keep_states, source_of, state_request
from bertvision.states.memory import StateStore
from bertvision.windows.plan import BatchConfig


@dataclass
class Trial:
    """One point of the space, and what came out of it so far."""

    number: int
    settings: Mapping[str, Value]
    # Is told the scores after each epoch so far, and says whether the trial is to end.
    is_hopeless: Callable[[Sequence[float]], bool] = lambda scores: False
    scores: list[float] = field(default_factory=list)  # after each epoch
    seconds: float = 0.0  # of the pass that it took part in
    note: str = ""  # why it ended early

    @property
    def name(self) -> str:
        """Return the name of its head, on which the start of its weights depends."""
        return f"trial_{self.number}"

    def add(self, epoch: int, epochs: int, score: float | None) -> None:
        """Note a score after an epoch of so many, and whether the trial ends with it."""
        if score is None:
            self.note = "no score"
            return
        self.scores.append(score)
        if self.is_hopeless(self.scores) and epoch < epochs:
            self.note = f"pruned after epoch {epoch}"


def base_of(experiment: Experiment, space: Space, held_out: float | str) -> Experiment:
    """Return what all trials of a search share; a tuned encoder is that of the last fraction."""
    tuning = experiment.finetune
    fractions = tuning.fractions[-1:]
    if space.of == "finetune":  # whoever asks for it gets it, however few rows there are
        fractions = (float(max(_whole(space, "epochs"))),)
        tuning = tuning.model_copy(update={"min_rows": 0, "min_steps": 0})
    return experiment.model_copy(
        update={
            "search": None,
            "ensembles": (),
            "data": experiment.data.model_copy(update={"held_out": held_out}),
            "finetune": tuning.model_copy(update={"fractions": fractions}),
            "states": experiment.states.model_copy(update={"layers": "all"}),
            "seeds": tuple(_whole(space, "seed")),
        }
    )


def with_trial(base: Experiment, space: Space, trial: Trial, states: int) -> Experiment:
    """Return the experiment that `run` takes for one trial, on an encoder with so many states."""
    return with_finetune(base, trial) if space.of == "finetune" else _with_head(base, space, trial, states)


def with_finetune(base: Experiment, trial: Trial, fractions: Sequence[float] | None = None) -> Experiment:
    """Return the experiment of one fine-tuning, without heads."""
    settings, epochs = trial.settings, float(trial.settings["epochs"])
    changes = {
        "lr": float(settings["lr"]),
        "batch": BatchConfig(windows=int(settings["batch"])),
        "fractions": tuple(fractions or (epochs,)),
        **({"dropout": float(settings["dropout"])} if "dropout" in settings else {}),
    }
    return base.model_copy(
        update={
            "seeds": (int(settings["seed"]),),
            "finetune": base.finetune.model_copy(update=changes),
            "heads": base.heads.model_copy(update={"train": (), "baseline": False}),
        }
    )


def _with_head(base: Experiment, space: Space, trial: Trial, states: int) -> Experiment:
    baseline = [HeadConfig.model_validate(BASELINE)] if base.heads.baseline else []
    layers = layers_of(str(trial.settings["layers"]), states)
    return base.model_copy(
        update={
            "seeds": (int(trial.settings["seed"]),),
            "heads": base.heads.model_copy(update={"train": (head_of(space, trial), *baseline)}),
            "states": base.states.model_copy(update={"layers": "all" if layers is None else layers}),
        }
    )


def head_of(space: Space, trial: Trial) -> HeadConfig:
    """Return the head of a trial: one of the space's, with the trial's rate, decay, width, dropout and readout."""
    settings = trial.settings
    base = space.heads[str(settings["head"])]
    has_width = "width" in type(base.pooler).model_fields
    pooler = base.pooler.model_copy(update={"width": int(settings["width"])}) if has_width else base.pooler
    return base.model_copy(
        update={
            "name": trial.name,
            "pooler": pooler,
            "same_size_as": None if has_width else base.same_size_as,
            "readout": settings["readout"],
            "dropout": float(settings["dropout"]) or None,
            "lr": float(settings["lr"]),
            "weight_decay": float(settings["weight_decay"]),
        }
    )


def _whole(space: Space, name: str) -> list[int]:
    values = space.values[name]
    assert isinstance(values, tuple)
    return [int(value) for value in values]


class HeadTrials:
    """Trains groups of heads; the encoder, its kept states and those of the held-out rows serve one after the other."""

    def __init__(self, context: RunContext, space: Space, passes: int) -> None:
        """Foresee so many passes over the states, on which it depends whether they are kept."""
        self._context, self._space, self._passes = context, space, passes
        self._seed: int | None = None  # of what is loaded
        self._encoder: tuple[Encoder, str] | None = None
        self._stores: dict[Pooling | None, StateStore | None] = {}
        self._held_out = kept_states(context)["held_out"]

    def run(self, trials: Sequence[Trial]) -> None:
        """Train heads of one seed; those that read all tokens have a pass of their own."""
        context = self._context.at(int(trials[0].settings["seed"]), self._context.fractions[-1])
        encoder, weights = self._load(context)
        for pooling in context.shapes:
            own = [trial for trial in trials if context.pooling_of(head_of(self._space, trial)) == pooling]
            if own:
                self._train(context, encoder, weights, pooling, own)

    def _load(self, context: RunContext) -> tuple[Encoder, str]:
        """Load the encoder; one that was tuned, and a share of the windows, is each seed's own."""
        is_own = context.fraction is not None or context.experiment.heads.data_fraction != 1
        if self._encoder is None or (is_own and self._seed != context.seed):
            if context.fraction is not None:
                finetune(context)
            self._encoder, self._seed, self._stores = frozen_encoder(context), context.seed, {}
            self._held_out = kept_states(context)["held_out"]
        return self._encoder

    def _train(
        self, context: RunContext, encoder: Encoder, weights: str, pooling: Pooling | None, trials: Sequence[Trial]
    ) -> None:
        configs, objective = [head_of(self._space, trial) for trial in trials], context.objective
        heads: dict[str, Head] = {}
        for trial, config in zip(trials, configs, strict=True):
            layers = layers_of(str(trial.settings["layers"]), encoder.shape.layers)
            shape = shape_of_states(encoder, layers, pooling=pooling)
            heads |= build_heads([config], shape, context.seed, objective, pooling or "first")
            heads[trial.name].layers = places_of_states(encoder, layers, pooling=pooling)
        settings = context.experiment.heads.model_copy(update={"train": tuple(configs)})
        if settings.initial_bias == "prior":
            start_at_prior(heads.values(), objective, context.head_windows())
        source = self._source(context, encoder, weights, pooling, heads)
        ends = train_heads_together(
            heads,
            source,
            settings,
            seed=context.seed,
            compute=context.compute,
            objective=objective,
            progress=context.progress,
        )
        try:
            for end in ends:
                if not self._end_epoch(context, encoder, heads, end, trials):
                    break
        except TrainingError:  # all that were left
            for trial in trials:
                trial.note = trial.note or "diverged"

    def _end_epoch(
        self,
        context: RunContext,
        encoder: Encoder,
        heads: Mapping[str, Head],
        end: EpochEnd,
        trials: Sequence[Trial],
    ) -> bool:
        """Score the heads that are left and drop those that are hopeless; return whether any go on."""
        going = [trial for trial in trials if not trial.note]
        for trial in going:
            trial.seconds = end.seconds
            trial.note = "diverged" if trial.name in end.diverged else ""
        scored = {trial.name: heads[trial.name] for trial in going if not trial.note}
        scores = score_on(context, encoder, self._held_out, scored, held_out_of(context)) if scored else {}
        for trial in (each for each in going if not each.note):
            trial.add(end.epoch, context.experiment.heads.epochs, scores[trial.name].get(context.metric))
        over = [trial.name for trial in going if trial.note]
        if over and len(over) < len(going):
            end.drop(over)
        return len(over) < len(going)

    def _source(
        self,
        context: RunContext,
        encoder: Encoder,
        weights: str,
        pooling: Pooling | None,
        heads: Mapping[str, Head],
    ) -> StateSource:
        request = state_request(context, encoder, pooling=pooling)
        if pooling not in self._stores:
            self._stores[pooling] = keep_states(context, request, weights, self._passes)
        return source_of(context, self._stores[pooling], request, heads.values())


def held_out_of(context: RunContext) -> Answering:
    """Return what trials are scored on."""
    assert context.held_out is not None  # a search holds something out
    return context.held_out


def run_finetune_trial(context: RunContext, trial: Trial) -> None:
    """Tune the encoder for one trial, with a score after each epoch."""
    epochs, started = int(trial.settings["epochs"]), time.perf_counter()
    experiment = with_finetune(context.experiment, trial, [float(epoch) for epoch in range(1, epochs + 1)])
    context = context.of(experiment)
    encoder, output = load_encoder(experiment.encoder), output_layer(context)
    start_tuning(encoder.model, experiment.tune, context.seed)
    try:
        for checkpoint in tune_together(context, encoder, output):
            trial.add(int(checkpoint.fraction), epochs, score_output(context, encoder, output))
            trial.seconds = time.perf_counter() - started
            if trial.note:
                break
    except TrainingError:
        trial.note = "diverged"
