"""How members are combined, and what they count for: as given, or by their scores on held-out questions."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.members import Member, read_members
from bertvision.evaluate.questions import read_questions
from bertvision.metrics.squad import score_predictions
from bertvision.predictions.ensemble import How, shares_of
from bertvision.predictions.prediction import AnswerConfig
from bertvision.tasks.task import Question

HOWS: dict[str, How] = {how: how for how in get_args(How)}
LEAST_GAIN = 0.01  # F1 points: a member that is no better than "no answer" counts for almost nothing


class HeldOut(NamedTuple):
    """The members' answers to other questions than the ensemble's, in the members' order."""

    folders: Sequence[Path]
    data: str


class Way(NamedTuple):
    """How members are combined; `weighted` by weights as given, or by scores on held-out questions."""

    how: How
    weights: tuple[float, ...] | None = None
    held_out: HeldOut | None = None

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
    return Way(HOWS[how], given, HeldOut(held_out, data) if data is not None else None)


def parse_weights(text: str) -> tuple[float, ...]:
    """Read `0.6,0.4`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--weights {text}: expected numbers, one for each DIR, such as 0.6,0.4") from None


def held_out_weights(held_out: HeldOut, answered: Sequence[Question], config: AnswerConfig) -> tuple[float, ...]:
    """Give each member's F1 on held-out questions above that of always answering "no answer", in points.

    At a threshold of 0, and at least 0.01. `answered` are the questions of the ensemble, none of which may be among
    the held-out ones: weights that know them would flatter the ensemble's scores.
    """
    asked = read_questions(held_out.data)
    known = {question.id for question in answered}
    if shared := [question.id for question in asked.questions if question.id in known]:
        raise DataError(
            f"{held_out.data}: {len(shared)} of its questions, such as {shared[0]!r}, are in --data too; "
            "hold out questions of other articles"
        )
    members = read_members(held_out.folders, held_out.data, asked.questions)
    if not asked.can_be_scored(has_null=members[0].has_null):
        raise DataError(f"{held_out.data}: not all of its questions say what the answers are; give --weights instead")
    return tuple(_gain(member, asked.questions, config) for member in members)


def _gain(member: Member, questions: Sequence[Question], config: AnswerConfig) -> float:
    nothing = 100 * sum(question.is_impossible for question in questions) / len(questions)
    f1 = score_predictions(questions, member.answers(config), 0.0)["f1"]
    return max(f1 - nothing, LEAST_GAIN)
