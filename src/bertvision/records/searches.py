"""`SearchRecord`: all trials of one search, which one was the best on held-out rows, and what it scores on dev."""

from pathlib import Path
from typing import Any, Literal

from bertvision.records.record import Provenance, Record, read_file, write_hashed
from bertvision.records.runs import DataFile
from bertvision.settings import Config

SEARCH_FILE = "search.json"
TrialState = Literal["complete", "pruned"]


class SearchTrial(Config):
    """One point of the space that was tried."""

    number: int
    state: TrialState
    score: float | None  # the main score on held-out rows, of weights as `run` would keep them; None: it diverged
    settings: dict[str, Any]
    scores: list[float]  # after each epoch
    seconds: float  # of training, together with those of the same group
    group: int  # the first trial of those that learned from the same passes
    note: str = ""  # why it ended early


class SearchRecord(Record):
    """A search: what was asked, every trial, the best one, and how much each parameter matters."""

    experiment: str
    task: str
    target: Literal["heads", "finetune"]
    metric: str
    sampler: str
    space: dict[str, Any]
    trials: list[SearchTrial]
    best: int  # the number of a trial
    dev_scores: dict[str, float]  # of the best trial alone
    dev_reads: int  # how often the dev set was read: once, unless the search went on afterwards and found a better one
    importances: dict[str, float] = {}  # share of the variance of scores, by parameter; nothing where trials are few
    data: dict[str, DataFile]
    config: dict[str, Any]  # the experiment, with its `search`
    provenance: Provenance

    @property
    def best_trial(self) -> SearchTrial:
        """Return the best trial."""
        return next(trial for trial in self.trials if trial.number == self.best)


def write_search_record(folder: Path, record: SearchRecord) -> Path:
    """Write a search's record into its folder."""
    return write_hashed(folder / SEARCH_FILE, record)


def read_search_record(folder: Path) -> SearchRecord:
    """Read a search's record."""
    return read_file(SearchRecord, folder / SEARCH_FILE, "the record of a search")
