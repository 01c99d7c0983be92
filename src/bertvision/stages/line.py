"""What all stages of one experiment share, read and tokenised once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.encoder.encode import shape_of_states
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.errors import EncoderError
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
from bertvision.tasks.squad import read_task
from bertvision.tasks.task import Question, Split, Task
from bertvision.training.checkpoint import fingerprint
from bertvision.training.device import Compute, choose_compute


@dataclass(frozen=True)
class Line:
    """An experiment with its data ready and its run folder known."""

    experiment: Experiment
    out: Path
    task: Task
    train: Sequence[Window]
    dev: Sequence[Window]
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

    def data(self) -> dict[str, DataFile]:
        """Describe both splits for a record."""
        return {"train": _describe(self.task.train, self.train), "dev": _describe(self.task.dev, self.dev)}

    def made_by(self, stage: str, seed: int, **more: object) -> Settings:
        """Name what decides a stage's result, beside the settings of the stage itself."""
        source = {"name": self.task.train.name, "sha256": self.task.train.sha256, "on_bad": self.experiment.data.on_bad}
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
    encoder = load_encoder(experiment.encoder)
    check_length(encoder, experiment.windows)
    shape = shape_of_states(encoder, experiment.states.chosen_layers)
    train = cut_windows(task.train.examples, encoder.tokenizer, experiment.windows, progress=progress)
    dev = cut_windows(task.dev.examples, encoder.tokenizer, experiment.windows, labelled=False, progress=progress)
    paper = paper_gold(experiment.answers, dev, task.dev.examples, encoder.tokenizer)
    compute = choose_compute(experiment.device, experiment.precision)
    start = fingerprint(encoder.model)
    return Line(experiment, out, task, train, dev, paper, start, shape, compute, progress)


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
