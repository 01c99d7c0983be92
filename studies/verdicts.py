"""Records of a study's runs -> its `StudyRecord`: each published result and claim beside ours."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from bertvision.records import GIVEN, RunRecord, merge_variants
from studies.records import JudgedClaim, JudgedResult, SeedMean, StudyRecord, Verdict
from studies.study import (
    Claim,
    Fraction,
    NumberPlace,
    PublishedResult,
    Study,
    expected_of,
    is_own_encoder,
    verdict_of,
)

# Of Student's t at 97.5%, by degrees of freedom from 1 on.
QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
BySeed = dict[int, float]
Bounds = tuple[float, float]
Analyses = Mapping[int, Mapping[str, Any]]  # by seed


class Findings(NamedTuple):
    """What a study is judged by."""

    records: Sequence[RunRecord]  # each method at its best learning rate
    analyses: Analyses = {}
    resampled: Mapping[str, Bounds] = {}  # by a claim's text: 95% of its difference, seeds and articles drawn together


class ScoredEstimate(NamedTuple):
    """A difference, or a value, and the score that it is of."""

    estimate: SeedMean
    score: str


def judge(
    study: Study,
    records: Sequence[RunRecord],
    analyses: Analyses | None = None,
    resampled: Mapping[str, Bounds] | None = None,
) -> StudyRecord:
    """Set a study's published results and claims beside what runs have given."""
    findings = Findings(merge_variants(records), analyses or {}, resampled or {})
    first = records[0]
    return StudyRecord(
        study=study.name,
        title=study.title,
        encoder=str(first.config.get("encoder", "")),
        seeds=tuple(sorted({record.seed for record in records})),
        data={name: each.name for name, each in first.data.items()},
        metric=study.metric,
        margin=study.margin,
        results=(*judge_results(study, findings), *_controls(study, findings)),
        claims=tuple(judge_claim(study, claim, findings) for claim in study.claims if claim.settled is None),
        analyses=tuple(dict(each) for _, each in sorted(findings.analyses.items())),
        provenance=first.provenance,
    )


def judge_results(study: Study, findings: Findings) -> list[JudgedResult]:
    """Judge every published result that records are of."""
    judged = []
    for each in study.published:
        ours = _scores(study, each, findings)
        if not ours:
            continue
        base = _base(study, each.against or study.against, each)
        score = next((score for score in study.scores if score in each.scores), None)
        published = None if base is None or score is None else _published_gain(study, each, base, score)
        gain = None if base is None else compare(study, each.model_copy(update={"score": score or ()}), base, findings)
        verdict = _value_verdict(study, each, ours, findings) if base is None else None
        if published is not None and gain is not None:
            verdict = verdict_of(expected_of(published, study.margin), gain.estimate, study.margin)
        judged.append(
            JudgedResult(
                row=each.row,
                fraction=fraction_at(each, findings),
                published=each.scores,
                ours=ours,
                published_gain=published,
                gain=None if gain is None else gain.estimate,
                over_control=_over_control(study, each, findings),
                verdict=verdict,
                note=each.note,
            )
        )
    return judged


def _value_verdict(
    study: Study, result: PublishedResult, ours: Mapping[str, SeedMean], findings: Findings
) -> Verdict | None:
    """Judge a result that is compared with nothing but its published value."""
    score = next((score for score in study.scores if score in result.scores and score in ours), None)
    if score is None:
        return None
    if not all(is_own_encoder(study, str(record.config.get("encoder", ""))) for record in findings.records):
        return "cannot tell"
    return verdict_of("equal", _less(ours[score], result.scores[score]), study.margin)


def judge_claim(study: Study, claim: Claim, findings: Findings) -> JudgedClaim:
    """Judge a claim; without records of it, it has no verdict."""
    found = compare(study, claim.one, claim.other, findings)
    if found is not None and claim.other is None:
        found = found._replace(estimate=_less(found.estimate, claim.published or 0.0))
    if found is not None and claim.text in findings.resampled:
        found = found._replace(estimate=_widened(found.estimate, findings.resampled[claim.text]))
    margin = claim.margin or study.margin
    is_large = margin > study.margin
    return JudgedClaim(
        text=claim.text,
        where=claim.where,
        score=None if found is None else found.score,
        published=claim.published,
        ours=None if found is None else found.estimate,
        verdict=None if found is None else verdict_of(claim.expected, found.estimate, margin, is_large=is_large),
    )


def compare(study: Study, one: NumberPlace, other: NumberPlace | None, findings: Findings) -> ScoredEstimate | None:
    """Return how far one number lies above another, seed by seed, by the first score that the records of both have."""
    asked = (one.score,) if isinstance(one.score, str) else one.score
    for score in asked or (*study.scores, *study.official):
        ours = by_seed(one, score, findings)
        theirs = dict.fromkeys(ours, 0.0) if other is None else by_seed(other, score, findings)
        if seeds := sorted(ours.keys() & theirs.keys()):
            return ScoredEstimate(estimate([ours[seed] - theirs[seed] for seed in seeds]), _name_of(one) or score)
    return None


def by_seed(place: NumberPlace, score: str, findings: Findings) -> BySeed:
    """Return the number at a place, for each seed that has it."""
    if place.analysis:
        values = {seed: _within(each, place.analysis) for seed, each in findings.analyses.items()}
    else:
        values = {record.seed: _value(place, score, record) for record in _records_at(place, findings)}
    return {seed: value for seed, value in values.items() if value is not None}


def estimate(values: Sequence[float]) -> SeedMean:
    """Return the mean of one value per seed, with its 95% interval."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return SeedMean(mean=mean, low=None, high=None, seeds=1)
    half = QUANTILES[min(count - 1, len(QUANTILES)) - 1] * stdev(values) / sqrt(count)
    return SeedMean(mean=mean, low=mean - half, high=mean + half, seeds=count)


def _widened(found: SeedMean, resampled: Bounds) -> SeedMean:
    """Let an interval over seeds reach as far as that over seeds and articles, where that reaches further."""
    if found.low is None or found.high is None:
        return found
    low, high = min(found.low, resampled[0]), max(found.high, resampled[1])
    return SeedMean(mean=found.mean, low=low, high=high, seeds=found.seeds)


def _controls(study: Study, findings: Findings) -> list[JudgedResult]:
    """Return the rows that the papers lack, at the fractions of published results that were run, or else at all."""
    listed = []
    tuned = sorted({record.fraction for record in findings.records if record.fraction is not None})
    published = dict.fromkeys(each.fraction for each in study.published)
    fractions: Sequence[Fraction] = [each for each in published if each == "last" or each in tuned] or tuned or ["last"]
    for place in (NumberPlace(row=row, fraction=fraction) for fraction in fractions for row in study.controls):
        if ours := _scores(study, place, findings):
            base = _base(study, study.against, place)
            gain = None if base is None else compare(study, place, base, findings)
            listed.append(
                JudgedResult(
                    row=place.row,
                    fraction=fraction_at(place, findings),
                    published={},
                    ours=ours,
                    gain=None if gain is None else gain.estimate,
                    over_control=_over_control(study, place, findings),
                )
            )
    return listed


def _scores(study: Study, place: NumberPlace, findings: Findings) -> dict[str, SeedMean]:
    scores = (*study.scores, *(each for each in study.official if each not in study.scores))
    found = {score: by_seed(place, score, findings) for score in scores}
    return {score: estimate(list(values.values())) for score, values in found.items() if values}


def _base(study: Study, row: str | None, place: NumberPlace) -> NumberPlace | None:
    """Return what a result is compared with; nothing for that row itself."""
    if row is None:
        return None
    fraction = place.fraction if study.against_fraction is None else study.against_fraction
    return None if (row, fraction) == (place.row, place.fraction) else NumberPlace(row=row, fraction=fraction)


def _published_gain(study: Study, place: NumberPlace, base: NumberPlace, score: str) -> float | None:
    scores = {(each.row, each.fraction): each.scores for each in study.published}
    one, other = (scores.get((each.row, each.fraction), {}).get(score) for each in (place, base))
    return None if one is None or other is None else one - other


def _over_control(study: Study, place: NumberPlace, findings: Findings) -> SeedMean | None:
    if study.control is None or place.row in (study.control, study.against):
        return None
    found = compare(study, place, NumberPlace(row=study.control, fraction=place.fraction), findings)
    return None if found is None else found.estimate


def fraction_at(place: NumberPlace, findings: Findings) -> float | None:
    """Return the fraction that a place is of."""
    return next((record.fraction for record in _records_at(place, findings)), None)


def _records_at(place: NumberPlace, findings: Findings) -> list[RunRecord]:
    found = [record for record in findings.records if record.model == place.row]
    if place.fraction == "last":
        fraction = max((_order(record) for record in found), default=GIVEN)
    else:
        fraction = GIVEN if place.fraction == "given" else place.fraction
    return [record for record in found if _order(record) == fraction]


def _order(record: RunRecord) -> float:
    return GIVEN if record.fraction is None else record.fraction


def _value(place: NumberPlace, score: str, record: RunRecord) -> float | None:
    if place.layers is not None:
        return _last_third(record.layer_weights)
    if place.epoch is None:
        return record.scores.get(score)
    if place.epoch == "best":
        return max((each[score] for each in record.epoch_scores if score in each), default=None)
    return record.epoch_scores[place.epoch - 1].get(score) if place.epoch <= len(record.epoch_scores) else None


def _last_third(weights: Sequence[float] | None) -> float | None:
    """Return the percentage of the last third; of a layer on its border, the part that lies in it."""
    if not weights:
        return None
    first, rest = divmod(2 * len(weights), 3)
    whole = sum(weights[first:]) - weights[first] * rest / 3
    return 100 * whole / sum(weights)


def _name_of(place: NumberPlace) -> str:
    """Name what is no score."""
    return f"weights of the {place.layers.replace('_', ' ')}" if place.layers else " ".join(place.analysis)


def _within(content: Any, way: Sequence[str]) -> float | None:  # noqa: ANN401 (JSON)
    for key in way:
        content = content.get(key) if isinstance(content, Mapping) else None
    return float(content) if isinstance(content, int | float) else None


def _less(found: SeedMean, value: float) -> SeedMean:
    low, high = (None if each is None else each - value for each in (found.low, found.high))
    return SeedMean(mean=found.mean - value, low=low, high=high, seeds=found.seeds)
