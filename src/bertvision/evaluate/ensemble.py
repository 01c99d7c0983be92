"""Prediction folders of several models -> one of their ensemble, and how it compares with each of them.

Of any kind of task, also of different runs; needs no torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from bertvision.data.example import DataConfig
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.evaluate.score import AskedFile, GoldConfig, find_asked, read_asked
from bertvision.files import given_folder, write_json
from bertvision.kinds.kind import Golds
from bertvision.manifest import write_manifest
from bertvision.predictions.ensemble import How, shares_of
from bertvision.predictions.files import PREDICTION_FILES
from bertvision.predictions.prediction import AnswerConfig
from bertvision.records import MAIN_SCORES
from bertvision.scoring.metrics import OWN_UNIT
from bertvision.scoring.squad import Scores
from bertvision.settings import Settings, validate
from bertvision.tables import figure
from bertvision.tasks import TASKS
from bertvision.version import VERSION

HOWS: dict[str, How] = {how: how for how in get_args(How)}
LEAST_GAIN = 0.01  # points: a member that is no better than a guess counts for almost nothing


class EnsembleSettings(GoldConfig):
    """What may be changed when predictions are combined."""

    answers: AnswerConfig = AnswerConfig()


class HeldOutMembers(NamedTuple):
    """The members' predictions for other examples than the ensemble's, in the members' order."""

    folders: Sequence[Path]
    data: str


class Way(NamedTuple):
    """How members are combined; `weighted` by weights as given, or by scores on held-out questions."""

    how: How
    weights: tuple[float, ...] | None = None
    held_out: HeldOutMembers | None = None

    def check(self, members: int) -> None:
        """Refuse weights that are missing, too many, or not asked for."""
        if self.held_out is None:
            shares_of(self.how, self.weights, members)
        elif len(self.held_out.folders) != members:
            raise SettingsError(f"got {len(self.held_out.folders)} `held_out` for {members} members; give one for each")


class Ensembled(NamedTuple):
    """What came out."""

    golds: Golds
    predictions: Sequence[Any]
    by: str  # what was combined, such as `tokens` or `spans`
    folders: tuple[Path, ...]
    shares: tuple[float, ...] | None  # of the weights, where there are any
    scores: Scores | None  # None where the file has nothing to compare with
    member_scores: list[Scores] | None
    null_threshold: float  # at which members and ensemble abstain, where they can

    @property
    def note(self) -> str:
        """Say at which threshold the table's scores are: members may have been calibrated to another."""
        if "best_f1" not in (self.scores or {}):  # nobody can abstain, or there is nothing to compare with
            return ""
        return f"EM and F1 at null threshold {self.null_threshold:g}; the setting answers.null_threshold changes it."

    @property
    def nouns(self) -> str:
        """What was predicted."""
        return self.golds.info.kind.nouns

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it, without the predictions."""
        members = [
            {
                "folder": str(folder),
                "weight": None if self.shares is None else self.shares[place],
                "scores": None if self.member_scores is None else self.member_scores[place],
            }
            for place, folder in enumerate(self.folders)
        ]
        return {self.nouns: len(self.predictions), "combined_by": self.by, "members": members, "scores": self.scores}

    def as_table(self) -> list[tuple[str, ...]]:
        """Return a header, and the scores of each member and of the ensemble; a file without golds has no scores."""
        rows = [[name] for name in ("model", *short_names(self.folders), "ensemble")]
        if self.shares is not None:
            weights = ["weight", *(f"{share:.3f}" for share in self.shares), ""]
            rows = [[*row, weight] for row, weight in zip(rows, weights, strict=True)]
        columns = self.golds.info.kind.score_columns(self.golds.info)
        cells = [_cells(columns, each) for each in [*(self.member_scores or []), self.scores or {}]]
        return [(*row, *more) for row, more in zip(rows, [list(columns), *cells], strict=True)]


def ensemble_folders(
    folders: Sequence[str | Path],
    data: str,
    out: str | Path,
    way: Way,
    settings: Settings | None = None,
    task: str | None = None,
) -> Ensembled:
    """Combine the predictions of folders for the examples of `data`, and score them where it has golds.

    Those of a run say what they are of; `task` and `settings` override that.
    """
    config, out = validate(EnsembleSettings, settings or {}, "settings"), Path(out)
    run = find_asked(folders, data, task, {"data": config.data.model_dump(exclude_unset=True)})
    places, kind = run.paths, TASKS[run.task].kind
    _check_folders(places, out)
    way.check(len(places))
    for folder in places:
        kind.check_member(folder)
    asked = read_asked(run.task, data, run.data, places)
    golds = asked.golds
    members = kind.read_members(places, data, golds)
    weights = held_out_weights(way.held_out, golds, run.data, config.answers) if way.held_out else way.weights
    shares = tuple(shares_of(way.how, weights, len(members)).tolist()) if way.how == "weighted" else None
    joined = kind.join(golds, members, way.how, shares, config.answers)
    scores, alone = _score(asked, members, joined.predictions, config.answers)
    made = Ensembled(golds, joined.predictions, joined.by, places, shares, scores, alone, config.answers.null_threshold)
    with given_folder(out, PREDICTION_FILES) as beside:
        kind.write(beside, golds, joined.predictions)
        if joined.logits is not None:
            kind.write_logits(beside, joined.layout, joined.logits)
        write_json(beside / "ensemble.json", _description(made, data, way.how, config.answers))
        write_manifest(beside)
    return made


def short_names(folders: Sequence[Path]) -> list[str]:
    """Name different folders by as many of their last parts as tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    lengths = range(1, max(map(len, parts)))
    enough = next((length for length in lengths if len({each[-length:] for each in parts}) == len(parts)), None)
    return [str(Path(*(each if enough is None else each[-enough:]))) for each in parts]


def _check_folders(folders: Sequence[Path], out: Path) -> None:
    if len(folders) < 2:
        raise SettingsError(f"an ensemble has two members or more, got {len(folders)}; give another prediction folder")
    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]:
        raise SettingsError(f"{twice[0]}: given twice; give each member once, or `how=weighted` with its weight")
    if out.resolve() in places:
        raise FolderError(f"{out}: is a member of the ensemble; choose another `out`")


def _score(
    asked: AskedFile, members: Sequence[Any], predictions: Sequence[Any], config: AnswerConfig
) -> tuple[Scores | None, list[Scores] | None]:
    golds, kind = asked.golds, asked.golds.info.kind
    if not asked.can_be_scored(predictions):
        return None, None
    alone = [kind.score(golds, kind.predictions_of(member, config), config) for member in members]
    return kind.score(golds, predictions, config), alone


def _description(made: Ensembled, data: str, how: How, config: AnswerConfig) -> dict[str, Any]:
    return {
        "members": [str(folder) for folder in made.folders],
        "method": how,
        "combined_by": made.by,
        "weights": made.shares,
        "data": data,
        "answers": config.model_dump(mode="json"),
        "bertvision": VERSION,
    }


def _cells(columns: Mapping[str, tuple[str, ...]], scores: Scores) -> list[str]:
    """Write scores as they are printed; a score that was never made is an empty cell."""
    found = [next((name for name in names if name in scores), None) for names in columns.values()]
    return ["" if name is None else _cell(name, scores[name]) for name in found]


def _cell(name: str, score: float) -> str:
    return figure(score) if name in OWN_UNIT else f"{score:.1f}"


def choose_way(how: str, weights: str | None = None, held_out: Sequence[Path] = (), data: str | None = None) -> Way:
    """Read the options of the command line, of which only some go together."""
    if how not in HOWS:
        raise SettingsError(f"`how={how}`: no such way to combine; known: {', '.join(HOWS)}")
    if bool(held_out) != (data is not None):
        raise SettingsError("`held_out` and `held_out_data` go together; give both or neither")
    if how == "weighted" and (weights is None) == (data is None):
        raise SettingsError(
            "`how=weighted` needs either `weights`, such as 0.6,0.4, or `held_out` folders, one for each member, and "
            "`held_out_data`"
        )
    if how != "weighted" and (weights is not None or data is not None):
        raise SettingsError(f"`how={how}` takes no weights; leave them out or choose `how=weighted`")
    given = parse_weights(weights) if weights is not None else None
    return Way(HOWS[how], given, HeldOutMembers(held_out, data) if data is not None else None)


def parse_weights(text: str) -> tuple[float, ...]:
    """Read `0.6,0.4`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"`weights={text}`: expected numbers, one for each DIR, such as 0.6,0.4") from None


def held_out_weights(
    held_out: HeldOutMembers, answered: Golds, data: DataConfig, config: AnswerConfig
) -> tuple[float, ...]:
    """Return how far each member's score on held-out examples is above a guess that needs no model, in points.

    For questions the F1 at a threshold of 0, above that of always answering "no answer"; at least 0.01. `answered` are
    the examples of the ensemble, none of which may be among the held-out ones: weights that know them would flatter
    the ensemble's scores.
    """
    for folder in held_out.folders:
        answered.info.kind.check_member(folder)
    asked = read_asked(answered.task, held_out.data, data, held_out.folders, answered.labels)
    golds, kind = asked.golds, answered.info.kind
    _refuse_shared(held_out.data, golds, answered)
    members = kind.read_members(held_out.folders, held_out.data, golds)
    config = config.model_copy(update={"null_threshold": 0.0})
    predictions = [kind.predictions_of(member, config) for member in members]
    if not asked.can_be_scored(predictions[0]):
        raise DataError(
            f"{held_out.data}: not all of its {kind.nouns} say what the answers are; give `weights` instead"
        )
    metric = MAIN_SCORES[answered.task]
    guess = kind.guess_scores(golds, golds.examples).get(metric, 0.0)
    gains = (kind.score(golds, each, config).get(metric, 0.0) - guess for each in predictions)
    return tuple(max(gain, LEAST_GAIN) for gain in gains)


def _refuse_shared(data: str, held_out: Golds, answered: Golds) -> None:
    kind = answered.info.kind
    seen = {kind.identity(example) for example in answered.examples}
    if shared := [example.id for example in held_out.examples if kind.identity(example) in seen]:
        raise DataError(
            f"{data}: {len(shared)} of its {kind.nouns}, such as {shared[0]!r}, are in `data` too; "
            f"hold out {kind.others}"
        )
