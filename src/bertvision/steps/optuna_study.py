"""The optuna study of a search: its storage, which workers share, and the trials that it is asked for and told of."""

import os
import re
import socket
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bertvision.errors import FolderError, MissingExtraError, SettingsError, told_as
from bertvision.records import SearchTrial
from bertvision.search_space import SHARED, Range, Space, Value
from bertvision.settings import first_difference
from bertvision.steps.trials import Trial
from bertvision.training.loop import seed_for

if TYPE_CHECKING:
    import optuna

SETTINGS, SCORES, SECONDS, GROUP, NOTE, WORKER = "settings", "scores", "seconds", "group", "note", "worker"
STARTUP = 10  # trials that are drawn at random before TPE learns from them, and before any is pruned
LOST_AFTER = timedelta(days=1)  # a trial on another machine that has run for so long has been lost
OPENINGS = 50  # of a storage whose dozen tables another worker makes at the same moment
OVER = ("COMPLETE", "PRUNED")
SQLITE_WAIT = 120  # seconds that a worker waits while another one writes


def check_optuna() -> None:
    """Say which extra is missing, where it is."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise MissingExtraError("optuna", "search") from None


@contextmanager
def quiet_optuna() -> Iterator[None]:
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


@contextmanager
def opened_study(
    name: str, url: str, made_by: Mapping[str, Any], points: Iterable[Mapping[str, Value]], seed: int
) -> Iterator["optuna.Study"]:
    """Open a study, or begin it, until the block ends; refuse one that was made by other settings.

    `points` are tried before any that the study draws.
    """
    import optuna

    shown = re.sub(r"(?<=:)[^:/@]+(?=@)", "***", url)  # without a password
    told = partial(told_as, SettingsError, f"--storage {shown}")
    with told():
        storage = _open_storage(url)
    try:
        with told():
            study = optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
        _check_settings(study, made_by, shown)
        _ask_again(study)
        for point in points:
            study.enqueue_trial(dict(point), user_attrs=_own_name(), skip_if_exists=True)
        _choose_sampler(study, seed)
        yield study
    finally:  # Python 3.13 warns of connections that are left to it
        storage.remove_session()
        storage.engine.dispose()


def _open_storage(url: str) -> "optuna.storages.RDBStorage":
    """Open a storage; where another worker is making its tables just now, as soon as they are there."""
    import optuna
    from sqlalchemy.exc import IntegrityError, OperationalError
    from sqlalchemy.pool import NullPool

    # A storage that fails to open leaves its pool to Python, which warns of connections in it; so SQLite has none.
    options = {"connect_args": {"timeout": SQLITE_WAIT}, "poolclass": NullPool} if url.startswith("sqlite") else {}
    for left in reversed(range(OPENINGS)):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        except (IntegrityError, OperationalError) as error:
            if not left or "exists" not in str(error) and "UNIQUE" not in str(error):
                raise
    raise AssertionError


def _check_settings(study: "optuna.Study", made_by: Mapping[str, Any], shown: str) -> None:
    if difference := first_difference(study.user_attrs.get("made_by", made_by), made_by):
        raise FolderError(
            f"{shown}: holds a search with other settings ({difference}); choose another --out or --storage, or "
            "another `name`"
        )
    study.set_user_attr("made_by", made_by)


def _ask_again(study: "optuna.Study") -> None:
    """Abandon the trials of workers that are gone, and ask for the same settings again."""
    from optuna.trial import TrialState

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    own = _own_name()[WORKER]  # which had this process's number before, for this one has asked for nothing yet
    for trial in (each for each in running if not _is_alive(each) or each.user_attrs.get(WORKER) == own):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params, user_attrs=_own_name())


def _choose_sampler(study: "optuna.Study", seed: int) -> None:
    import optuna

    told = len(study.get_trials(deepcopy=False))  # who goes on, or joins, draws other numbers
    own_seed = seed_for(seed, "search", str(told), str(os.getpid()) if told else "") % 2**32
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=own_seed, constant_liar=True)
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP)


def count_running(study: "optuna.Study") -> int:
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


def count_done(study: "optuna.Study") -> int:
    """Count the trials that are over or under way; those that workers left are asked for again.

    All are read at once: one that ended between two readings would be in neither.
    """
    trials = study.get_trials(deepcopy=False)
    return sum(each.state.name in OVER or each.state.name == "RUNNING" and _is_alive(each) for each in trials)


class AskedTrial(NamedTuple):
    """A trial, and what the study knows it by."""

    trial: Trial
    own: "optuna.Trial"


def ask(study: "optuna.Study", space: Space, group: int, wanted: int) -> list[AskedTrial]:
    """Ask for a group of trials, as far as so many in all are wanted; none where there are enough.

    All have the seed that has been tried least: TPE would stay with the first.
    """
    from optuna.trial import TrialState

    asked: list[AskedTrial] = []
    shared = {SHARED: _least_tried(study, space)} if SHARED in space.choices else {}
    while len(asked) < group and count_done(study) < wanted:  # other workers ask at the same time
        if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(shared, user_attrs=_own_name())
        own = study.ask()  # one that waits, of this worker or another
        own.set_user_attr(WORKER, _own_name()[WORKER])
        asked.append(AskedTrial(Trial(own.number, _suggest(own, space), partial(_is_hopeless, own)), own))
    return asked


def _least_tried(study: "optuna.Study", space: Space) -> Value:
    """Return the seed that the fewest trials have, the first of several."""
    tried = Counter(trial.params.get(SHARED) for trial in study.get_trials(deepcopy=False))
    seeds = space.values[SHARED]
    assert isinstance(seeds, tuple)
    return min(seeds, key=lambda seed: tried[seed])


def _is_hopeless(own: "optuna.Trial", epoch: int, score: float) -> bool:
    from optuna.exceptions import UpdateFinishedTrialError

    try:
        own.report(score, epoch)
    except UpdateFinishedTrialError:  # another worker has told it, and what comes of it here counts no more
        return True
    return bool(own.should_prune())


def _suggest(asked: "optuna.Trial", space: Space) -> dict[str, Value]:
    settings: dict[str, Any] = dict(space.fixed)
    for name, values in space.choices.items():
        if not space.has(name, settings.get("head", "")):
            continue  # it would be told as if it had mattered
        if not isinstance(values, Range):
            settings[name] = asked.suggest_categorical(name, values)
        elif name == "width":
            settings[name] = asked.suggest_int(name, int(values.low), int(values.high), log=True)
        else:
            settings[name] = asked.suggest_float(name, values.low, values.high, log=True)
    return {name: settings[name] for name in space.values if space.has(name, settings.get("head", ""))}


def tell(study: "optuna.Study", asked: AskedTrial, group: int, score: float | None) -> None:
    """Tell what a trial found, and the first trial of its group; it is pruned where it has no score that counts."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    trial, own = asked
    told = {SETTINGS: trial.settings, SCORES: trial.scores, SECONDS: round(trial.seconds, 3)}
    with suppress(UpdateFinishedTrialError):  # another machine has given it up, and asks for it again
        for name, value in {**told, GROUP: group, NOTE: trial.note}.items():
            own.set_user_attr(name, value)
        if score is None:
            study.tell(own, state=TrialState.PRUNED)
        else:
            study.tell(own, score)


def standing(study: "optuna.Study", wanted: int, metric: str) -> str:
    """Say how far a search has come."""
    over = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in OVER]
    best = max((trial for trial in over if trial.value is not None), key=lambda trial: trial.value or 0.0, default=None)
    score = "" if best is None else f"; best: trial {best.number}, {metric} {best.value:.2f}"
    return f"{len(over)} of {wanted} trials{score}"


def finished_trials(study: "optuna.Study") -> list[SearchTrial]:
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


def importances(study: "optuna.Study", scored: int) -> dict[str, float]:
    """Return each parameter's share of the variance of scores (fANOVA); nothing where there is too little to tell."""
    import optuna

    if scored < 2 or len({trial.value for trial in study.trials if trial.value is not None}) < 2:
        return {}
    shares = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    return {name: round(share, 4) for name, share in shares.items()}
