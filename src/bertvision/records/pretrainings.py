"""`PretrainingRecord`: one pre-training, with what it read, what it costs and what it can predict."""

from pathlib import Path
from typing import Any

from bertvision.records.record import Provenance, Record, read_file, write_hashed
from bertvision.records.runs import TrainingPoint
from bertvision.settings import Config

PRETRAINING_FILE = "record.json"


class HeldOutLoss(Config):
    """What an encoder predicts in documents that it was not trained on."""

    words: float  # mean loss of a predicted word, in nats
    perplexity: float  # its exponential, as in table 6 of BERT's paper
    pairs: float | None  # mean loss of "does the second text follow"; None where that is not predicted
    pairs_accuracy: float | None  # share of the pairs


class TextSize(Config):
    """How much text there is."""

    documents: int
    tokens: int


class PretrainingRecord(Record):
    """A finished pre-training."""

    name: str
    config: dict[str, Any]
    parameters: int  # of the encoder and what predicts from it
    train: TextSize
    held_out: TextSize | None
    steps: int
    tokens: int  # that were read, special ones included
    seconds: float  # of training, evaluations not counted
    tokens_per_second: float
    operations: float  # of training, padding not counted
    peak_fraction: float | None  # None where the device's peak is not known
    loss: HeldOutLoss | None  # None where no document was held out
    training: list[TrainingPoint]  # a point's score is the held-out loss of words
    provenance: Provenance


def write_pretraining(folder: Path, record: PretrainingRecord) -> Path:
    """Write the record of a pre-training into its folder."""
    return write_hashed(folder / PRETRAINING_FILE, record)


def read_pretraining_record(folder: Path) -> PretrainingRecord:
    """Read what `write_pretraining` wrote."""
    return read_file(PretrainingRecord, folder / PRETRAINING_FILE, "a pre-training's record")
