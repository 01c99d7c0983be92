"""The run context: what all steps of one experiment share, read and tokenised once, and where in it a step is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertvision.data.example import Split
from bertvision.encoder.contrastive import GROUPS, contrast_windows
from bertvision.encoder.encode import places_of_states, shape_of_states
from bertvision.encoder.finetune_plan import FinetuneConfig, plan_steps
from bertvision.encoder.load import Encoder, folder_of, load_encoder
from bertvision.errors import EncoderError, SettingsError
from bertvision.experiment import Experiment, fit_to_rows
from bertvision.heads.build import pooling_of
from bertvision.heads.config import HeadConfig
from bertvision.heads.poolers.config import OwnPoolerConfig
from bertvision.heads.training import build_heads
from bertvision.kinds.kind import Answering, Contrast, Cutting, ExtraScore
from bertvision.model_config import CONFIG, Pooling
from bertvision.model_folder import ModelConfig, read_model_config
from bertvision.progress import Progress
from bertvision.records import MAIN_SCORES, DataFile
from bertvision.run_folder import RunFolder, folder_of_seed
from bertvision.settings import Settings
from bertvision.shapes import StackShape
from bertvision.stages.prepare import ExperimentData, read_data
from bertvision.tasks import Task, open_answering
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import Compute, choose_compute
from bertvision.training.distributed import Processes
from bertvision.training.history import Callback, TrainingLog
from bertvision.training.loop import seed_for
from bertvision.training.objective import Objective, objective_of, unit_of
from bertvision.windows.plan import Rows, spread
from bertvision.windows.window import Window, WindowConfig


@dataclass(frozen=True)
class RunContext:
    """An experiment with its data ready and its run folder known, at one seed and one fraction."""

    experiment: Experiment
    out: Path
    task: Task
    train: Sequence[Window]
    num_rows: int  # of train, also where a sample of it is kept
    dev: Answering
    held_out: Answering | None  # the part of train that nothing learns from; None where `data.held_out` is 0
    also: dict[str, Answering]  # further splits to score
    near_misses: dict[str, int]  # made for train, by rule
    unit: float  # that numbers are learned in
    start_fingerprint: str  # of the encoder that fine-tuning starts from
    shapes: dict[Pooling | None, StackShape]  # of the states that heads read: of all tokens, and pooled ones
    places: dict[Pooling | None, tuple[int, ...] | None]  # of those states among all that there are
    compute: Compute
    progress: Progress
    seed: int
    fraction: float | None = None  # of an epoch that the encoder was tuned for; None: the encoder as given
    callbacks: Sequence[Callback] = ()  # that see the course of every training
    lender: Path | None = None  # where other runs lie, whose tuned encoders serve where the settings are the same

    def at(self, seed: int, fraction: float | None = None) -> "RunContext":
        """Return the same context at another seed and fraction."""
        return replace(self, seed=seed, fraction=fraction)

    def alone(self) -> "RunContext":
        """Return the same context for work that this process does by itself."""
        return replace(self, compute=self.compute.alone())

    @property
    def processes(self) -> Processes:
        """Return the processes that share the work."""
        return self.compute.processes

    @property
    def is_main(self) -> bool:
        """Return whether this process is the one that writes."""
        return self.processes.is_main

    def of(self, experiment: Experiment) -> "RunContext":
        """Return the same data under another experiment, at its first seed."""
        return replace(self, experiment=experiment, seed=experiment.seeds[0])

    def fitted(self, experiment: Experiment) -> Experiment:
        """Return another experiment on the same data, with what depends on the training rows resolved."""
        return fit_to_rows(experiment, self.num_rows, pairs=_is_pairs(self.train))

    @property
    def fractions(self) -> tuple[float | None, ...]:
        """Return the encoders that heads are trained on; None is the encoder as given."""
        return self.experiment.finetune.fractions or (None,)

    @property
    def objective(self) -> Objective:
        """Return what a model of this task is to give for each window."""
        objective = objective_of(self.task.kind, self.task.labels)
        return objective._replace(is_masked=self.experiment.windows.mask_question, unit=self.unit)

    def shape_for(self, head: HeadConfig) -> StackShape:
        """Return the shape of the states that a head reads."""
        return self.shapes[self.pooling_of(head)]

    def pooling_of(self, head: HeadConfig) -> Pooling | None:
        """Return which one state per layer a head reads; None: those of all tokens."""
        return pooling_of(head, self.objective, self.experiment.states.chosen_pooling)

    def is_own_checkpoint(self) -> bool:
        """Return whether the encoder is an earlier run's on the same task, whose output layer goes on."""
        place = folder_of(self.experiment.encoder)
        if not (place / CONFIG).is_file():
            return False
        model = read_model_config(place)
        return self.objective.asks_as(model.objective) and model.labels == self.task.labels

    @property
    def extra_scores(self) -> tuple[str, ...]:
        """Name the caller's own scores."""
        return tuple(self.dev.extra_scores)

    @property
    def log(self) -> TrainingLog:
        """Return where the course of a training of this seed and fraction is told."""
        path = self.folder.training if self.is_main else None
        return TrainingLog(path, self.seed, self.fraction, self.callbacks)

    @property
    def chosen_on(self) -> Answering:
        """Return what weights are chosen on where the best are kept: the held-out examples or, without any, dev."""
        return self.held_out or self.dev

    @property
    def metric(self) -> str:
        """Return the task's main score."""
        return MAIN_SCORES[self.task.name]

    @property
    def watched_score(self) -> str:
        """Return the name that the main score has on what weights are chosen on."""
        return self.metric if self.held_out is None else f"held_out_{self.metric}"

    @property
    def folder(self) -> RunFolder:
        """Return where the results of this seed and fraction lie."""
        return folder_of_seed(self.out, self.seed, self.experiment.seeds, self.fraction)

    def head_windows(self) -> Sequence[Window]:
        """The windows that heads learn from: of whole questions, drawn by the seed, until the share is reached."""
        if (share := self.experiment.heads.data_fraction) == 1:
            return self.train
        counts = np.bincount([window.example for window in self.train])
        order = np.random.default_rng(seed_for(self.seed, "share")).permutation(len(counts))
        before = np.cumsum(counts[order]) - counts[order]
        drawn = set(order[before < share * len(self.train)].tolist())
        return [window for window in self.train if window.example in drawn]

    @property
    def contrast(self) -> Contrast | None:
        """Return what contrastive tuning compares; None: the encoder is tuned by the task's own loss."""
        return self.experiment.contrast

    def tuning_windows(self) -> Sequence[Window]:
        """The windows that the encoder is tuned on: those of train, or pairs of them."""
        if self.contrast is None:
            return self.train
        pairs = self.experiment.finetune.pairs_per_epoch
        return contrast_windows(self.train, self.contrast, pairs, seed_for(self.seed, "pairs"))

    def tuning_steps(self, config: FinetuneConfig) -> list[list[Rows]]:
        """Return which of these windows every step sees."""
        group = self.objective.group if self.contrast is None else GROUPS[self.contrast]
        return plan_steps(self.tuning_windows(), config, self.seed, group)

    def data(self) -> dict[str, DataFile]:
        """Describe the splits for a record."""
        held_out = {"held_out": self.held_out} if self.held_out is not None else {}
        asked = {"dev": self.dev, **held_out, **self.also}
        described = {name: _describe(each.split, each.windows) for name, each in asked.items()}
        train = _describe(self.task.train, self.train).model_copy(update={"near_misses": self.near_misses})
        return {"train": train, **described}

    def settings_fingerprint(self, stage: str, **more: object) -> Settings:
        """Name what decides a stage's result, beside the settings of the stage itself."""
        data, split = self.experiment.data, self.task.train
        apart = {"held_out"} if isinstance(data.held_out, str) else set()  # no part of what is learned from
        layout = data.model_dump(mode="json", exclude={"train", "dev", "extra_dev_sets", "on_bad"} | apart)
        source: Settings = {"name": split.name, "sha256": split.sha256, "on_bad": data.on_bad, **layout}
        return {
            "stage": stage,
            "task": self.task.name,
            "train": source,
            "initial_encoder": self.start_fingerprint,
            "windows": self.experiment.windows.model_dump(mode="json"),
            "seed": self.seed,
            "precision": self.compute.precision,
            **more,
        }

    def model_config(self, head: HeadConfig, encoder: str, is_path: bool, weights: str) -> ModelConfig:
        """Describe a head of this experiment for its MODEL_DIR."""
        pooling = self.pooling_of(head)
        shape = self.shapes[pooling]
        return ModelConfig(
            head=head,
            layers=shape.layers,
            state_layers=self.places[pooling],
            hidden=shape.hidden,
            pooling=self.experiment.states.chosen_pooling,
            encoder=encoder,
            encoder_is_path=is_path,
            encoder_fingerprint=weights,
            task=self.task.name,
            labels=self.task.labels,
            data=self.experiment.data.layout(),
            windows=self.experiment.windows,
            answers=self.experiment.answers,
        )


def prepare(
    experiment: Experiment,
    out: Path,
    progress: Progress,
    num_train: int | None = None,
    *,
    data: ExperimentData | None = None,
    extra_scores: Mapping[str, ExtraScore] | None = None,
) -> RunContext:
    """Read the data, load the encoder once to check it, and cut all windows, before anything expensive starts.

    With `num_train` only so many examples of train, spread evenly, are kept, and no split beside it and dev: enough to
    measure with. `data` are those of the experiment, where they are read already.
    """
    task, held_out, near_misses = data or read_data(experiment, progress)
    num_examples = len(task.train.examples)
    if num_train is not None:
        task, held_out = _sampled(task, num_train), None
    encoder = load_encoder(experiment.encoder)
    check_length(encoder, experiment.windows)
    how = Cutting(encoder.tokenizer, experiment.windows, progress=progress)
    train = task.kind.cut(task.train.examples, task.labels, how)
    num_rows = len(train) if num_train is None else num_examples
    objective = objective_of(task.kind, task.labels)
    experiment = _fitted(experiment, num_rows, encoder, objective, pairs=_is_pairs(train))
    layers, poolings = experiment.states.chosen_layers, (None, experiment.states.chosen_pooling)
    ask = partial(
        open_answering,
        task,
        tokenizer=encoder.tokenizer,
        windows=experiment.windows,
        answers=experiment.answers,
        extra_scores=extra_scores,
        progress=progress,
    )
    context = RunContext(
        experiment=experiment,
        out=out,
        task=task,
        train=train,
        num_rows=num_rows,
        dev=ask(task.dev),
        held_out=ask(held_out, part="held_out") if held_out is not None else None,
        also={name: ask(split, part=name) for name, split in task.also.items()},
        near_misses=near_misses,
        unit=unit_of(objective, train),
        start_fingerprint=fingerprint(encoder.model),
        shapes={each: shape_of_states(encoder, layers, pooling=each) for each in poolings},
        places={each: places_of_states(encoder, layers, pooling=each) for each in poolings},
        compute=choose_compute(experiment.device, experiment.precision),
        progress=progress,
        seed=experiment.seeds[0],
    )
    for head in experiment.heads.train:
        if isinstance(head.pooler, OwnPoolerConfig):  # somebody's own code is tried before anything expensive starts
            build_heads([head], context.shape_for(head), context.seed, objective, experiment.states.chosen_pooling)
    return context


def _is_pairs(windows: Sequence[Window]) -> bool:
    return all(window.context_at < len(window) for window in windows)


def _fitted(
    experiment: Experiment, num_rows: int, encoder: Encoder, objective: Objective, *, pairs: bool
) -> Experiment:
    """Resolve what depends on the training rows; refuse what does not go with these or with the encoder."""
    experiment = fit_to_rows(experiment, num_rows, pairs=pairs)
    if not pairs:
        _check_one_text(experiment)
    _check_direction(experiment, encoder, objective)
    return experiment


def _check_one_text(experiment: Experiment) -> None:
    """Refuse what compares the two texts of a row."""
    if experiment.states.pooling == "pair_difference":
        raise SettingsError("states.pooling: pair_difference needs two texts in every row; use mean for one")
    if experiment.contrast == "texts":
        raise SettingsError(
            "finetune.objective: contrastive draws the cosine of a row's two texts to its number; give two columns of "
            "text, or use objective: task"
        )


def _check_direction(experiment: Experiment, encoder: Encoder, objective: Objective) -> None:
    """Refuse to read a row's first token of an encoder that reads from left to right."""
    output = [experiment.output] if experiment.finetune.fractions else []
    pooling = experiment.states.chosen_pooling
    read = {pooling_of(head, objective, pooling) for head in (*output, *experiment.heads.train)}
    if getattr(encoder.model.config, "is_decoder", False) and "first" in read:
        raise SettingsError(
            f"encoder {encoder.name!r} reads from left to right, so its first token has seen no other; set "
            "states.pooling=last (or mean), or finetune.head=bilstm_last"
        )


def _sampled(task: Task, num_train: int) -> Task:
    examples = task.train.examples
    kept = tuple(examples[place] for place in spread(len(examples), num_train))
    return task._replace(train=replace(task.train, examples=kept), also={})


def check_length(encoder: Encoder, windows: WindowConfig) -> None:
    """Refuse windows that are longer than the encoder reads."""
    if windows.max_length > encoder.max_length:
        raise EncoderError(
            f"encoder {encoder.name!r} reads at most {encoder.max_length} tokens, windows.max_length is "
            f"{windows.max_length}; lower it"
        )


def _describe(split: Split[Any], windows: Sequence[Window]) -> DataFile:
    return DataFile(
        name=split.name,
        sha256=split.sha256,
        examples=len(split.examples),
        dropped=split.dropped,
        windows=len(windows),
    )
