"""How members are combined, and what they count for: as given, or by their scores on held-out questions."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from bertvision.data.example import DataConfig
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.golds import read_asked
from bertvision.kinds.kind import Golds
from bertvision.predictions.ensemble import How, shares_of
from bertvision.predictions.prediction import AnswerConfig

HOWS: dict[str, How] = {how: how for how in get_args(How)}
LEAST_GAIN = 0.01  # points: a member that is no better than a guess counts for almost nothing


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
            raise SettingsError(f"got {len(self.held_out.folders)} --held-out for {members} members; give one for each")


def choose_way(how: str, weights: str | None = None, held_out: Sequence[Path] = (), data: str | None = None) -> Way:
    """Read the options of the command line, of which only some go together."""
    if how not in HOWS:
        raise SettingsError(f"--how {how}: no such way to combine; known: {', '.join(HOWS)}")
    if bool(held_out) != (data is not None):
        raise SettingsError("--held-out and --held-out-data go together; give both or neither")
    if how == "weighted" and (weights is None) == (data is None):
        raise SettingsError(
            "--how weighted needs either --weights, such as 0.6,0.4, or --held-out DIR for each member and "
            "--held-out-data FILE"
        )
    if how != "weighted" and (weights is not None or data is not None):
        raise SettingsError(f"--how {how} takes no weights; leave them out or choose --how weighted")
    given = parse_weights(weights) if weights is not None else None
    return Way(HOWS[how], given, HeldOutMembers(held_out, data) if data is not None else None)


def parse_weights(text: str) -> tuple[float, ...]:
    """Read `0.6,0.4`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--weights {text}: expected numbers, one for each DIR, such as 0.6,0.4") from None


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
            f"{held_out.data}: not all of its {kind.nouns} say what the answers are; give --weights instead"
        )
    metric = answered.info.scores[0]
    guess = kind.guess_scores(golds, golds.examples).get(metric, 0.0)
    gains = (kind.score(golds, each, config).get(metric, 0.0) - guess for each in predictions)
    return tuple(max(gain, LEAST_GAIN) for gain in gains)


def _refuse_shared(data: str, held_out: Golds, answered: Golds) -> None:
    kind = answered.info.kind
    seen = {kind.identity(example) for example in answered.examples}
    if shared := [example.id for example in held_out.examples if kind.identity(example) in seen]:
        others = "questions of other articles" if kind.asks_questions else f"other {kind.nouns}"
        raise DataError(
            f"{data}: {len(shared)} of its {kind.nouns}, such as {shared[0]!r}, are in --data too; hold out {others}"
        )
