"""Two prediction files or folders and a gold file -> how the models differ; needs no torch.

And OUT/differences.json: how far methods lie from one of them on the same examples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bertvision.data.example import Question
from bertvision.data.split import cluster_of
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.evaluate.score import GoldConfig, find_asked, read_golds
from bertvision.kinds.kind import Golds, Kind
from bertvision.predictions.files import read_prediction_folder, read_values
from bertvision.records import (
    MAIN_SCORES,
    Apart,
    DifferenceRecord,
    RunRecord,
    choose,
    fraction_name,
    located_records,
    write_differences,
)
from bertvision.run_folder import folder_of_record
from bertvision.scoring.bootstrap import (
    Draw,
    Floats,
    Paired,
    Sweep,
    build_sweep,
    draw_seeds,
    interval_of,
    mcnemar_p_value,
    resample_best_f1,
)
from bertvision.scoring.disagreements import Outcomes, outcome_section
from bertvision.scoring.metrics import OWN_UNIT
from bertvision.settings import Settings, validate
from bertvision.tables import Cell, Number, Page, Table, figure, number_cell, p_cell
from bertvision.tasks import TASKS, task_name

Choice = TypeVar("Choice")
UNITS = {"question": "question", "article": "article"}
P_VALUE = "p: twice the smaller share of resampled differences at or beyond 0."


class CompareConfig(NamedTuple):
    """What is compared and how."""

    metric: str | None = None  # None: all of the task's
    clusters: str = "question"
    resamples: int = 10_000
    seed: int = 1
    task: str | None = None  # None: that of the run that the predictions are of, or squad2
    settings: Settings = {}  # how the gold file is laid out, on top of what the run says


USUAL = CompareConfig()


@dataclass(frozen=True)
class ScoreDifference:
    """One metric of both models, in percent but for `rmse` and `mae`; None is a value that there is not."""

    metric: str
    a: float | None
    b: float | None
    difference: float | None = None  # b - a
    low: float | None = None  # of the 95% interval
    high: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Comparison:
    """How two models differ."""

    names: tuple[str, str]
    golds: Golds
    resampled: str  # what was drawn
    units: int  # of these
    resamples: int
    seed: int
    differences: tuple[ScoreDifference, ...]
    undefined: int  # resamples in which some score has no value, such as a correlation of equal numbers
    outcomes: dict[str, Outcomes] | None  # by group; None where predictions are not right or wrong
    mcnemar_p_value: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        kind = self.golds.info.kind
        return {
            "a": self.names[0],
            "b": self.names[1],
            **kind.head(self.golds),
            "resampled": self.resampled,
            "units": self.units,
            "resamples": self.resamples,
            "seed": self.seed,
            "differences": [asdict(each) for each in self.differences],
            **({"undefined": self.undefined} if kind.may_lack_scores else {}),
            "outcomes": {name: each._asdict() for name, each in self.outcomes.items()} if self.outcomes else None,
            "mcnemar_p_value": self.mcnemar_p_value,
        }

    def as_page(self) -> Page:
        """Return everything as it is printed."""
        head = f"{len(self.golds.examples):,} {self.golds.info.kind.nouns}"
        return Page((head, f"A: {self.names[0]}", f"B: {self.names[1]}"), self._sections(), [])

    def _sections(self) -> list[Table]:
        kind = self.golds.info.kind
        note = f"Paired bootstrap: {self.resamples:,} resamples of {self.units:,} {self.resampled}s, seed {self.seed}. "
        note += P_VALUE
        if self.undefined:
            note += f" Left out: {self.undefined:,} resamples in which a score has no value."
        scores = _difference_section(self.differences, note)
        if self.outcomes is None or self.mcnemar_p_value is None:
            return [scores]
        p_value = p_cell(self.mcnemar_p_value)
        mcnemar = f"McNemar's exact test on only A against only B, all {kind.nouns}: p {p_value}."
        return [scores, outcome_section(self.outcomes, mcnemar, kind.right, kind.nouns)]


def compare_files(
    one: str | Path, other: str | Path, gold: str | None = None, config: CompareConfig = USUAL
) -> Comparison:
    """Compare the predictions of two models for the same examples.

    Those of a run, or a run folder (its best model's), say what they are of; `gold` is by default the run's dev file.
    """
    asked = find_asked((one, other), gold, config.task, config.settings)
    name, (one, other) = asked.task, asked.paths
    kind = TASKS[name].kind
    unit = _choice("clusters", config.clusters, UNITS)
    if unit == "article" and kind.cluster != unit:
        raise SettingsError(f"`clusters=article`: task {name} has no articles; leave it out")
    metrics = kind.metrics(TASKS[name])
    if config.metric is not None:
        metrics = (_choice("metric", config.metric, {metric: metric for metric in metrics}),)
    golds = asked.read_golds(gold)
    a, b = (kind.read_predictions(path, golds) for path in (one, other))
    return compare_predictions(
        *(golds, a, b, metrics),
        Draw(units_of(golds.examples, unit), config.resamples, config.seed),
        names=(str(one), str(other)),
        resampled=kind.noun if unit == "question" else unit,
    )


def compare_predictions(
    golds: Golds,
    a: Any,  # noqa: ANN401 (predictions of the golds' kind)
    b: Any,  # noqa: ANN401
    metrics: Sequence[str],
    draw: Draw,
    names: tuple[str, str] = ("A", "B"),
    resampled: str | None = None,
) -> Comparison:
    """Compare two models' predictions, which come in the order of the golds."""
    kind = golds.info.kind
    paired, outcomes = kind.pair(golds, a, b, metrics, draw), kind.outcomes(golds, a, b)
    found = [each.differences for each in paired.values() if each.differences is not None]
    return Comparison(
        names=names,
        golds=golds,
        resampled=resampled or kind.noun,
        units=int(draw.units.max()) + 1,
        resamples=draw.resamples,
        seed=draw.seed,
        differences=tuple(_difference(metric, each) for metric, each in paired.items()),
        undefined=max((int(np.isnan(each).sum()) for each in found), default=0),
        outcomes=outcomes,
        mcnemar_p_value=mcnemar_p_value(outcomes["all"].only_a, outcomes["all"].only_b) if outcomes else None,
    )


def units_of(examples: Sequence[Any], unit: str) -> npt.NDArray[np.int64]:
    """Return which unit each example is drawn with: itself, or its article."""
    if unit == "question":
        return np.arange(len(examples))
    return _articles_of(examples)


def clusters_of(kind: Kind, examples: Sequence[Any]) -> tuple[str, npt.NDArray[np.int64]]:
    """Return what examples are like each other in (articles, documents), where there are several, else themselves."""
    numbers: dict[str, int] = {}
    units = np.array([numbers.setdefault(cluster_of(each), len(numbers)) for each in examples])
    if kind.cluster is None or len(numbers) < 2:
        return kind.noun, np.arange(len(examples))
    return kind.cluster, units


def _articles_of(questions: Sequence[Question]) -> npt.NDArray[np.int64]:
    titles = {title: number for number, title in enumerate(dict.fromkeys(each.title for each in questions))}
    if len(titles) < 2:
        raise DataError(
            "the gold file has a single article title, so articles cannot be resampled; leave `clusters` out"
        )
    return np.array([titles[each.title] for each in questions])


def _difference(metric: str, paired: Paired) -> ScoreDifference:
    if paired.a is None or paired.b is None or paired.differences is None:
        return ScoreDifference(metric, paired.a, paired.b)
    return ScoreDifference(metric, paired.a, paired.b, paired.b - paired.a, *interval_of(paired.differences))


def _difference_section(differences: Sequence[ScoreDifference], note: str) -> Table:
    """Lay out differences; what has no value is an empty cell."""
    rows = tuple(_difference_row(each) for each in differences)
    return Table("Scores", ("metric", "A", "B", "B - A", "95% interval", "p"), rows, note)


def _difference_row(each: ScoreDifference) -> tuple[str, ...]:
    numbers = (_cell(each.metric, each.a), _cell(each.metric, each.b), _cell(each.metric, each.difference, "+"))
    low, high = (_cell(each.metric, bound, "+") for bound in (each.low, each.high))
    return (
        each.metric,
        *numbers,
        f"{low} to {high}" if low else "",
        "" if each.p_value is None else p_cell(each.p_value),
    )


def _cell(metric: str, value: float | None, sign: str = "") -> str:
    if metric not in OWN_UNIT or value is None:
        return number_cell(value, 2, sign)
    return figure(value, sign)


def _choice(option: str, name: str, choices: Mapping[str, Choice]) -> Choice:
    if name not in choices:
        raise SettingsError(f"--{option} {name}: expected one of {', '.join(choices)}")
    return choices[name]


INTERVAL = "95% interval"
BEST_COLUMNS = ("best", INTERVAL)
RESAMPLES, SEED = 10_000, 1
Key = tuple[str, float | None, str]  # an experiment, a fraction, and the name of a row


class Shown(NamedTuple):
    """A record that a report shows, the name of its row, and the folder of its predictions, which may be absent."""

    record: RunRecord
    row: str
    place: Path

    @property
    def answers(self) -> Path:
        """Name the file without which there is nothing to compare."""
        return self.place / "predictions.json"


class ScoredVariant(NamedTuple):
    """A row at a fraction, with its score of all examples, then of resamples, by seed."""

    experiment: str
    fraction: float | None
    row: str
    scores: dict[int, Floats]  # the task's main one
    bests: dict[int, Floats]  # the best F1 at any threshold of "no answer", where the files for it are there


class Resampled(NamedTuple):
    """What all comparisons of a folder share."""

    golds: Golds
    cluster: str  # what is drawn
    draw: Draw

    @property
    def metric(self) -> str:
        """Name the task's main score."""
        return MAIN_SCORES[self.golds.task]


class Differences(NamedTuple):
    """What was found, and where it was written."""

    differences: list[DifferenceRecord]
    path: Path

    def as_table(self) -> Table:
        """Lay out comparisons below headings of what they share; best thresholds only where one has them."""
        has_best = any(each.best for each in self.differences)
        metrics = dict.fromkeys(each.metric for each in self.differences)
        score = " or ".join("F1" if each == "f1" else each for each in metrics)
        columns = ("model", score, INTERVAL, *(BEST_COLUMNS if has_best else ()))
        rows: list[tuple[Cell, ...]] = []
        for heading, group in groupby(sorted(self.differences, key=_heading), key=_heading):
            rows += [(heading,), *(_cells(each)[: len(columns)] for each in group)]
        return Table("", columns, tuple(rows))


def compare_folder(out: Path, gold: str | None = None, against: str = "full") -> Differences:
    """Compare every row that a report of a run folder shows with one of them at the same fraction.

    Without `gold`, the examples are those that the run itself has answered.
    """
    shown = _of_one_task(out, _find_shown(out), against)
    there = [each for each in shown if each.answers.exists()]
    _check_rows(out, shown, there, against)
    gold = gold or str(there[0].record.config["data"]["dev"])
    resampled = _read_golds(there, gold, RESAMPLES)
    answered = _read_answered(there, gold, resampled)
    differences = [each for row in answered for each in _compare(row, answered, against, resampled)]
    if not differences:
        raise FolderError(
            f"{out}: no row shares an experiment, a fraction and a seed with {against!r}; run the others with its "
            f"fractions and seeds, or choose another of {_names(there)} with `against`"
        )
    return Differences(differences, write_differences(out, differences))


def resample_rows(shown: Sequence[Shown], gold: str, resamples: int = RESAMPLES) -> list[ScoredVariant]:
    """Score rows of one task on all examples and on the same resamples of them."""
    return _read_answered(shown, gold, _read_golds(shown, gold, resamples))


def _find_shown(out: Path) -> list[Shown]:
    """Find the rows that a report shows; refuse a folder without variants."""
    places = located_records(out)
    if not places:
        lack = "no records (*-seed*.json) below it" if out.is_dir() else "no such folder"
        raise FolderError(f"{out}: {lack}; give the run folder of an experiment with `variants`")
    run_of = {id(record): run for record, run in places if record.method is not None}
    if not run_of:
        raise FolderError(
            f"{out}: no record of a variant among its {len(places):,}, such as {places[0][0].run}, expected "
            "those of an experiment with `variants`; compare two predictions with `bertvision compare`"
        )
    chosen = choose(record for record, _ in places if id(record) in run_of)
    models = [(record, row) for record, row in chosen if record.kind != "baseline"]  # these have no predictions
    return [Shown(record, row, predictions_of(record, run_of[id(record)])) for record, row in models]


def _of_one_task(out: Path, shown: Sequence[Shown], against: str) -> Sequence[Shown]:
    """Return the rows of the task of the row that others are compared with; all, where there is no such row."""
    tasks = sorted({each.record.task for each in shown if each.row == against})
    if len(tasks) > 1:
        raise FolderError(f"{out}: {against!r} is a row of {' and '.join(tasks)}; give the folder of one of them")
    return [each for each in shown if each.record.task in tasks] if tasks else shown


def _read_golds(there: Sequence[Shown], gold: str, resamples: int) -> Resampled:
    """Read the examples that were answered, and find what is to be drawn of them."""
    record = there[0].record
    data = validate(GoldConfig, {"data": record.config.get("data", {})}, str(there[0].place)).data
    golds = read_golds(task_name(record.task), gold, data, [each.place for each in there])
    cluster, units = clusters_of(golds.info.kind, golds.examples)
    return Resampled(golds, cluster, Draw(units, resamples, SEED))


def predictions_of(record: RunRecord, run: Path) -> Path:
    """Find a record's predictions in its run folder."""
    return folder_of_record(run, record).predictions(record.model)


def _check_rows(out: Path, shown: Sequence[Shown], there: Sequence[Shown], against: str) -> None:
    """Refuse a choice of rows, those with predictions among those shown, that leaves nothing to compare."""
    if not there:
        raise FolderError(
            f"{out}: records but no predictions beside them, expected {shown[0].answers}; give the folder that "
            "`bertvision run` wrote, or copy its predictions here"
        )
    rows = {each.row for each in there}
    missing = [each.answers for each in shown if each.row == against]
    if missing and against not in rows:
        raise FolderError(
            f"{out}: no predictions of {against!r}, expected {missing[0]}; rows that have them are {_names(there)}; "
            "copy its predictions here, or choose one of those with `against`"
        )
    if len(rows) == 1:
        raise FolderError(
            f"{out}: only one row with predictions, {_names(there)}, expected two or more; run more variants into the "
            "same folder, or give the folder above if this is one variant's"
        )
    if against not in rows:
        methods = [each.record.method for each in shown if each.record.variant == against]
        called = [f"that variant's row is called {each}: `against={each}`" for each in methods if each in rows]
        advice = called[0] if called else "choose one with `against`"
        raise FolderError(f"{out}: no row {against!r}; its rows are {_names(there)}; {advice}")


def _names(shown: Iterable[Shown]) -> str:
    return ", ".join(dict.fromkeys(each.row for each in shown))


def _read_answered(shown: Sequence[Shown], gold: str, resampled: Resampled) -> list[ScoredVariant]:
    """Read the answers of all rows, and score them all at once, for they share their resamples."""
    golds, draw, kind = resampled.golds, resampled.draw, resampled.golds.info.kind
    for each in shown:
        _check_covered(each, gold, golds)
    models = [kind.read_predictions(each.place, golds) for each in shown]
    sweeps = [_read_sweep(each.place, golds) if kind.has_null else None for each in shown]
    known = [sweep for sweep in sweeps if sweep is not None]
    bests = iter(resample_best_f1(known, draw) if known else ())
    found: dict[Key, ScoredVariant] = {}
    for (record, row, _), scores, sweep in zip(
        shown, kind.resample(golds, models, resampled.metric, draw), sweeps, strict=True
    ):
        key = (record.experiment, record.fraction, row)
        scored = found.setdefault(key, ScoredVariant(*key, {}, {}))
        scored.scores[record.seed] = scores
        if sweep is not None:
            scored.bests[record.seed] = next(bests)
    return list(found.values())


def _read_sweep(place: Path, golds: Golds) -> Sweep | None:
    folder = read_prediction_folder(place, with_candidates=False)
    if folder.best_spans is None or folder.null_odds is None:
        return None
    return build_sweep(golds.examples, folder.best_spans, folder.null_odds)


def _check_covered(shown: Shown, gold: str, golds: Golds) -> None:
    answers, nouns = read_values(shown.place), golds.info.kind.nouns
    if odd := answers.keys() ^ {example.id for example in golds.examples}:
        raise DataError(
            f"{shown.place}: its {len(answers):,} answers are not to the {len(golds.examples):,} {nouns} of "
            f"{gold}, such as {min(odd)!r}; give the file that its record was scored on: "
            f"`gold={shown.record.data['dev'].name}`"
        )


def _compare(
    row: ScoredVariant, answered: Sequence[ScoredVariant], against: str, resampled: Resampled
) -> Iterator[DifferenceRecord]:
    for other in answered:
        is_other = other.row == against != row.row
        seeds = sorted(row.scores.keys() & other.scores.keys())
        if is_other and (other.experiment, other.fraction) == (row.experiment, row.fraction) and seeds:
            apart = apart_by_seed(row.scores, other.scores, seeds)
            has_bests = row.bests.keys() & other.bests.keys() >= set(seeds)  # so that both are of the same seeds
            yield DifferenceRecord(
                experiment=row.experiment,
                model=row.row,
                fraction=row.fraction,
                against=against,
                seeds=tuple(seeds),
                metric=resampled.metric,
                example=resampled.golds.info.kind.noun,
                resampled=(resampled.cluster, *(["seed"] if len(seeds) > 1 else [])),
                best=apart_by_seed(row.bests, other.bests, seeds) if has_bests else None,
                **apart.model_dump(),
            )


def apart_by_seed(one: Mapping[int, Floats], other: Mapping[int, Floats], seeds: Sequence[int]) -> Apart:
    """Compare two rows seed by seed; seeds are drawn together with what examples are like each other in."""
    by_seed = np.stack([one[seed] - other[seed] for seed in seeds])
    low, high, p_value = interval_of(draw_seeds(by_seed[:, 1:], SEED))
    whole = by_seed[:, 0]
    return Apart(difference=float(whole.mean()), low=low, high=high, p_value=p_value, by_seed=tuple(whole.tolist()))


def _heading(each: DifferenceRecord) -> str:
    seeds = ", ".join(map(str, each.seeds))
    many = "seeds" if len(each.seeds) > 1 else "seed"
    return f"{each.experiment}, fraction {fraction_name(each.fraction)}, {many} {seeds}, less {each.against}"


def _cells(each: DifferenceRecord) -> tuple[Cell, ...]:
    best: tuple[Cell, ...] = ("", "") if each.best is None else _apart_cells(each.best)
    return (each.model, *_apart_cells(each), *best)


def _apart_cells(each: Apart) -> tuple[Cell, ...]:
    return (Number(each.difference, "+.2f"), f"{each.low:+.2f}..{each.high:+.2f}")
