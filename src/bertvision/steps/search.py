"""`bertvision search`: trials that an optuna study asks for, the best one's experiment, and its scores on dev."""

import os
import re
import shutil
import socket
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from bertvision.data.sources import exists, parse_source
from bertvision.errors import DataError, FolderError, MissingExtraError, SettingsError, TrainingError, told_as
from bertvision.experiment import Experiment, read_experiment, to_settings
from bertvision.files import locked, make_folder, remove_folder, whole_folder, write_text
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
from bertvision.search_space import SHARED, Range, SearchConfig, Space, Value, layers_of, space_of
from bertvision.settings import first_difference
from bertvision.steps.context import RunContext, prepare
from bertvision.steps.run import run
from bertvision.steps.trials import HeadTrials, Trial, base_of, run_finetune_trial, with_trial
from bertvision.tasks import TASKS
from bertvision.training.loop import seed_for

if TYPE_CHECKING:
    import optuna

STORAGE, BEST_FILE, BEST, TRIALS_FILE = "search.db", "best.yaml", "best", "trials.csv"
DEFAULT_TRIALS, DEFAULT_HELD_OUT = 48, 0.1
SETTINGS, SCORES, SECONDS, GROUP, NOTE, WORKER = "settings", "scores", "seconds", "group", "note", "worker"
FILES = (".json", ".gz", ".tsv", ".csv", ".jsonl", ".parquet", ".txt", ".conll")
STARTUP = 10  # trials that are drawn at random before TPE learns from them, and before any is pruned
LOST_AFTER = timedelta(days=1)  # a trial on another machine that has run for so long has been lost
OPENINGS = 50  # of a storage whose dozen tables another worker makes at the same moment
SQLITE_WAIT = 120  # seconds that a worker waits while another one writes


class SearchAsked(NamedTuple):
    """What a command asks of a search, on top of the experiment's `search`."""

    storage: str | None = None  # an optuna URL; None: SQLite in OUT
    trials: int | None = None
    minutes: float | None = None


AS_WRITTEN = SearchAsked()


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
        return 1 if self.space.of == "finetune" else _config(self.experiment).group


def search(
    experiment: Experiment, out: Path, asked: SearchAsked = AS_WRITTEN, progress: Progress = SILENT
) -> SearchRecord | None:
    """Try settings, score them on held-out rows, and run the best; None where another worker is still at it.

    What OUT or the storage holds is kept: the same command goes on with a search that was stopped, and several of them
    work on one study. The dev set is read when the trials are over, for the best one alone.
    """
    _check_optuna()
    with _quiet_optuna():
        found = _open(experiment, out, asked, progress)
        _try_all(found)
        if others := _running(found.study):
            progress.say(f"{others} trials of other workers are under way; the last worker runs the best one")
            return None
        return _finish(found, out, progress)


def _check_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise MissingExtraError("optuna", "search") from None


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Let optuna neither log what the user is told anyway, nor warn of what is new in it."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)


def _config(experiment: Experiment) -> SearchConfig:
    return experiment.search or SearchConfig()


def _open(experiment: Experiment, out: Path, asked: SearchAsked, progress: Progress) -> Search:
    """Read the data but dev, load the encoder, and open or begin the study."""
    config, space = _config(experiment), _space(experiment)
    if space.of == "finetune" and experiment.finetune.objective == "contrastive":
        raise SettingsError(
            "search of finetune scores every epoch, which contrastive tuning cannot; use objective: task"
        )
    dev = parse_source(experiment.data.dev).whole
    if experiment.data.folds is None and dev.endswith(FILES) and not exists(dev):
        raise DataError(f"{dev}: no such file; data.dev is read at the end of the search, for the best trial")
    if (held_out := experiment.data.held_out) == 0:
        held_out = DEFAULT_HELD_OUT
        progress.say(f"data.held_out is 0: a share of {held_out:g} of train is held out to score trials on")
    make_folder(out)
    base = base_of(experiment, space, held_out)
    context = prepare(base, out, progress, with_dev=False)
    _check_layers(space, context.shapes[None].layers)
    wanted = asked.trials or config.trials or (space.size if config.sampler == "grid" else DEFAULT_TRIALS)
    minutes = asked.minutes or config.minutes
    study = _open_study(experiment, context, space, asked.storage or f"sqlite:///{out.resolve() / STORAGE}")
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    return Search(experiment, space, context, study, wanted, deadline)


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
    if config.of == "heads" and config.layers is None and layers != "all":
        config = config.model_copy(update={"layers": (",".join(map(str, layers)),)})
    return space_of(config, TASKS[experiment.task].kind, experiment.seeds)


def _open_study(experiment: Experiment, context: RunContext, space: Space, url: str) -> "optuna.Study":
    """Open the study of an experiment, or begin it; refuse one of other settings."""
    import optuna

    shown = re.sub(r"(?<=:)[^:/@]+(?=@)", "***", url)  # without a password
    with told_as(SettingsError, f"--storage {shown}"):
        study = optuna.create_study(
            study_name=experiment.title, storage=_open_storage(url), direction="maximize", load_if_exists=True
        )
    made_by = {**_signature(context), "space": space.as_dict(), "of": space.of}
    if difference := first_difference(study.user_attrs.get("made_by", made_by), made_by):
        raise FolderError(
            f"{shown}: holds a search with other settings ({difference}); choose another --out or --storage, or "
            "another `name`"
        )
    study.set_user_attr("made_by", made_by)
    _ask_again(study)
    if _config(experiment).sampler == "grid":
        for point in space.grid():
            study.enqueue_trial(dict(point), user_attrs=_own_name(), skip_if_exists=True)
    told = len(study.get_trials(deepcopy=False))  # who goes on, or joins, draws other numbers
    seed = seed_for(experiment.seeds[0], "search", str(told), str(os.getpid()) if told else "") % 2**32
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=seed, constant_liar=True)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP)
    return study


def _open_storage(url: str) -> "optuna.storages.RDBStorage":
    """Open a storage; where another worker is making its tables just now, as soon as they are there."""
    import optuna
    from sqlalchemy.exc import IntegrityError, OperationalError

    wait = {"connect_args": {"timeout": SQLITE_WAIT}} if url.startswith("sqlite") else {}
    for left in reversed(range(OPENINGS)):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=wait)
        except (IntegrityError, OperationalError) as error:
            if not left or "exists" not in str(error) and "UNIQUE" not in str(error):
                raise
    raise AssertionError


def _signature(context: RunContext) -> dict[str, Any]:
    """Return what decides scores of trials: neither which heads `run` would train, nor where and for whom."""
    dumped = context.experiment.model_dump(mode="json", exclude={"report_to", "device", "measure", "seeds"})
    dumped["heads"].pop("train")
    return {"experiment": dumped, "train": context.task.train.sha256, "encoder": context.start_fingerprint}


def _ask_again(study: "optuna.Study") -> None:
    """Abandon the trials of workers that are gone, and ask for the same settings again."""
    from optuna.trial import TrialState

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    own = _own_name()[WORKER]  # which had this process's number before, for this one has asked for nothing yet
    for trial in (each for each in running if not _is_alive(each) or each.user_attrs.get(WORKER) == own):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params, user_attrs=_own_name())


def _running(study: "optuna.Study") -> int:
    """Count the trials that are under way."""
    from optuna.trial import TrialState

    return sum(map(_is_alive, study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))))


def _is_alive(trial: "optuna.trial.FrozenTrial") -> bool:
    """Return whether a trial's worker still works: its process on this machine, or recently on another one."""
    host, _, process = str(trial.user_attrs.get(WORKER, "")).rpartition(":")
    if host != socket.gethostname() or os.name == "nt":  # where this signal would end a process
        return trial.datetime_start is not None and datetime.now() - trial.datetime_start < LOST_AFTER
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _own_name() -> dict[str, str]:
    """Name this worker, for a trial to have from its first moment on."""
    return {WORKER: f"{socket.gethostname()}:{os.getpid()}"}


def _try_all(found: Search) -> None:
    """Ask for trials and train them, group by group, until there are enough or time is over."""
    epochs, left = found.context.experiment.heads.epochs, found.wanted - _done(found.study)
    heads = HeadTrials(found.context, found.space, epochs * max(1, -(-left // found.group)))
    while (time.monotonic() < found.deadline or not _done(found.study)) and (asked := _ask(found)):
        for group in _groups(asked):
            if found.space.of == "heads":
                heads.run([each.trial for each in group])
            else:
                run_finetune_trial(found.context, group[0].trial)
            _tell(found, group)
        found.context.progress.say(_standing(found))
    heads.close()


def _done(study: "optuna.Study") -> int:
    """Count the trials that are over or under way; those that workers left are asked for again."""
    from optuna.trial import TrialState

    over = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return len(over) + _running(study)


class _Asked(NamedTuple):
    """A trial, and what the study knows it by."""

    trial: Trial
    own: "optuna.Trial"


def _ask(found: Search) -> list[_Asked]:
    """Ask for a group of trials, all with the seed that has been tried least: TPE would stay with the first."""
    from optuna.trial import TrialState

    asked: list[_Asked] = []
    shared = {SHARED: _least_tried(found)} if SHARED in found.space.choices else {}
    for _ in range(min(found.group, found.wanted - _done(found.study))):
        if not found.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            found.study.enqueue_trial(shared, user_attrs=_own_name())
        own = found.study.ask()  # one that waits, of this worker or another
        own.set_user_attr(WORKER, _own_name()[WORKER])
        asked.append(_Asked(Trial(own.number, _suggest(own, found.space), partial(_is_hopeless, own)), own))
    return asked


def _least_tried(found: Search) -> Value:
    """Return the seed that the fewest trials have, the first of several."""
    tried = Counter(trial.params.get(SHARED) for trial in found.study.get_trials(deepcopy=False))
    seeds = found.space.values[SHARED]
    assert isinstance(seeds, tuple)
    return min(seeds, key=lambda seed: tried[seed])


def _is_hopeless(own: "optuna.Trial", epoch: int, score: float) -> bool:
    own.report(score, epoch)
    return bool(own.should_prune())


def _suggest(asked: "optuna.Trial", space: Space) -> dict[str, Value]:
    settings: dict[str, Any] = dict(space.fixed)
    for name, values in space.choices.items():
        if not isinstance(values, Range):
            settings[name] = asked.suggest_categorical(name, values)
        elif name == "width":
            settings[name] = asked.suggest_int(name, int(values.low), int(values.high), log=True)
        else:
            settings[name] = asked.suggest_float(name, values.low, values.high, log=True)
    return {name: settings[name] for name in space.values}


def _groups(asked: Sequence[_Asked]) -> list[list[_Asked]]:
    """Part trials by their seed, in which those that were asked for before may differ."""
    groups: dict[Value, list[_Asked]] = {}
    for each in asked:
        groups.setdefault(each.trial.settings[SHARED], []).append(each)
    return list(groups.values())


def _tell(found: Search, group: Sequence[_Asked]) -> None:
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    for trial, own in group:
        told = {SETTINGS: trial.settings, SCORES: trial.scores, SECONDS: round(trial.seconds, 3)}
        with suppress(UpdateFinishedTrialError):  # another machine has given it up, and asks for it again
            for name, value in {**told, GROUP: group[0].trial.number, NOTE: trial.note}.items():
                own.set_user_attr(name, value)
            if trial.note:
                found.study.tell(own, state=TrialState.PRUNED)
            else:
                found.study.tell(own, _counted(found.context.experiment, found.space, trial.scores))


def _counted(experiment: Experiment, space: Space, scores: Sequence[float]) -> float:
    """Return the score of the weights that `run` keeps: of the best epoch, the reported one, or the last."""
    stage = experiment.heads if space.of == "heads" else experiment.finetune
    if stage.keeps_best:
        return max(scores)
    return scores[experiment.heads.reported - 1] if space.of == "heads" else scores[-1]


def _standing(found: Search) -> str:
    """Say how far a search has come."""
    over = [trial for trial in found.study.get_trials(deepcopy=False) if trial.state.name in ("COMPLETE", "PRUNED")]
    best = max((trial for trial in over if trial.value is not None), key=lambda trial: trial.value or 0.0, default=None)
    score = "" if best is None else f"; best: trial {best.number}, {found.context.metric} {best.value:.2f}"
    return f"{len(over)} of {found.wanted} trials{score}"


def _finish(found: Search, out: Path, progress: Progress) -> SearchRecord:
    """Write the best trial's experiment, run it, and record all."""
    with locked(out, "best"):
        trials = _trials(found.study)
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
            of=found.space.of,
            metric=found.context.metric,
            sampler=_config(found.experiment).sampler,
            space=found.space.as_dict(),
            trials=trials,
            best=best.number,
            dev_scores=result.scores,
            dev_reads=reads + 1,
            importances=_importances(found.study, len(scored)),
            data=result.data,
            config=found.experiment.model_dump(mode="json"),
            provenance=_provenance(found.context),
        )
        write_text(out / TRIALS_FILE, to_csv([_row(trial) for trial in trials]))
        write_search_record(out, record)
        return record


def _trials(study: "optuna.Study") -> list[SearchTrial]:
    """Return the trials that are over, of all workers."""
    from optuna.trial import TrialState

    over = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return [
        SearchTrial(
            number=trial.number,
            state="complete" if trial.state is TrialState.COMPLETE else "pruned",
            score=trial.value
            if trial.state is TrialState.COMPLETE
            else next(iter(trial.user_attrs[SCORES][-1:]), None),
            settings=trial.user_attrs[SETTINGS],
            scores=trial.user_attrs[SCORES],
            seconds=trial.user_attrs[SECONDS],
            group=trial.user_attrs[GROUP],
            note=trial.user_attrs[NOTE],
        )
        for trial in over
    ]


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
    experiment = with_trial(base_of(found.experiment, found.space, _held_out(found)), found.space, trial, states)
    experiment = experiment.model_copy(
        update={"name": f"{found.experiment.title}_best", "variant": None, "method": None}
    )
    score = f"{found.context.metric} {best.score:.2f} on held-out rows"
    about = f"# Trial {best.number} of {found.experiment.title}: {score}.\n"
    write_text(out / BEST_FILE, about + yaml.safe_dump(to_settings(experiment), sort_keys=False, width=120))
    return out / BEST_FILE


def _held_out(found: Search) -> float | str:
    return found.context.experiment.data.held_out


def _run_best(found: Search, path: Path, out: Path, progress: Progress) -> RunRecord:
    """Run the best trial's experiment, which reads dev; return the record of its model."""
    experiment = read_experiment(path)
    if found.space.of == "heads" and found.context.fractions[-1] is not None:
        _take_encoder(found, experiment.seeds[0], out / BEST)
    records = run(experiment, out / BEST, progress)
    row = "encoder" if found.space.of == "finetune" else experiment.heads.train[0].name
    result = next((record for record in records if record.row == row), None)
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


def _importances(study: "optuna.Study", scored: int) -> dict[str, float]:
    """Return each parameter's share of the variance of scores (fANOVA); nothing where there is too little to tell."""
    import optuna

    if scored < 2 or len({trial.value for trial in study.trials if trial.value is not None}) < 2:
        return {}
    found = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    return {name: round(share, 4) for name, share in found.items()}


def _provenance(context: RunContext) -> Provenance:
    made = provenance(context.compute.name, context.compute.precision)
    return made.model_copy(update={"versions": {**made.versions, "optuna": metadata.version("optuna")}})


def _row(trial: SearchTrial) -> dict[str, Any]:
    plain = {"trial": trial.number, "state": trial.state, "score": trial.score, **trial.settings}
    return {**plain, "epochs": len(trial.scores), "seconds": trial.seconds, "group": trial.group, "note": trial.note}
