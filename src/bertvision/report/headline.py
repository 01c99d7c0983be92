"""Records of one experiment -> what came out, in sentences: the best model, baselines, what more data would do."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from bertvision.records import RunRecord, choose_model, silence_score, worth_of
from bertvision.report.measures import Measure, TaskMeasures, measures_of
from bertvision.report.results import (
    Result,
    data_share,
    full_results,
    largest_fraction,
    mean_interval,
    results_of,
    trained,
)
from bertvision.tables import Statistic, counted, score_cell

ENOUGH = 1.0  # points that the last doubling of the data adds, below which more would hardly be seen
TIES = "Ties go to the last layer, then to the fewest weights."
SILENCE = "“no answer” to every question"


class DataPoint(NamedTuple):
    """What a model scores with so much of the training data."""

    data: float  # rows, or percent
    score: float


class DataCurve(NamedTuple):
    """A model's scores over the amount of data, the least first."""

    name: str
    unit: str  # `training rows`, or `% of the training data`
    points: list[DataPoint]


def headline(records: Sequence[RunRecord]) -> list[str]:
    """Say which model is best, how far it lies above what it has to beat, and what more data would do."""
    best, ties = _choose(records)
    if best is None:
        return []
    measures = measures_of(records)
    found = [
        _best(best, ties, measures.main_measure),
        _beside(best, full_results(records), measures),
        _more_data(data_curves(records)),
    ]
    return [sentence for sentence in found if sentence]


def best_result(records: Sequence[RunRecord]) -> Result | None:
    """Return the model with the highest main score, or that stands for those tied with it; None without scores."""
    return _choose(records)[0]


def _choose(records: Sequence[RunRecord]) -> tuple[Result | None, str]:
    """Return the best model, and what it is tied with in words."""
    key = measures_of(records).main
    scored = {id(row.records): row for row in trained(full_results(records)) if key in row.scores}
    if not scored:
        return None, ""
    choice = choose_model([row.records for row in scored.values()], lambda record: record.scores.get(key, -math.inf))
    return scored[id(choice.best)], choice.ties


def data_curves(records: Sequence[RunRecord]) -> list[DataCurve]:
    """Return main scores over the amount of data: of regressions on fewer rows, else of heads on shares of it."""
    key = measures_of(records).main
    scored = [row for row in largest_fraction(trained(results_of(records))) if key in row.scores]
    curves: dict[str, DataCurve] = {}
    for row in scored:
        curve = curves.setdefault(row.name, DataCurve(row.name, "% of the training data", []))
        curve.points.append(DataPoint(100 * row.data, row.scores[key].mean))
    if any(len(curve.points) > 1 for curve in curves.values()):
        return list(curves.values())
    return [_fitted_curve(row.records[0], key) for row in scored if row.records[0].fewer_rows]


def _fitted_curve(record: RunRecord, key: str) -> DataCurve:
    """Return the curve of the first seed: others may have other rows."""
    points = [DataPoint(each.rows, each.scores[key]) for each in record.fewer_rows if key in each.scores]
    rows = round(record.data["train"].examples * data_share(record))
    return DataCurve(record.model, "training rows", [*points, DataPoint(rows, record.scores[key])])


def _best(best: Result, ties: str, measure: Measure) -> str:
    fraction = "" if best.fraction is None else f" at fraction {best.fraction_text}"
    bounds, dev = mean_interval(best, measure.key), best.records[0].data.get("dev")
    worth = worth_of(bounds, None if dev is None else dev.examples)
    interval = f" ({worth})" if worth else ""
    what = ties or "the best model"
    chosen = "" if dev is None else f", {what} on the {counted(dev.examples, 'example')} of dev"
    rule = f" {TIES}" if ties else ""
    return f"{best.name}{fraction}: {measure.head} {best.scores[measure.key].mean:.1f}{interval}{chosen}.{rule}"


def _beside(best: Result, rows: Sequence[Result], measures: TaskMeasures) -> str:
    """Name the baselines and controls, which a model has to beat, and say where it may have done so by chance."""
    others = [row for row in rows if row.name != best.name]
    groups = {
        "reading no text": [row for row in others if row.kind == "baseline"],
        "reading the last layer alone": [
            row for row in others if row.kind == "control" and row.fraction == best.fraction
        ],
    }
    named = {how: [text for row in group if (text := _named(best, row, measures))] for how, group in groups.items()}
    scores = {
        row.name: row.scores[measures.main].mean for row in chain(*groups.values()) if measures.main in row.scores
    }
    if (silence := silence_score(best.records[0])) is not None:
        named["reading no text"].append(f"{SILENCE} {silence:.1f}")
        scores[SILENCE] = silence
    listed = [f"{how}, {_listed(texts)}" for how, texts in named.items() if texts]
    if not listed:
        return ""
    alone = (
        " The best model reads the last layer alone too: no head on all layers beat it."
        if best.kind == "control"
        else ""
    )
    return f"Baselines: {'; '.join(listed)}.{alone}{_chance(best, scores, measures.main)}"


def _named(best: Result, row: Result, measures: TaskMeasures) -> str:
    """Write a model with its main score, or where it has none, as the mean of numbers, with one that both have."""
    if measures.main in row.scores:
        return f"{row.name} {row.scores[measures.main].mean:.1f}"
    shared = next((each for each in measures.columns if each.key in row.scores and each.key in best.scores), None)
    if shared is None:
        return ""
    own, its = (score_cell(Statistic(each.scores[shared.key].mean, None), shared.digits) for each in (best, row))
    return f"{row.name} ({shared.head} {its}, here {own})"


def _chance(best: Result, scores: Mapping[str, float], key: str) -> str:
    """Say which of these are better, and which are so near that a difference may be chance."""
    own, bounds = best.scores[key].mean, mean_interval(best, key)
    better = [name for name, score in scores.items() if score > own]
    near = [name for name, score in scores.items() if bounds is not None and bounds[0] <= score <= own]
    found = f" {_listed(better)} {'is' if len(better) == 1 else 'are'} better." if better else ""
    if near:
        verb = "lies" if len(near) == 1 else "lie"
        found += f" {_listed(near)} {verb} inside that interval: the difference may be chance."
    return found


def _more_data(curves: Sequence[DataCurve]) -> str:
    long = [curve for curve in curves if len(curve.points) > 1]
    if not long:
        return ""
    name, unit, points = max(long, key=lambda curve: curve.points[-1].score)
    amounts, scores = _listed([f"{each.data:,g}" for each in points]), _listed([f"{each.score:.1f}" for each in points])
    gain = points[-1].score - points[-2].score
    verdict = "more data may help" if gain >= ENOUGH else "more data of this kind would add little"
    return f"With {amounts} {unit} {name} has {scores}. The last step added {gain:.1f}: {verdict}."


def _listed(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]
