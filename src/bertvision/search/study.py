"""The optuna study of a search: the trials that it is asked for and told of, in a file that holds nothing else.

What is drawn for a trial depends on its number and on the trials that ended before its group alone. So a search that
was killed goes on to the same trials as one that was not.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bertvision.errors import FolderError, MissingExtraError, reason_of, told_as
from bertvision.records import SearchTrial
from bertvision.search.trials import Trial
from bertvision.search_space import SHARED, Range, Space, Value
from bertvision.settings import first_difference
from bertvision.training.loop import seed_for

if TYPE_CHECKING:
    import optuna

NUMBER, SETTINGS, SCORES, SECONDS, GROUP, NOTE = "number", "settings", "scores", "seconds", "group", "note"
STARTUP = 10  # trials that are drawn at random before TPE learns from them, and before any is pruned
OVER = ("COMPLETE", "PRUNED")


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
def opened_study(path: Path, name: str, settings_fingerprint: Mapping[str, Any]) -> Iterator["optuna.Study"]:
    """Open the study in a file, or begin it, until the block ends; refuse one that was made by other settings."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    broken = f"{path}: cannot be used as the file of a search"
    with told_as(FolderError, broken):
        # A storage that fails to open leaves its pool to Python, which warns of connections in it; so there is none.
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}", engine_kwargs={"poolclass": NullPool})
    try:
        with told_as(FolderError, broken):
            study = optuna.create_study(study_name=name, storage=storage, direction="maximize", load_if_exists=True)
            finished_trials(study)  # a damaged one is told now
        if difference := first_difference(
            study.user_attrs.get("settings_fingerprint", settings_fingerprint), settings_fingerprint
        ):
            raise FolderError(
                f"{path}: holds a search with other settings ({difference}); choose another `out`, or another `name`"
            )
        study.set_user_attr("settings_fingerprint", settings_fingerprint)
        yield study
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        reason = getattr(error.__cause__ or error, "orig", None) or error  # what SQLite itself says
        raise FolderError(
            f"{broken}: {reason_of(reason)}; see that its disk has room and works, and give the same command again"
        ) from None
    finally:  # Python 3.13 warns of connections that are left to it
        storage.remove_session()
        storage.engine.dispose()


class AskedTrial(NamedTuple):
    """A trial, and what the study knows it by."""

    trial: Trial
    own: "optuna.Trial"


def ask(
    study: "optuna.Study", space: Space, group: int, wanted: int, seed: int, points: Sequence[Mapping[str, Value]] = ()
) -> list[AskedTrial]:
    """Ask for the next group of trials, as far as so many in all are wanted; none where there are enough.

    Those that a kill cut short come first, with the same settings. `points` are those of a grid, by number.
    """
    from optuna.trial import TrialState

    over = _by_number(study, *OVER)
    cut_short = _by_number(study, "RUNNING")
    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(left.number, state=TrialState.FAIL)
    left_numbers = [number for number in range(wanted) if number not in over]
    numbers = [number for number in left_numbers if number // group == left_numbers[0] // group]
    before = [trial for number, trial in over.items() if number < min(numbers, default=0) // group * group]
    asked = []
    for number in numbers:
        known = cut_short[number].params if number in cut_short else points[number] if points else {}
        # All trials of a group have one seed, and seeds take turns: TPE would stay with the first.
        seeds = space.choices.get(SHARED, ())
        assert isinstance(seeds, tuple)
        turn = {SHARED: seeds[number // group % len(seeds)]} if seeds else {}
        _choose_sampler(study, seed_for(seed, "search", str(number)), {**turn, **known})
        own = study.ask()
        trial = Trial(number, _suggest(own, space), partial(_is_hopeless, own, before))
        own.set_user_attr(NUMBER, number)  # from now on it has all its settings
        asked.append(AskedTrial(trial, own))
    return asked


def _by_number(study: "optuna.Study", *states: str) -> dict[int, "optuna.trial.FrozenTrial"]:
    """Return trials by their number in the search; optuna's own also counts those that were cut short."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in states]
    return {trial.user_attrs[NUMBER]: trial for trial in trials if NUMBER in trial.user_attrs}


def _choose_sampler(study: "optuna.Study", seed: int, known: Mapping[str, Value]) -> None:
    import optuna

    drawing = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=seed % 2**32, constant_liar=True)
    study.sampler = optuna.samplers.PartialFixedSampler(dict(known), drawing)


def _is_hopeless(own: "optuna.Trial", before: Sequence["optuna.trial.FrozenTrial"], scores: Sequence[float]) -> bool:
    """Note the last score; return whether none reaches the median that earlier trials had after as many epochs."""
    epoch = len(scores)
    own.report(scores[-1], epoch)
    complete = [trial.intermediate_values for trial in before if trial.state.name == "COMPLETE"]
    earlier = [each[epoch] for each in complete if epoch in each]
    return len(complete) >= STARTUP and bool(earlier) and max(scores) < median(earlier)


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
    from optuna.trial import TrialState

    trial, own = asked
    found = {SETTINGS: trial.settings, SCORES: trial.scores, SECONDS: round(trial.seconds, 3)}
    for name, value in {**found, GROUP: group, NOTE: trial.note}.items():
        own.set_user_attr(name, value)
    if score is None:
        study.tell(own, state=TrialState.PRUNED)
    else:
        study.tell(own, score)


def standing(study: "optuna.Study", wanted: int, metric: str) -> str:
    """Say how far a search has come."""
    trials = finished_trials(study)
    scored = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    best = max(scored, key=lambda trial: trial.score or 0.0, default=None)
    score = "" if best is None else f"; best: trial {best.number}, {metric} {best.score:.2f}"
    return f"{len(trials)} of {wanted} trials{score}"


def finished_trials(study: "optuna.Study") -> list[SearchTrial]:
    """Return the trials that are over."""
    return [
        SearchTrial(
            number=number,
            state="complete" if trial.state.name == "COMPLETE" else "pruned",
            score=trial.value if trial.state.name == "COMPLETE" else next(iter(trial.user_attrs[SCORES][-1:]), None),
            settings=trial.user_attrs[SETTINGS],
            scores=trial.user_attrs[SCORES],
            seconds=trial.user_attrs[SECONDS],
            group=trial.user_attrs[GROUP],
            note=trial.user_attrs[NOTE],
        )
        for number, trial in sorted(_by_number(study, *OVER).items())
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
