"""`bertvision search`: trials that an optuna study asks for, the best one's experiment, and its scores on dev."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from bertvision.errors import SettingsError, TrainingError
from bertvision.experiment import Experiment, read_experiment, to_settings
from bertvision.files import locked, remove_folder, whole_folder, write_text
from bertvision.predictions.files import to_csv
from bertvision.progress import SILENT, Progress
from bertvision.records import (
    SEARCH_FILE,
    Provenance,
    RunRecord,
    SearchRecord,
    SearchTrial,
    provenance,
    read_search_record,
    write_search_record,
)
from bertvision.run_folder import tidy
from bertvision.search.study import (
    AskedTrial,
    ask,
    check_optuna,
    finished_trials,
    importances,
    opened_study,
    quiet_optuna,
    standing,
    tell,
)
from bertvision.search.trials import HeadTrials, Trial, base_of, run_finetune_trial, with_trial
from bertvision.search_space import SHARED, SearchConfig, Space, Value, layers_of, space_of
from bertvision.stages.context import RunContext, prepare
from bertvision.stages.prepare import DEFAULT_HELD_OUT, ExperimentData, read_search_data
from bertvision.stages.run import run
from bertvision.tasks import TASKS

if TYPE_CHECKING:
    import optuna

STORAGE, BEST_FILE, BEST, TRIALS_FILE = "search.db", "best.yaml", "best", "trials.csv"
DEFAULT_TRIALS = 48


class Search(NamedTuple):
    """A search under way."""

    experiment: Experiment
    space: Space
    context: RunContext
    study: "optuna.Study"
    wanted: int  # trials in all
    deadline: float  # of time.monotonic

    @property
    def group(self) -> int:
        """Return how many trials are trained together."""
        return 1 if self.space.of == "finetune" else _config(self.experiment).group_size


def search(
    experiment: Experiment,
    out: Path,
    progress: Progress = SILENT,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    data: ExperimentData | None = None,
) -> SearchRecord:
    """Try settings, score them on held-out rows, and run the best.

    `trials` and `minutes` override the experiment's; `data` is what `read_search_data` returned, where it was read
    before. What OUT holds is kept: the same command goes on with a search that was stopped, to the same trials. The dev
    set is read when the trials are over, for the best one alone.
    """
    check_optuna()
    config = _config(experiment)
    asked = config.model_copy(update={"trials": trials or config.trials, "minutes": minutes or config.minutes})
    with quiet_optuna(), locked(out):
        tidy(out)
        with _opened(experiment, out, asked, progress, data) as found:
            _try_all(found)
            return _finish(found, out, progress)


def _config(experiment: Experiment) -> SearchConfig:
    return experiment.search or SearchConfig()


@contextmanager
def _opened(
    experiment: Experiment, out: Path, config: SearchConfig, progress: Progress, data: ExperimentData | None
) -> Iterator[Search]:
    """Read the data but dev, load the encoder, and open or begin the study."""
    space = _space(experiment)
    if space.of == "finetune" and experiment.finetune.objective == "contrastive":
        raise SettingsError(
            "search of finetune scores every epoch, which contrastive tuning cannot; use objective: task"
        )
    data = read_search_data(experiment, progress) if data is None else data
    base = base_of(experiment, space, experiment.data.held_out or DEFAULT_HELD_OUT)
    context = prepare(base, out, progress, data=data)
    _check_layers(space, context.shapes[None].layers)
    wanted = config.trials or DEFAULT_TRIALS
    if config.sampler == "grid":
        wanted = min(config.trials or space.size, space.size)
    settings_fingerprint = {**_deciding_settings(context), "space": space.as_dict(), "target": space.of}
    with opened_study(out / STORAGE, experiment.title, settings_fingerprint) as study:
        deadline = float("inf") if config.minutes is None else time.monotonic() + 60 * config.minutes
        yield Search(experiment, space, context, study, wanted, deadline)


def _check_layers(space: Space, states: int) -> None:
    """Refuse layers that the encoder has not, before anything is trained."""
    words = space.values.get("layers", ())
    assert isinstance(words, tuple)
    for word in map(str, words):
        if (layers := layers_of(word, states)) is not None and layers[-1] >= states:
            raise SettingsError(
                f"search.layers: {word!r}, and the encoder has the states 0 to {states - 1}; leave it out"
            )


def _space(experiment: Experiment) -> Space:
    """Return what is searched; layers that the experiment chooses are the only ones, unless the search names some."""
    config, layers = _config(experiment), experiment.states.layers
    if config.target == "heads" and config.layers is None and layers != "all":
        config = config.model_copy(update={"layers": (",".join(map(str, layers)),)})
    return space_of(config, TASKS[experiment.task].kind, experiment.seeds)


def _deciding_settings(context: RunContext) -> dict[str, Any]:
    """Return what decides scores of trials: neither which heads `run` would train, nor where and for whom."""
    dumped = context.experiment.model_dump(mode="json", exclude={"report_to", "device", "measure", "seeds"})
    dumped["heads"].pop("train")
    return {"experiment": dumped, "train": context.task.train.sha256, "encoder": context.start_fingerprint}


def _try_all(found: Search) -> None:
    """Ask for trials and train them, group by group, until there are enough or time is over."""
    # Of all trials, also those that are done: states come from the same place when a search goes on.
    passes = found.context.experiment.heads.epochs * max(1, -(-found.wanted // found.group))
    heads = HeadTrials(found.context, found.space, passes)
    points = found.space.grid() if _config(found.experiment).sampler == "grid" else []
    while time.monotonic() < found.deadline or not finished_trials(found.study):
        asked = ask(found.study, found.space, found.group, found.wanted, found.experiment.seeds[0], points)
        if not asked:
            break
        for group in _groups(asked):
            if found.space.of == "heads":
                heads.run([each.trial for each in group])
            else:
                run_finetune_trial(found.context, group[0].trial)
            for each in group:
                score = None if each.trial.note else _counted(found.context.experiment, found.space, each.trial.scores)
                tell(found.study, each, group[0].trial.number, score)
        found.context.progress.say(standing(found.study, found.wanted, found.context.metric))


def _groups(asked: Sequence[AskedTrial]) -> list[list[AskedTrial]]:
    """Part trials by their seed, in which points of a grid may differ."""
    groups: dict[Value, list[AskedTrial]] = {}
    for each in asked:
        groups.setdefault(each.trial.settings[SHARED], []).append(each)
    return list(groups.values())


def _counted(experiment: Experiment, space: Space, scores: Sequence[float]) -> float:
    """Return the score of the weights that `run` keeps: of the best epoch, the reported one, or the last."""
    stage = experiment.heads if space.of == "heads" else experiment.finetune
    if stage.keeps_best:
        return max(scores)
    return scores[experiment.heads.epochs - 1] if space.of == "heads" else scores[-1]


def _finish(found: Search, out: Path, progress: Progress) -> SearchRecord:
    """Write the best trial's experiment, run it, and record all."""
    trials = finished_trials(found.study)
    scored = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    if not scored:
        raise TrainingError(f"{out}: none of {len(trials)} trials has a score; search lower rates (search.lr)")
    best = max(scored, key=lambda trial: (trial.score or 0.0, -trial.number))
    reads = _forget_other_best(out, best.number)
    path = _write_best(found, out, best)
    result = _run_best(found, path, out, progress)
    record = SearchRecord(
        experiment=found.experiment.title,
        task=found.experiment.task,
        target=found.space.of,
        metric=found.context.metric,
        sampler=_config(found.experiment).sampler,
        space=found.space.as_dict(),
        trials=trials,
        best=best.number,
        dev_scores=result.scores,
        dev_reads=reads + 1,
        importances=importances(found.study, len(scored)),
        data=result.data,
        config=found.experiment.model_dump(mode="json"),
        provenance=_provenance(found.context),
    )
    write_text(out / TRIALS_FILE, to_csv([_row(trial, found.space) for trial in trials]))
    write_search_record(out, record)
    return record


def _forget_other_best(out: Path, best: int) -> int:
    """Remove the run of an earlier best trial; return how often dev was read before this one."""
    if not (out / SEARCH_FILE).exists():
        return 0
    before = read_search_record(out)
    if before.best == best:
        return before.dev_reads - 1
    remove_folder(out / BEST)
    return before.dev_reads


def _write_best(found: Search, out: Path, best: SearchTrial) -> Path:
    """Write the experiment of the best trial, as `bertvision run` takes it."""
    trial = Trial(best.number, best.settings)
    states = found.context.shapes[None].layers
    base = base_of(found.experiment, found.space, found.context.experiment.data.held_out)
    experiment = with_trial(base, found.space, trial, states)
    experiment = experiment.model_copy(
        update={"name": f"{found.experiment.title}_best", "variant": None, "method": None}
    )
    score = f"{found.context.metric} {best.score:.2f} on held-out rows"
    about = f"# Trial {best.number} of {found.experiment.title}: {score}.\n"
    write_text(out / BEST_FILE, about + yaml.safe_dump(to_settings(experiment), sort_keys=False, width=120))
    return out / BEST_FILE


def _run_best(found: Search, path: Path, out: Path, progress: Progress) -> RunRecord:
    """Run the best trial's experiment, which reads dev; return the record of its model."""
    experiment = read_experiment(path)
    if found.space.of == "heads" and found.context.fractions[-1] is not None:
        _take_encoder(found, experiment.seeds[0], out / BEST)
    records = run(experiment, out / BEST, progress)
    row = "encoder" if found.space.of == "finetune" else experiment.heads.train[0].name
    result = next((record for record in records if record.model == row), None)
    if result is None:
        raise TrainingError(f"{out / BEST}: the best trial diverged when it was run again; search lower rates")
    return result


def _take_encoder(found: Search, seed: int, best: Path) -> None:
    """Let the run have the encoder that trials were trained on."""
    context = found.context.at(seed, found.context.fractions[-1])
    assert context.fraction is not None
    place, tuned = (
        context.folder.encoder(context.fraction),
        best / "encoder" / context.folder.encoder(context.fraction).name,
    )
    if place.exists() and not tuned.exists():
        with whole_folder(tuned) as beside:
            shutil.copytree(place, beside, dirs_exist_ok=True)


def _provenance(context: RunContext) -> Provenance:
    made = provenance(context.compute.name, context.compute.precision)
    return made.model_copy(update={"versions": {**made.versions, "optuna": metadata.version("optuna")}})


def _row(trial: SearchTrial, space: Space) -> dict[str, Any]:
    settings = {name: trial.settings.get(name) for name in space.values}
    plain = {"trial": trial.number, "state": trial.state, "score": trial.score, **settings}
    return {**plain, "epochs": len(trial.scores), "seconds": trial.seconds, "group": trial.group, "note": trial.note}
