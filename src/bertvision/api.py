"""`train`: a file of texts and labels, or of questions -> models with their scores, in one call."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from bertvision.data.example import Column
from bertvision.errors import SettingsError
from bertvision.experiment import Experiment, build_experiment
from bertvision.files import check_folder
from bertvision.heads.config import HeadConfig
from bertvision.heads.poolers.build import describe_own
from bertvision.heads.poolers.config import OwnPoolerConfig
from bertvision.progress import SILENT, Progress
from bertvision.records import MAIN_SCORES, Estimate, RunRecord, choose_model, read_mistakes
from bertvision.report.page import write_report
from bertvision.run_folder import folder_of_seed
from bertvision.serving.load import Predictor, load
from bertvision.settings import Settings, merge
from bertvision.stages.run import run
from bertvision.tasks import TASKS, task_name
from bertvision.training.history import Callback


@dataclass(frozen=True)
class TrainingResult:
    """What `train` made: a run folder with models, and a record of each."""

    experiment: Experiment
    folder: Path
    records: tuple[RunRecord, ...]

    def __repr__(self) -> str:
        """Return what fits into a line: records and settings would fill a notebook."""
        names = ", ".join(record.model for record in self._last())
        return f"TrainingResult({self.experiment.task}, {str(self.folder)!r}: {names})"

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Return the scores on dev by model, of the longest fine-tuning and the first seed.

        The task's own are estimates: numbers with the interval and the number of examples that they are worth.
        """
        return {record.model: record.scores | _estimates(record) for record in self._last()}

    @property
    def best(self) -> str:
        """Name the model with the best headline score on dev; that score, being chosen among several, flatters it.

        Of models that dev cannot tell apart it is one on the last layer, and then the one with the fewest weights.
        """
        metric = MAIN_SCORES[self.experiment.task]
        able = [[record] for record in self._models() if metric in record.scores]
        if not able:
            raise SettingsError(f"no model has the score {metric}: dev has too few examples, or all models diverged")
        return choose_model(able).best[0].model

    def model_folder(self, name: str | None = None) -> Path:
        """Return the folder of a model, by default of the best one; `load` and `predict` read it."""
        name = name or self.best
        record = next((each for each in self._models() if each.model == name), None)
        if record is None:
            known = ", ".join(each.model for each in self._models())
            raise SettingsError(f"no model {name!r} in this result; known: {known}")
        place = folder_of_seed(self.folder, record.seed, self.experiment.seeds, record.fraction)
        if name == "encoder":
            assert record.fraction is not None
            return place.encoder(record.fraction)
        return place.head(name)

    def load(self, name: str | None = None) -> Predictor:
        """Load a model, by default the best one."""
        folder = self.model_folder(name)
        # Its encoder is what the caller named; where that was used as given, it lies outside the run.
        pooler = self._poolers().get(folder.name)
        return load(folder, device=self.experiment.device, pooler=pooler, allow_outside=True)

    def save(self, folder: str | Path, name: str | None = None) -> Path:
        """Write a model, by default the best one, into a new folder that holds all of it and that `load` reads."""
        return self.load(name).save_pretrained(folder)

    def push(self, repo_id: str, name: str | None = None, *, private: bool = False) -> str:
        """Publish a model, by default the best one, on the hub with the user's own token; return the commit."""
        return self.load(name).push_to_hub(repo_id, private=private)

    def report(self, out: str | Path | None = None) -> Path:
        """Write tables and figures, by default into the run folder; return the page."""
        place = self.folder if out is None else check_folder(Path(out))
        return write_report(list(self.records), place, mistakes=read_mistakes(self.folder))

    def _last(self) -> list[RunRecord]:
        fractions = [record.fraction for record in self.records]
        return [each for each in self.records if each.fraction == fractions[-1] and each.seed == self.records[0].seed]

    def _models(self) -> list[RunRecord]:
        found = [each for each in self._last() if each.kind in ("encoder", "head", "control")]
        found = [each for each in found if each.head_fraction is None]
        return [each for each in found if each.model != "encoder" or each.fraction is not None]

    def _poolers(self) -> dict[str, nn.Module | None]:
        own = {head.name: head.pooler for head in self.experiment.heads.train}
        return {name: pooler.module for name, pooler in own.items() if isinstance(pooler, OwnPoolerConfig)}


def train(
    data: str | Path,
    *,
    task: str,
    text: Column | tuple[Column, Column] | None = None,
    label: Column | tuple[Column, ...] | None = None,
    dev: str | Path | None = None,
    encoder: str = "default",
    heads: Sequence[str] | str | None = None,
    poolers: Mapping[str, nn.Module] | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    callbacks: Sequence[Callback] = (),
) -> TrainingResult:
    """Fine-tune an encoder on a file, train heads on all its layers in one pass, and score everything on `dev`.

    `data` is a table (`task` classification, multilabel or regression; `text` and `label` name its columns), a SQuAD
    file (squad2, squad1, answerability), or the file of any other task that `bertvision run` knows. Without `dev`, a
    fifth of the examples is kept for it. `heads` are names of the catalog, or one; `poolers` are modules of your own,
    by the names that their heads get, which learn beside these. `out` is the run folder: a call that was stopped
    goes on there, and without it the folder lasts as long as the result. `settings` are those of an experiment's YAML.
    `callbacks` see the course of training: objects with `on_point`, which is given a `TrainingLine`.
    """
    for each in callbacks:
        if not callable(getattr(each, "on_point", None)):
            raise SettingsError(
                f"callbacks: {each!r} has no method on_point(point); see bertvision.training.history.Callback"
            )
    experiment = _with_poolers(_experiment(data, task, text, label, dev, encoder, heads, settings), poolers or {})
    if out is not None:
        folder = check_folder(Path(out))
        return TrainingResult(experiment, folder, tuple(run(experiment, folder, progress, callbacks)))
    folder = Path(tempfile.mkdtemp(prefix="bertvision-"))
    try:
        result = TrainingResult(experiment, folder, tuple(run(experiment, folder, progress, callbacks)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def _experiment(
    data: str | Path,
    task: str,
    text: Column | tuple[Column, Column] | None,
    label: Column | tuple[Column, ...] | None,
    dev: str | Path | None,
    encoder: str,
    heads: Sequence[str] | str | None,
    settings: Settings | None,
) -> Experiment:
    columns = {name: value for name, value in (("text", text), ("label", label)) if value is not None}
    files: Settings = {"train": str(data), **({"columns": columns} if columns else {})}
    files |= {} if dev is None else {"dev": str(dev)}
    own: Settings = {"name": task, "task": task_name(task), "data": files, "encoder": encoder}
    if heads is not None:
        own["heads"] = {"train": [heads] if isinstance(heads, str) else list(heads)}
    return build_experiment(merge(own, settings or {}), origin="train")


def _estimates(record: RunRecord) -> dict[str, float]:
    """Return the task's scores on every split, each with what it is worth."""
    scores = TASKS[task_name(record.task)].scores
    splits = dict.fromkeys(scores, "dev")
    splits |= {f"{name}_{score}": name for name in record.data for score in scores}
    return {
        name: Estimate(record.scores[name], record.intervals.get(name), record.data[split].examples)
        for name, split in splits.items()
        if name in record.scores
    }


def _with_poolers(experiment: Experiment, poolers: Mapping[str, nn.Module]) -> Experiment:
    own = [HeadConfig(name=name, pooler=describe_own(module)) for name, module in poolers.items()]
    train = (*experiment.heads.train, *own)
    if taken := {head.name for head in own} & {head.name for head in experiment.heads.train}:
        raise SettingsError(f"two heads are called {min(taken)!r}; give your pooler another name")
    return experiment.model_copy(update={"heads": experiment.heads.model_copy(update={"train": train})})
