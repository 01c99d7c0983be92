"""Anybody's predictions and a gold file -> official scores; where the model is right, and why not; needs no torch.

What predictions are of and are judged by comes first: their run's task, layout of tables and gold file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.example import DataConfig, TaskName
from bertvision.data.sources import parse_source
from bertvision.data.split import hold_out
from bertvision.data.squad import Need
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.files import exists, sha256_of
from bertvision.kinds.kind import Breakdown, Golds
from bertvision.model_config import best_model, better_than_models, refuse_without_result
from bertvision.predictions.files import PREDICTIONS, PROBABILITIES, read_beside, read_values
from bertvision.records import DataFile, RunRecord, choose_model, read_record, read_records
from bertvision.run_folder import RunFolder, folder_of_record, parse_run_path
from bertvision.scoring.disagreements import Disagreement, Outcomes, outcome_section, to_texts
from bertvision.scoring.squad import Scores
from bertvision.settings import Config, Settings, merge, validate
from bertvision.tables import Page
from bertvision.tasks import TASKS, read_labelled, read_task, task_name

GIVE_GOLD = "give `gold`, the file with the answers"


class GoldConfig(Config):
    """What may be set when predictions are judged: how the gold file is laid out."""

    data: DataConfig = DataConfig()


class AskedFile(NamedTuple):
    """A file's examples, and whether every one of them says what is right."""

    golds: Golds
    has_golds: bool
    dropped: int = 0  # bad examples that were left out
    first_bad: str = ""  # what is wrong with the first of them

    @property
    def questions(self) -> Sequence[Any]:
        """The examples."""
        return self.golds.examples

    def can_be_scored(self, predictions: Sequence[Any]) -> bool:
        """Whether predictions for its examples can be scored."""
        return self.has_golds and self.golds.info.kind.can_score(self.golds.examples, predictions)


def read_golds(name: TaskName, gold: str, data: DataConfig, predictions: Sequence[Path] = ()) -> Golds:
    """Read the gold examples; own data may be predicted to have labels of train that no gold row has."""
    values = [value for path in predictions for value in read_values(path).values()] if _is_open(name, data) else []
    return _read(name, gold, data, (), values).golds


def read_asked(
    name: TaskName,
    source: str,
    data: DataConfig,
    predictions: Sequence[Path] = (),
    labels: tuple[str, ...] = (),
    *,
    can_drop: bool = False,
) -> AskedFile:
    """Read a file that may or may not say what is right; its labels are all that the predictions know.

    With `can_drop`, errors advise to leave bad examples out.
    """
    values = [label for path in predictions for label in _known_labels(path)] if _is_open(name, data) else []
    try:
        return _read(name, source, data, labels, values)
    except DataError:  # either some examples have no labels, or the file is bad, which the second reading will say
        return _read(name, source, data, labels, values, need="optional", can_drop=can_drop)


def read_questions(data: str) -> AskedFile:
    """Read a SQuAD file's questions with its answers, where it has them."""
    return read_asked("squad2", data, DataConfig())


def _is_open(name: TaskName, data: DataConfig) -> bool:
    """Whether labels are only those that files happen to hold, not those that settings or columns name."""
    has_columns = data.columns is not None and isinstance(data.columns.label, tuple)
    return TASKS[name].kind.names_labels and not data.labels and not TASKS[name].labels and not has_columns


def _known_labels(path: Path) -> list[Any]:
    """Return what was predicted, and of what there are probabilities."""
    shares = read_beside(path, PROBABILITIES).values()
    return [*read_values(path).values(), *(label for each in shares if isinstance(each, dict) for label in each)]


def _read(
    name: TaskName,
    source: str,
    data: DataConfig,
    labels: tuple[str, ...],
    values: Sequence[Any],
    need: Need = "texts",
    can_drop: bool = False,
) -> AskedFile:
    found = read_labelled(name, source, data, labels, need=need, can_drop=can_drop)
    if more := sorted(TASKS[name].kind.further_labels(values) - set(found.labels)) if not labels else []:
        found = read_labelled(name, source, data, (*found.labels, *more), need=need, can_drop=can_drop)
    golds = Golds(name, TASKS[name], found.split.examples, found.labels)
    return AskedFile(golds, need != "optional", found.split.dropped, found.split.first_bad)


class RunPlace(NamedTuple):
    """Where in a run a prediction folder lies."""

    out: Path
    record: RunRecord
    part: str  # a further split, such as `mismatched`
    is_held_out: bool


class AskedRun(NamedTuple):
    """What predictions are of."""

    paths: tuple[Path, ...]
    task: TaskName
    data: DataConfig
    place: RunPlace | None  # None where they lie in no run folder

    def read_golds(self, gold: str | None) -> Golds:
        """Read a gold file, by default the one that the run was scored on."""
        if gold is not None:
            return read_golds(self.task, gold, self.data, self.paths)
        if self.place is None:
            if missing := next((path for path in self.paths if not path.exists()), None):
                raise FolderError(f"{missing}: no such file or folder; give a run folder, or predictions")
            raise SettingsError(f"{self.paths[0]}: lies in no run folder, which would name its file; {GIVE_GOLD}")
        if self.place.is_held_out:
            return self._read_held_out(self.place)
        if self.data.folds is not None:
            task = read_task(self.task, self.data)
            return Golds(self.task, task.info, task.dev.examples, task.labels)
        source = self.data.extra_dev_sets[self.place.part] if self.place.part else self.data.dev
        return self._read_file(source, self.place.record.data.get(self.place.part or "dev"))

    def _read_held_out(self, place: RunPlace) -> Golds:
        """Read what nothing was trained on: questions from the run folder, which has others by their ids alone."""
        held_out = self.data.held_out
        if TASKS[self.task].kind.asks_questions:
            return read_golds(self.task, str(RunFolder(place.out, place.out).held_out), self.data, self.paths)
        if isinstance(held_out, str):
            return self._read_file(held_out, place.record.data.get("held_out"))
        task = read_task(self.task, self.data)
        return Golds(self.task, task.info, hold_out(task.train, held_out)[1].examples, task.labels)

    def _read_file(self, source: str, before: DataFile | None) -> Golds:
        path = Path(parse_source(source).whole)
        if exists(str(path)) and before is not None and before.sha256 not in (None, sha256_of(path)):
            raise DataError(f"{path}: is no longer the file that the run was scored on; {GIVE_GOLD}")
        try:
            return read_golds(self.task, source, self.data, self.paths)
        except DataError as error:
            if str(error).startswith(tuple(map(str, self.paths))):  # of predictions, which are read beside it
                raise
            raise DataError(f"{error} (the file that the run was scored on; or {GIVE_GOLD})") from None


def find_asked(paths: Sequence[str | Path], gold: str | None, task: str | None, settings: Settings) -> AskedRun:
    """Find what predictions are of: what is given or, else, what their run says; a run folder is its best model's."""
    folders = tuple(find_predictions(Path(path)) for path in paths)
    places = [place for place in map(_find_place, folders) if place is not None]
    if len(tasks := {place.record.task for place in places}) > 1 and task is None:
        raise SettingsError(f"the predictions are of different tasks, {' and '.join(sorted(tasks))}; give `task`")
    name = task_name(task or next(iter(tasks), "squad2"))
    place = next((each for each in places if each.record.task == name), None)
    own = {} if place is None else dict(place.record.config.get("data", {}))
    if gold is not None:
        own.pop("encoding", None)  # of the run's own files
    data = validate(GoldConfig, merge({"data": own}, settings), "settings").data
    return AskedRun(folders, name, data, place)


def find_predictions(path: Path) -> Path:
    """Return the predictions of dev by a run folder's best model or by a model of a run, or else the path itself."""
    if (path / PREDICTIONS).exists():
        return path
    if not (path / "records").is_dir():
        refuse_without_result(path)
        return _predictions_by(path) or path
    records = [each for each in read_records(path / "records") if (_predictions_of(path, each) / PREDICTIONS).is_file()]
    if not records:
        raise FolderError(f"{path}: its run left no predictions; give a folder that holds {PREDICTIONS}")
    if better_than_models(path, records) is None and (found := _predictions_by(best_model(path))) is not None:
        return found  # of equal results the one that `load` and `predict` take
    return _predictions_of(path, choose_model([[each] for each in records]).best[0])


def _predictions_by(model: Path) -> Path | None:
    """Return the predictions by a model of a run, ROOT/heads/FRACTION/HEAD or ROOT/encoder/FRACTION."""
    place = parse_run_path(model)
    if place is None or not place.is_model:
        return None
    return place.predictions if (place.predictions / PREDICTIONS).is_file() else None


def _predictions_of(out: Path, record: RunRecord) -> Path:
    return folder_of_record(out, record).predictions(record.model)


def _find_place(path: Path) -> RunPlace | None:
    """Find where in a run folder predictions lie: OUT[/seeds/SEED]/predictions/FRACTION/ROW[/PART]."""
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    place = parse_run_path(folder)
    if place is None or place.is_model or not place.record_paths:
        return None
    record = read_record(place.record_paths[0])
    return RunPlace(place.out, record, place.part, place.is_held_out)


@dataclass(frozen=True)
class Analysis:
    """One model, or two, taken apart."""

    names: dict[str, str]  # the folders behind A and B
    golds: Golds
    breakdown: Breakdown
    outcomes: dict[str, Outcomes] | None  # None without a second model, and where predictions are not right or wrong
    disagreements: list[Disagreement]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        against = {
            "outcomes": {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None,
            **self.breakdown.against,
            "disagreements": [each.plain for each in self.disagreements],
        }
        return {"models": self.names, **self.breakdown.plain, "against": against if "B" in self.names else None}

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        kind, names = self.golds.info.kind, (f"{model}: {name}" for model, name in self.names.items())
        outcomes = [outcome_section(self.outcomes, "", kind.right, kind.nouns)] if self.outcomes else []
        return Page(
            (f"{len(self.golds.examples):,} {kind.nouns}", *names),
            [*self.breakdown.sections, *outcomes, *self.breakdown.against_sections],
            to_texts(self.disagreements),
        )


def analyze_folder(
    folder: str | Path,
    gold: str | None = None,
    against: str | Path | None = None,
    disagreements: int = 10,
    task: str | None = None,
    settings: Settings | None = None,
) -> Analysis:
    """Take a model's predictions apart, and set them against another's where one is given.

    Those of a run, or a run folder (its best model's), say what they are of; `gold` is by default the run's dev file.
    """
    asked = find_asked([folder] if against is None else [folder, against], gold, task, settings or {})
    golds, kind, paths = asked.read_golds(gold), TASKS[asked.task].kind, dict(zip("AB", asked.paths, strict=False))
    models = {model: kind.read_predictions(path, golds, whole=True) for model, path in paths.items()}
    names, found = {model: str(path) for model, path in paths.items()}, kind.break_down(golds, models)
    if "B" not in models:
        return Analysis(names, golds, found, None, [])
    both = (golds, models["A"], models["B"])
    return Analysis(names, golds, found, kind.outcomes(*both), kind.disagreements(*both, disagreements))


class Scored(NamedTuple):
    """The scores, and what the user should know beside them."""

    scores: Scores
    note: str = ""


def score_file(
    task: str | None,
    gold: str | None,
    predictions: str | Path,
    null_odds: str | Path | None = None,
    na_prob_thresh: float = 1.0,
    settings: Settings | None = None,
) -> Scored:
    """Score predictions as the task's official script would; those of a run need neither task nor gold file."""
    asked = find_asked([predictions], gold, task, settings or {})
    kind, odds = TASKS[asked.task].kind, None if null_odds is None else Path(null_odds)
    kind.check_null_odds(asked.task, odds)
    return Scored(*kind.score_file(asked.read_golds(gold), asked.paths[0], odds, na_prob_thresh))
