"""What all stages of one experiment share, read and tokenised once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.errors import EncoderError, SettingsError
from bertvision.experiment import Experiment
from bertvision.features.windows import Window, WindowConfig, cut_windows
from bertvision.heads.build import HeadConfig
from bertvision.progress import Progress
from bertvision.records import DataFile
from bertvision.run_folder import RunFolder, folder_of_seed
from bertvision.settings import Settings
from bertvision.shapes import StackShape
from bertvision.stages.model_folder import CONFIG, ModelConfig
from bertvision.stages.paper_scores import PaperGold, paper_gold
from bertvision.tasks.held_out import hold_out
from bertvision.tasks.read import read_task
from bertvision.tasks.task import Question, Split, Task
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import Compute, choose_compute
from bertvision.training.random_stream import seed_for


class HeldOut(NamedTuple):
    """The part of the training data that nothing is trained on."""

    split: Split[Question]
    windows: Sequence[Window]


@dataclass(frozen=True)
class Line:
    """An experiment with its data ready and its run folder known."""

    experiment: Experiment
    out: Path
    task: Task
    train: Sequence[Window]
    dev: Sequence[Window]
    held_out: HeldOut | None  # None where `data.held_out` is 0
    paper: PaperGold | None  # of dev; None where `answers.decoders` does not ask for paper-v1
    start_fingerprint: str  # of the encoder that fine-tuning starts from
    shape: StackShape  # of the states that heads read
    compute: Compute
    progress: Progress

    @property
    def fractions(self) -> tuple[float | None, ...]:
        """Give the encoders that heads are trained on; None is the encoder as given."""
        return self.experiment.finetune.fractions or (None,)

    def folder(self, seed: int) -> RunFolder:
        """Give a seed's part of the run folder."""
        return folder_of_seed(self.out, seed, self.experiment.seeds)

    def head_windows(self, seed: int) -> Sequence[Window]:
        """Give the windows that heads learn from: of whole questions, drawn by the seed, until the share is reached."""
        if (share := self.experiment.heads.share) == 1:
            return self.train
        counts = np.bincount([window.example for window in self.train])
        order = np.random.default_rng(seed_for(seed, "share")).permutation(len(counts))
        before = np.cumsum(counts[order]) - counts[order]
        drawn = set(order[before < share * len(self.train)].tolist())
        return [window for window in self.train if window.example in drawn]

    def data(self) -> dict[str, DataFile]:
        """Describe the splits for a record."""
        splits = {"train": _describe(self.task.train, self.train), "dev": _describe(self.task.dev, self.dev)}
        return splits | ({"held_out": _describe(*self.held_out)} if self.held_out is not None else {})

    def made_by(self, stage: str, seed: int, **more: object) -> Settings:
        """Name what decides a stage's result, beside the settings of the stage itself."""
        data, split = self.experiment.data, self.task.train
        source: Settings = {"name": split.name, "sha256": split.sha256, "on_bad": data.on_bad}
        if data.held_out:  # folders that were made when nothing was held out do not name it
            source["held_out"] = data.held_out
        return {
            "stage": stage,
            "task": self.task.name,
            "train": source,
            "start": self.start_fingerprint,
            "windows": self.experiment.windows.model_dump(mode="json"),
            "seed": seed,
            "precision": self.compute.precision,
            **more,
        }

    def model_config(self, head: HeadConfig, encoder: str, is_path: bool, weights: str) -> ModelConfig:
        """Describe a head of this experiment for its MODEL_DIR."""
        return ModelConfig(
            head=head,
            layers=self.shape.layers,
            state_layers=self.experiment.states.chosen_layers,
            hidden=self.shape.hidden,
            encoder=encoder,
            encoder_is_path=is_path,
            encoder_fingerprint=weights,
            task=self.task.name,
            windows=self.experiment.windows,
            answers=self.experiment.answers,
        )


def prepare(experiment: Experiment, out: Path, progress: Progress) -> Line:
    """Read the data, load the encoder once to check it, and cut all windows, before anything expensive starts."""
    task = read_task(experiment.task, experiment.data)
    for split in (task.train, task.dev):
        if split.dropped:
            progress.say(f"{split.name}: {split.dropped} bad questions left out, {len(split.examples)} kept")
    task, held_out = _held_out(task, experiment.data.held_out)
    encoder = load_encoder(experiment.encoder)
    check_length(encoder, experiment.windows)
    shape = shape_of_states(encoder, experiment.states.chosen_layers)
    cut = partial(cut_windows, tokenizer=encoder.tokenizer, config=experiment.windows, progress=progress)
    train, dev = cut(task.train.examples), cut(task.dev.examples, labelled=False)
    held = HeldOut(held_out, cut(held_out.examples, labelled=False)) if held_out is not None else None
    paper = paper_gold(experiment.answers, dev, task.dev.examples, encoder.tokenizer)
    compute = choose_compute(experiment.device, experiment.precision)
    start = fingerprint(encoder.model)
    return Line(experiment, out, task, train, dev, held, paper, start, shape, compute, progress)


def _held_out(task: Task, share: float) -> tuple[Task, Split[Question] | None]:
    if share == 0:
        return task, None
    if task.kind != "span":
        raise SettingsError(f"data.held_out is for questions and {task.name} has none; set it to 0")
    train, held_out = hold_out(task.train, share)
    return task._replace(train=train), held_out


def check_length(encoder: Encoder, windows: WindowConfig) -> None:
    """Refuse windows that are longer than the encoder reads."""
    if windows.max_length > encoder.max_length:
        raise EncoderError(
            f"encoder {encoder.name!r} reads at most {encoder.max_length} tokens, windows.max_length is "
            f"{windows.max_length}; lower it"
        )


def is_checkpoint(encoder: str) -> bool:
    """Tell whether an encoder is an earlier run's, with an output layer of its own."""
    return (Path(encoder) / CONFIG).is_file()


def _describe(split: Split[Question], windows: Sequence[Window]) -> DataFile:
    return DataFile(
        name=split.name,
        sha256=split.sha256,
        questions=len(split.examples),
        dropped=split.dropped,
        windows=len(windows),
    )
