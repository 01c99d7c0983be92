"""`RunRecord`: one model of one run, with its scores and costs; and `MistakesRecord`: what is worth reading of it.

First what all records share: where they came from, and how their files are read and written.
"""

import lzma
import math
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bertvision.errors import FolderError
from bertvision.files import read_json, write_json
from bertvision.manifest import changed_file, check_manifest
from bertvision.settings import Config
from bertvision.version import VERSION

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
Content = TypeVar("Content", bound=BaseModel)


class Provenance(Config):
    """Where a record came from."""

    commit: str | None  # of bertvision itself; None where it was installed without its repository
    dirty: bool | None
    device: str
    precision: str
    python: str
    versions: dict[str, str]


class Record(Config):
    """One JSON file about finished work."""

    format: Literal[1] = 1


def write_file(path: Path, record: Record) -> Path:
    """Write a record; the same record gives the same bytes."""
    write_json(path, record.model_dump(mode="json"))
    return path


def write_hashed(path: Path, record: Record) -> Path:
    """Write a record of a run folder, whose manifest keeps its hash."""
    with changed_file(path.parent, path.name, begin=True):
        return write_file(path, record)


def read_file(kind: type[Content], path: Path, what: str, advice: str = "") -> Content:
    """Read a record, or a list of them; say in one line what is wrong with a file that holds none.

    One that a manifest beside it knows has to be as it was written; records without one, such as copies, are read too.
    """
    if path.exists():
        check_manifest(path.parent, [path.name])
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise FolderError(f"{path}: no such file; is the folder a finished one?") from None
    except ValidationError as error:
        content = read_json(path)  # says what is wrong with a damaged file
        found = f" (format {content.get('format')})" if isinstance(content, dict) and "format" in content else ""
        raise FolderError(
            f"{path}: not {what} of this version{found}: {_first_problem(error)}{advice and f'; {advice}'}"
        ) from None


def read_packed(kind: type[Content], path: Path, what: str) -> list[Content]:
    """Read the records of a packed file: JSON lines, compressed by xz."""
    try:
        lines = lzma.decompress(path.read_bytes()).splitlines()
    except (lzma.LZMAError, EOFError) as error:
        raise FolderError(f"{path}: damaged ({error}), expected JSON lines packed by xz; copy it again") from None
    try:
        return [kind.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise FolderError(f"{path}: a line is not {what} of this version: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"`{place}`: {problem['msg']}"


def provenance(device: str, precision: str) -> Provenance:
    """Describe this machine and this code."""
    # A copy of the tree without its repository (another machine, say) is told its commit by the environment.
    given = os.environ.get("BERTVISION_COMMIT")
    commit, dirty = (given.removesuffix("-dirty"), given.endswith("-dirty")) if given else _commit()
    return Provenance(
        commit=commit,
        dirty=dirty,
        device=device,
        precision=precision,
        python=platform.python_version(),
        versions={"bertvision": VERSION, **_versions()},
    )


@cache
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


@cache  # what a process runs is the code as it was when it began; a run writes hundreds of records
def _commit() -> tuple[str | None, bool | None]:
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "HEAD")
    tracked = _git(here, "ls-files", "--error-unmatch", __file__)
    if commit is None or tracked is None:  # installed as a wheel, or below somebody else's repository
        return None, None
    return commit, bool(_git(here, "status", "--porcelain", "--untracked-files=no"))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


ResultKind = Literal["baseline", "encoder", "head", "control", "ensemble"]  # baseline: an answer that reads nothing
# The score that stands for a task: runs choose models by it, and reports lead with it. Of GLUE's tasks with two scores,
# the one that BERT's paper reports (Devlin et al. 2019, table 1).
MAIN_SCORES = {
    "squad1": "f1",
    "squad2": "f1",
    "answerability": "accuracy",
    "cola": "matthews",
    "sst2": "accuracy",
    "mrpc": "f1",
    "qqp": "f1",
    "stsb": "spearman",
    "mnli": "accuracy",
    "qnli": "accuracy",
    "rte": "accuracy",
    "wnli": "accuracy",
    "swag": "accuracy",
    "ner": "f1",
    "classification": "accuracy",
    "multilabel": "micro_f1",
    "regression": "pearson",
}
MISTAKES_FILE = "mistakes.json"
PACKED_RECORDS = "records.jsonl.xz"  # all records of an experiment in one file, as they lie in results/
Interval = tuple[float, float]


class Parameters(Config):
    """How many numbers a row's model has beside the encoder (for the encoder's own row: all of them)."""

    total: int  # weights and running statistics
    trainable: int
    encoder: int  # the encoder that it reads from, pooler included


class Seconds(Config):
    """Wall-clock seconds of the stages that made a row."""

    finetune: float  # up to this fraction, checkpoints not counted
    heads: float | None  # the pass that trained all heads of the experiment together; None for the encoder
    predict: float  # the pass over dev, all rows of this fraction together


class Inference(Config):
    """A row alone over all windows of dev: measured warm on a sample of them, and scaled by their tokens."""

    seconds: float  # in large batches, from tokens to logits
    latency: float  # seconds of one window by itself: the median
    operations: float  # floating-point operations of the forward passes, counted
    windows: int  # of dev


class Efficiency(Config):
    """What a row costs, measured in the same way for every row."""

    encoder_seconds: float  # tuning the encoder, its batches not counted
    heads_seconds: float  # the pass that trained all heads, the frozen encoder's part in it included
    data_seconds: float  # making the batches that the encoder was tuned on
    peak_process_bytes: int  # of the tuning
    peak_device_bytes: int | None  # of the tuning, on a GPU
    joules: float | None  # of the tuning, where the device has a meter
    ship_bytes: int  # what differs from the encoder that training started from, in float32
    inference: Inference | None = None  # with measure.inference


class DataFile(Config):
    """One split as it was read."""

    name: str
    sha256: str | None  # None for a data set from the hub
    examples: int
    dropped: int
    windows: int
    near_misses: dict[str, int] = {}  # of the questions, those that were made by rule, by rule


class Curves(Config):
    """What a row's scores depend on, at few enough points for a figure."""

    threshold: list[tuple[float, float, float]] = []  # null threshold (ascending), exact, F1
    reliability: dict[
        str, list[tuple[float, float, int]]
    ] = {}  # `before`, `after`: by bin, confidence, share right, count
    risk_coverage: list[tuple[float, float]] = []  # share answered (ascending), share wrong among them


class TrainingPoint(Config):
    """What training showed at one step; a record holds few enough of them for a figure."""

    step: int  # counted from 1
    epoch: float  # passes over the training rows so far
    loss: float | None  # mean over the steps since the last point; None where no step had a finite one
    score: float | None  # the task's main score on held-out rows (without `data.held_out`: on dev), where computed
    lr: float | None  # of the step; the largest where groups of weights have their own
    seconds: float  # of training so far


class FewerRows(Config):
    """What a row scores where it is fitted to fewer of the training rows."""

    rows: int  # that it is fitted to
    draws: int  # of so many rows, over which scores are averaged
    scores: dict[str, float]


# A layer's number (0: the embedding output), or the pooler's output, which heads of rows read before the layers.
State = int | Literal["pooled"]


def state_name(state: State) -> str:
    """Return how tables and figures call a state."""
    return state if isinstance(state, str) else f"layer {state}"


class RunRecord(Record):
    """One (row, fraction, seed) of an experiment: what was asked, what came out, what it cost."""

    experiment: str
    variant: str | None = None  # which of the experiment's variants, as its folder is called; None: it has none
    method: str | None = None  # that variant, whatever its learning rate
    task: str
    model: str  # `encoder`, a head's name, or an ensemble's name
    variant_of: str | None = None  # the head that this one tries another rate of
    kind: ResultKind
    position: int = 0  # among the rows of its fraction, as the experiment lists them
    fraction: float | None  # None where the encoder was used as given
    head_fraction: float | None = None  # of a head that was trained on another fraction's states (`transfer`)
    seed: int
    encoder_lr: float | None = None  # learning rate of the encoder's tuning; None where it was used as given
    lr: float | None = None  # of a head
    weight_decay: float | None = None  # of a head with one of its own
    scores: dict[str, float]  # after the last epoch
    extra_scores: tuple[str, ...] = ()  # of the caller's own, whose values are among the scores
    epoch_scores: list[dict[str, float]]  # scores after every epoch of head training; empty for encoder and ensembles
    training: list[TrainingPoint] = []  # in the order of steps; empty where no optimizer took steps
    intervals: dict[str, Interval] = {}  # of scores, 95%: exact for shares of right examples, others by resampling dev
    # Of its main score, 95%: how far the best single model of its fraction and seed lies above it on the same examples.
    behind_best: Interval | None = None  # None where one of the two has no score, and in older records
    fewer_rows: list[FewerRows] = []  # by their number; of regressions on an encoder as given
    curves: Curves | None = None  # None where answers have no probabilities
    confusions: dict[str, dict[str, int]] = {}  # by gold class and predicted class: rows of dev; of classes alone
    scatter: list[tuple[float, float]] = []  # true and predicted numbers of dev, at most 500; of numbers alone
    parameters: Parameters
    seconds: Seconds
    efficiency: Efficiency | None = None  # None where it was not measured, and of baselines
    layer_weights: list[float] | None = None  # of a head that weighs the layers
    weighted_states: list[State] | None = None  # what the weights are of; None: layers 0, 1, ...
    # Where a head took its states from, or fine-tuning those of frozen blocks: computed each time, or kept, and how.
    states: str = "live"
    # How fine-tuning took its steps: packed, bucketed or eager, and why not as graphs where that failed. Of encoders.
    step_mode: str | None = None
    schedule_horizon: float | None  # fraction that the fine-tuning schedule was planned for; None where it has none
    notes: list[str] = []
    data: dict[str, DataFile]
    encoder_fingerprint: str
    config: dict[str, Any]
    provenance: Provenance

    @property
    def run(self) -> str:
        """Return the name of the run: its experiment and, where there are several, its variant."""
        return self.experiment if self.variant is None else f"{self.experiment}-{self.variant}"

    @property
    def model_family(self) -> str:
        """Return the row's name whatever setting of a head it tries."""
        return self.variant_of or self.model


def record_path(folder: Path, row: str, fraction: float | None, seed: int) -> Path:
    """Name a record's file after what sets it apart in its experiment."""
    return folder / f"{row}-{fraction_name(fraction)}-seed{seed}.json"


def fraction_name(fraction: float | None) -> str:
    """Write a fraction as it stands in folder names and tables."""
    return "given" if fraction is None else f"{fraction:g}"


def tuned_for(fraction: float) -> str:
    """Write how long an encoder was tuned: `0.3 of an epoch`, `1 epoch`, `3 epochs`."""
    unit = "of an epoch" if fraction < 1 else "epoch" if fraction == 1 else "epochs"
    return f"{fraction:g} {unit}"


def write_record(folder: Path, record: RunRecord) -> Path:
    """Write a record into a folder of records."""
    return write_hashed(record_path(folder, record.model, record.fraction, record.seed), record)


def read_records(folder: str | Path) -> list[RunRecord]:
    """Read every record below a folder, in a fixed order."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FolderError(f"{folder}: no such folder; give a run's folder or its `records` folder")
    records = [record for record, _ in located_records(folder)]
    if not records:
        raise FolderError(f"{folder}: no records (*-seed*.json) in it; `bertvision run` writes them to OUT/records")
    return in_order(records)


def located_records(folder: Path) -> list[tuple[RunRecord, Path]]:
    """Read every record below a folder, each with the run folder that it is of."""
    alone = [(read_record(path), _run_of(path)) for path in record_paths(folder)]
    packs = sorted(folder.rglob(PACKED_RECORDS))
    packed = [
        (each, path.parent / (each.variant or ""))
        for path in packs
        for each in read_packed(RunRecord, path, "a record")
    ]
    return alone + packed


def _run_of(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "records" else path.parent


def record_paths(folder: Path) -> list[Path]:
    """List the records below a folder that have a file each, in a fixed order."""
    return sorted(path for path in folder.rglob("*-seed*.json") if not path.name.startswith("."))


def read_record(path: Path) -> RunRecord:
    """Read one record."""
    return read_file(RunRecord, path, "a record")


def main_score(record: RunRecord) -> float:
    """Return the score that stands for the record's task; one that has no value is beaten by any."""
    return record.scores.get(MAIN_SCORES.get(record.task, ""), -math.inf)


def silence_score(record: RunRecord) -> float | None:
    """Return what "no answer" to every question scores; None where each has an answer, and for other tasks."""
    scores = record.scores
    return 100 * scores["NoAns_total"] / scores["total"] if "NoAns_total" in scores else None


def is_best_silent(record: RunRecord) -> bool:
    """Whether no threshold beats "no answer" to every question; the official script calls the best one 0 then."""
    silence = silence_score(record)
    return silence is not None and record.scores.get("best_f1", math.inf) <= silence + 1e-9


def in_order(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Sort records by experiment, fraction and seed, then by kind (baseline, encoder, ...) as configured."""
    kinds = {kind: number for number, kind in enumerate(get_args(ResultKind))}

    def key(record: RunRecord) -> tuple[Any, ...]:
        fraction = -1.0 if record.fraction is None else record.fraction
        return (record.experiment, fraction, record.seed, kinds[record.kind], record.position, record.model)

    return sorted(records, key=key)


class Mistake(Config):
    """An example on which data and model differ."""

    split: str  # `dev` or `train`
    id: str
    texts: dict[str, str]  # each with what it is called; long ones are cut
    gold: str
    predicted: str
    probability: float | None  # of what is predicted; None where there is none


class MistakesRecord(Record):
    """What is worth reading of one (row, fraction, seed)."""

    experiment: str
    variant: str | None
    task: str
    model: str
    position: int  # as its record has it
    fraction: float | None
    seed: int
    examples: int  # of dev
    wrong: int | None  # of these; None where predictions are not right or wrong
    errors: list[Mistake]  # the worst first
    checked: dict[str, int]  # by split: how many examples were looked at for wrong labels
    suspects: dict[str, int]  # by split: how many of these look mislabelled
    mislabelled: list[Mistake]  # the likeliest first

    def is_of(self, record: RunRecord) -> bool:
        """Return whether it is about a record, also one that a report has given another name (`merge_variants`)."""
        own = (self.experiment, self.variant, self.task, self.fraction, self.seed, self.position)
        return own == (record.experiment, record.variant, record.task, record.fraction, record.seed, record.position)


def write_mistakes(folder: Path, mistakes: MistakesRecord) -> Path:
    """Write what is worth reading into a prediction folder."""
    return write_hashed(folder / MISTAKES_FILE, mistakes)


def read_mistakes(folder: Path) -> list[MistakesRecord]:
    """Read what is worth reading below a run folder; none where its predictions are gone."""
    paths = sorted(folder.rglob(f"predictions/*/*/{MISTAKES_FILE}"))
    return [read_file(MistakesRecord, path, "mistakes", "delete it and run again") for path in paths]
