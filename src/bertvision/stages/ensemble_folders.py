"""Prediction folders of several models -> one of their ensemble, and how it compares with each of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import model_validator

from bertvision.errors import FolderError, SettingsError
from bertvision.files import write_json
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.ensemble import How, combine_logits, shares_of
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import Logits, save_logits
from bertvision.predictions.prediction import AnswerConfig, Prediction
from bertvision.predictions.span_ensemble import ScoredText, combine_spans
from bertvision.predictions.spans import decode_spans
from bertvision.settings import Config, Settings, validate
from bertvision.stages.ensemble_weights import Way, held_out_weights
from bertvision.stages.members import LOGITS, Member, read_members, short_names
from bertvision.stages.questions import Asked, read_questions
from bertvision.version import VERSION

COLUMNS = ("model", "EM", "F1", "best F1", "span F1")
SCORES = (("exact", "exact_match"), ("f1",), ("best_f1",), ("best_span_HasAns_f1",))  # SQuAD 2.0's name, then 1.1's
PREDICTIONS, N_BEST = "predictions.json", "nbest_predictions.json"
MAY_BE_ABSENT = ("null_odds.json", "best_spans.json", LOGITS)


class EnsembleSettings(Config):
    """What may be changed when answers are combined."""

    answers: AnswerConfig = AnswerConfig()

    @model_validator(mode="after")
    def _is_official(self) -> "EnsembleSettings":
        if self.answers.decoders != ("official",):  # paper-v1 counts word pieces, and folders hold no tokenizer
            raise ValueError("`answers.decoders`: an ensemble of folders has the official scores alone; leave it out")
        return self


class Ensembled(NamedTuple):
    """What came out."""

    predictions: list[Prediction]
    by: str  # `tokens` or `spans`
    folders: tuple[Path, ...]
    shares: tuple[float, ...] | None  # of the weights, where there are any
    scores: Scores | None  # None where the file has no answers to compare with
    member_scores: list[Scores] | None

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it, without the answers."""
        members = [
            {
                "folder": str(folder),
                "share": None if self.shares is None else self.shares[place],
                "scores": None if self.member_scores is None else self.member_scores[place],
            }
            for place, folder in enumerate(self.folders)
        ]
        return {"questions": len(self.predictions), "by": self.by, "members": members, "scores": self.scores}

    def as_table(self) -> list[tuple[str, ...]]:
        """Give a header, and the scores of each member and of the ensemble; a file without answers has no scores."""
        rows = [[name] for name in (COLUMNS[0], *short_names(self.folders), "ensemble")]
        if self.shares is not None:
            weights = ["weight", *(f"{share:.3f}" for share in self.shares), ""]
            rows = [[*row, weight] for row, weight in zip(rows, weights, strict=True)]
        scores = [list(COLUMNS[1:]), *map(_cells, [*(self.member_scores or []), self.scores or {}])]
        return [(*row, *cells) for row, cells in zip(rows, scores, strict=True)]


def ensemble_folders(
    folders: Sequence[Path], data: str, out: Path, way: Way, settings: Settings | None = None
) -> Ensembled:
    """Combine the answers of prediction folders to the questions of `data`, and score them where it has golds.

    Members on one grid are combined token by token; otherwise, and where a member scores pairs, by their spans.
    """
    _check_folders(folders, out)
    way.check(len(folders))
    config = validate(EnsembleSettings, settings or {}, "--set").answers
    asked = read_questions(data)
    members = read_members(folders, data, asked.questions)
    weights = held_out_weights(way.held_out, asked.questions, config) if way.held_out is not None else way.weights
    shares = tuple(shares_of(way.how, weights, len(members)).tolist()) if way.how == "weighted" else None
    predictions, logits = _combine(members, way.how, shares, config)
    _write(out, members[0], predictions, logits)
    scores, member_scores = _score(asked, members, predictions, config)
    by = "spans" if logits is None else "tokens"
    made = Ensembled(predictions, by, tuple(folders), shares, scores, member_scores)
    write_json(out / "ensemble.json", _description(made, data, way.how, config))
    return made


def _check_folders(folders: Sequence[Path], out: Path) -> None:
    if len(folders) < 2:
        raise SettingsError(f"an ensemble has two members or more, got {len(folders)}; give another prediction folder")
    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]:
        raise SettingsError(f"{twice[0]}: given twice; give each member once, or --how weighted with its weight")
    if other := [folder for folder in folders if (folder / PREDICTIONS).is_file() and not (folder / N_BEST).is_file()]:
        raise FolderError(
            f"{other[0]}: holds labels, numbers or tags, and this combines answers of squad1 and squad2 so far; for "
            "other tasks name the `ensembles` in the experiment's YAML"
        )
    if out.resolve() in places:
        raise FolderError(f"{out}: is a member of the ensemble; choose another --out")


def _combine(
    members: Sequence[Member], how: How, shares: Sequence[float] | None, config: AnswerConfig
) -> tuple[list[Prediction], Logits | None]:
    """Give the ensemble's answers, and its logits where the members share their tokens."""
    texts, has_null = members[0].texts, members[0].has_null
    if all(member.texts is texts and member.logits.shape[1] == 2 for member in members):
        logits = combine_logits(texts.tokens, [member.logits for member in members], how, shares)
        return decode_spans(texts, logits, config, has_null=has_null), logits
    scored = [ScoredText(member.texts, member.logits) for member in members]
    return combine_spans(scored, how, config, shares, has_null=has_null), None


def _write(out: Path, member: Member, predictions: Sequence[Prediction], logits: Logits | None) -> None:
    for name in MAY_BE_ABSENT:  # what an earlier ensemble left
        (out / name).unlink(missing_ok=True)
    write_predictions(out, predictions)
    if logits is not None:
        save_logits(out / LOGITS, member.texts.tokens, logits)


def _score(
    asked: Asked, members: Sequence[Member], predictions: Sequence[Prediction], config: AnswerConfig
) -> tuple[Scores | None, list[Scores] | None]:
    if not asked.can_be_scored(has_null=members[0].has_null):
        return None, None
    answers = (member.answers(config) for member in members)
    alone = [score_predictions(asked.questions, each, config.null_threshold) for each in answers]
    return score_predictions(asked.questions, predictions, config.null_threshold), alone


def _description(made: Ensembled, data: str, how: How, config: AnswerConfig) -> dict[str, Any]:
    return {
        "members": [str(folder) for folder in made.folders],
        "how": how,
        "by": made.by,
        "weights": made.shares,
        "data": data,
        "answers": config.model_dump(mode="json"),
        "bertvision": VERSION,
    }


def _cells(scores: Scores) -> list[str]:
    """Write scores as percentages; a score that was never made is an empty cell."""
    found = [next((scores[name] for name in names if name in scores), None) for names in SCORES]
    return ["" if score is None else f"{score:.1f}" for score in found]
