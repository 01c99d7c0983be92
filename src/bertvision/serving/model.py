"""What readers, classifiers and taggers share: the model behind them, its calibration, texts that go in, saving.

No torch or transformers in here.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Split
from bertvision.errors import DataError, FolderError, SettingsError, reason_of
from bertvision.files import check_folder, given_folder, write_text
from bertvision.hub import CARD, HUB_ID, hub_problem
from bertvision.kinds.kind import Answering, Kind
from bertvision.model_config import Calibration, UseConfig, read_calibration_file
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import DecisionRule
from bertvision.progress import SILENT, Progress
from bertvision.records import RunRecord, read_record
from bertvision.run_folder import folder_of_record, parse_run_path
from bertvision.settings import Settings
from bertvision.tasks import TASKS, Task, open_answering
from bertvision.windows.plan import lengths_of
from bertvision.windows.tokens import Tokenizer
from bertvision.windows.window import Window

Pair = tuple[str, str]
PLACE = "THIS_FOLDER_OR_HUB_ID"  # in a card whose model may lie anywhere


class WindowParts(NamedTuple):
    """What each part of a head adds to the start and end logits of a window's tokens; their sum is the logit."""

    names: tuple[str, ...]
    parts: npt.NDArray[np.float32]  # [part, token, start and end]


class Engine(ABC):
    """What runs a model over windows: torch, onnxruntime, or a queue in front of one of them."""

    @abstractmethod
    def logits(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[Logits]:
        """Return the logits of each window, [token, column] or [1, column]; a batch has at most so many tokens."""

    @abstractmethod
    def parts(self, windows: Sequence[Window], tokens: int, progress: Progress = SILENT) -> list[WindowParts]:
        """Take the logits of each window apart by layers, in a pass of its own; see `check_parts`."""

    @abstractmethod
    def check_parts(self) -> None:
        """Refuse a model whose logits cannot be taken apart."""

    @property
    @abstractmethod
    def settings_fingerprint(self) -> Settings:
        """Return what decides the logits, beside the encoder."""

    @property
    @abstractmethod
    def loaded_with(self) -> Settings:
        """Return the options of `load` that it was loaded with."""

    @property
    @abstractmethod
    def is_on_gpu(self) -> bool:
        """Return whether a GPU runs it."""

    @abstractmethod
    def write(self, folder: Path, calibration: Calibration, records: Sequence[RunRecord] | None) -> None:
        """Write all of the model into a folder, as `Saveable.save_pretrained` promises."""


@dataclass(frozen=True)
class ServedModel:
    """A loaded model: where it came from, how it is used, and what runs it."""

    folder: Path
    config: UseConfig
    tokenizer: Tokenizer
    calibration: Calibration
    engine: Engine

    def logits(self, windows: Sequence[Window], progress: Progress = SILENT) -> Logits:
        """Run the model over windows: [token, column] or [window, column]."""
        return np.concatenate(self.engine.logits(windows, self.config.answers.batch_tokens, progress))

    def parts(self, windows: Sequence[Window], progress: Progress = SILENT) -> list[WindowParts]:
        """Take the logits of windows apart by layers; `engine.check_parts` says whether that is possible."""
        return self.engine.parts(windows, self.config.answers.batch_tokens, progress)

    def changed(self, **settings: Any) -> "ServedModel":  # noqa: ANN401 (of the config)
        """Return the same model with some of its settings changed."""
        return replace(self, config=self.config.model_copy(update=settings))

    @property
    def kind(self) -> Kind:
        """Return what is asked of a text."""
        return TASKS[self.config.task].kind

    def rule(self, null_threshold: float | None = None) -> DecisionRule:
        """Return by what a reader decides: a null threshold that was asked for, or the one that was fitted."""
        fitted = self.calibration
        asked = fitted.threshold if null_threshold is None else null_threshold
        return DecisionRule(asked, fitted.threshold, fitted.temperature)

    def answering(self, examples: Sequence[Any], progress: Progress = SILENT, part: str = "") -> Answering:
        """Cut examples, and get them ready to be answered; `part` as for `open_answering`."""
        split: Split[Any] = Split("given", tuple(examples), 0, None)
        config = self.config
        task = Task(config.task, split, split, config.labels)
        return open_answering(task, split, self.tokenizer, config.windows, config.answers, part=part, progress=progress)


class Saveable:
    """What can be saved: anything that serves a model."""

    served: ServedModel

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the model lies and how it was loaded, not its weights: unpickling loads it anew."""
        from bertvision.serving.load import load_again  # which loads what is saved here

        return load_again, (str(self.served.folder.resolve()), self.served.engine.loaded_with)

    def __repr__(self) -> str:
        """Say what it is in one line: a dataclass would print every module of the encoder."""
        return f"{type(self).__name__}(task={self.served.config.task!r}, folder={str(self.served.folder)!r})"

    def save_pretrained(self, folder: str | Path, records: Sequence[RunRecord] | None = None) -> Path:
        """Write encoder, head, settings, calibration and model card into a new folder that `bertvision.load` reads.

        The card shows the scores of `records`; where none are given, those of the run that the model lies in.
        """
        place = check_folder(Path(folder))
        if place.is_dir() and any(place.iterdir()):
            raise FolderError(f"{place}: is not empty; choose a new folder")
        with given_folder(place) as beside:
            self.served.engine.write(beside, self.served.calibration, records)
        return place

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        records: Sequence[RunRecord] | None = None,
        client: Any = None,  # noqa: ANN401 (huggingface_hub.HfApi, or something that has its two methods)
    ) -> str:
        """Save the model and upload it, with the user's own token; return the address of the commit."""
        _check_repository(repo_id)
        client = _hub_client(repo_id) if client is None else client
        with tempfile.TemporaryDirectory() as folder:
            place = self._save_for_hub(Path(folder), repo_id, records)
            try:
                client.create_repo(repo_id, private=private, exist_ok=True)
                done = client.upload_folder(
                    repo_id=repo_id, folder_path=str(place), commit_message="A model of bertvision"
                )
            except Exception as error:  # the hub's own, or without a network any of its HTTP library
                raise _refused(repo_id, reason_of(error)) from None
        return str(done)

    def _save_for_hub(self, folder: Path, repo_id: str, records: Sequence[RunRecord] | None) -> Path:
        """Save the model with a card that names its place on the hub."""
        place = self.save_pretrained(folder / "model", records)
        card = place / CARD
        if card.is_file():
            write_text(card, card.read_text(encoding="utf-8").replace(PLACE, repo_id))
        return place


def split_logits(logits: Logits, windows: Sequence[Window], *, is_per_token: bool) -> list[Logits]:
    """Split the logits of all windows, [token, column] or [window, column], into those of each."""
    counts = lengths_of(windows) if is_per_token else np.ones(len(windows), np.int64)
    return np.split(logits, np.cumsum(counts)[:-1])


def _check_repository(repo_id: str) -> None:
    if not HUB_ID.fullmatch(repo_id):
        raise SettingsError(f"{repo_id!r} is no place on the hub; give OWNER/NAME, such as you/weir-reader")


def _hub_client(repo_id: str) -> Any:  # noqa: ANN401 (huggingface_hub.HfApi)
    """Return the hub's client, or say at once why it could not publish anything."""
    from huggingface_hub import HfApi, get_token  # comes with transformers

    if (problem := hub_problem()) is not None:
        raise _refused(repo_id, problem)
    if get_token() is None:
        raise _refused(repo_id, "there is no token; log in with `hf auth login`, or set HF_TOKEN")
    return HfApi()


def _refused(repo_id: str, reason: str) -> FolderError:
    return FolderError(f"{repo_id}: the hub did not take it ({reason}); `save_pretrained` writes a folder")


def read_calibration(folder: Path, config: UseConfig) -> Calibration:
    """Read a MODEL_DIR's calibration; without held-out questions, its experiment's threshold and temperature 1."""
    if (written := read_calibration_file(folder)) is not None:
        return written
    record = find_record(folder, config)
    if record is None or "tuned_threshold" not in record.scores:
        return Calibration(threshold=config.answers.null_threshold)
    scores = record.scores
    if "reader_tuned_threshold" not in scores:  # `answers.decoders` had no `reader`
        return Calibration(threshold=scores["tuned_threshold"], temperature=scores["temperature"])
    return Calibration(
        threshold=scores["reader_tuned_threshold"],
        temperature=scores["reader_temperature"],
        official_threshold=scores["tuned_threshold"],
    )


def find_record(folder: Path, config: UseConfig) -> RunRecord | None:
    """Find the record of a MODEL_DIR that lies in its run folder; None where it was copied out of it."""
    place = parse_run_path(folder.resolve())
    if place is None or not place.is_model:
        return None
    for record in map(read_record, place.record_paths):
        is_own = record.encoder_fingerprint == config.encoder_fingerprint
        if is_own and folder_of_record(place.out, record).root == place.root:
            return record
    return None


def check_text(what: str, value: Any) -> str:  # noqa: ANN401 (checked here)
    """Return a text if it is one and holds more than blanks."""
    if not isinstance(value, str):
        raise DataError(f"{what}: expected a text, got {type(value).__name__}; give a str")
    if not value.strip():
        raise DataError(f"{what}: is {'blank' if value else 'empty'}; write something there")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{what}: character {error.start} is U+{ord(value[error.start]):04X}, half of a pair and no letter; "
            "decode the text as UTF-8 again, with errors='replace' if need be"
        ) from None
    return value


def list_texts(what: str, value: Any) -> tuple[list[str], bool]:  # noqa: ANN401 (checked here)
    """Return one text or several as a list, and tell whether it was one."""
    if isinstance(value, list | tuple):
        return [check_text(f"{what} {place}", each) for place, each in enumerate(value)], False
    return [check_text(what, value)], True


def pair_up(first: Any, second: Any, names: Pair = ("question", "context")) -> tuple[list[Pair], bool]:  # noqa: ANN401
    """Pair texts: two lists of one length one by one, one text with every text of a list; tell whether it is one pair.

    Places in error messages count from 0, as in Python.
    """
    firsts, is_one = list_texts(names[0], first)
    seconds, is_other_one = list_texts(names[1], second)
    if is_one and not is_other_one:
        firsts *= len(seconds)
    if is_other_one and not is_one:
        seconds *= len(firsts)
    if len(firsts) != len(seconds):
        raise DataError(
            f"{len(firsts)} {names[0]}s and {len(seconds)} {names[1]}s; give as many of one as of the other, or one "
            f"{names[1]} for all"
        )
    return list(zip(firsts, seconds, strict=True)), is_one and is_other_one
