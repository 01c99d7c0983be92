"""Records of one experiment -> its tables: all results, fractions side by side, what probabilities are worth."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from bertvision.records import (
    LEAST_EXAMPLES,
    Apart,
    DifferenceRecord,
    RunRecord,
    fraction_name,
    is_best_silent,
    merge_variants,
    tuned_for,
)
from bertvision.report.measures import CALIBRATION, Measure, measures_of
from bertvision.report.results import (
    Evidence,
    Result,
    ResultColumn,
    by_experiment,
    full_results,
    mean_interval,
    result_table,
    results_of,
    trained,
)
from bertvision.tables import Cell, Cells, Column, Number, Table, score_cell, share_text

MODELS = "All models by fraction"
CALIBRATED = "Thresholds and probabilities"
BEST_THRESHOLD, BELOW_ALL, TOO_FEW = "best_f1_thresh", "below all odds", "too few examples"
# Seeds are told apart because a bootstrap of questions cannot know what another training would have answered.
DIFFERENCES_NOTE = "Intervals are the middle 95% over resampled {drawn}, paired"
THESE_SEEDS = (
    ", of these very trainings: with other seeds the same methods may lie further apart, as the columns “by seed” show"
)
BEST_NOTE = " “Best” is at the threshold for “no answer” that suits each row best, chosen anew in every resample."
BEST_DIFFERENCES = ("F1 best", "95% interval", "by seed")


def score_tables(evidence: Evidence) -> list[Table]:
    """Lay out all results, fractions side by side where there are several, and what probabilities are worth."""
    records = evidence.records
    found = [results_table(records), models_table(records)]
    return [table for table in (*found, calibration_table(records)) if table is not None]


def results_table(records: Sequence[RunRecord]) -> Table:
    """Lay out records of one task as a table with a row per model and fraction; one experiment at a time reads best."""
    results = results_of(records)
    measures = measures_of(records)
    scores = [_score_column(measure) for measure in measures.columns]
    scores.insert(measures.columns.index(measures.main_measure) + 1, _interval_column(measures.main_measure))
    is_tuned = any(result.fraction is not None for result in results)
    leading = [column for column in LEADING if column != KIND and (is_tuned or column.head != "fraction")]
    # A phone shows the first columns: models and scores.
    return result_table(_title(records), [*leading, *scores, KIND, *COST, SECONDS], results)


def terminal_table(records: Sequence[RunRecord]) -> Table:
    """Lay out the same results for a terminal: fewer and shorter columns, the fraction first."""
    results = results_of(records)
    columns = [column._replace(head=column.short) for column in _columns(results) if column.short is not None]
    return result_table("", columns, results, _terminal_note(records))


def terminal_tables(records: Sequence[RunRecord]) -> list[Table]:
    """Lay out a table per experiment for a terminal, variants as one together and each at its best rate."""
    return [_by_tuning(name, group) for name, group in by_experiment(merge_variants(records)).items()]


def models_table(records: Iterable[RunRecord]) -> Table | None:
    """Lay out one row per model and the fractions side by side, as the papers do; None where there is one fraction."""
    results = full_results(records)
    fractions = list(dict.fromkeys(result.fraction for result in trained(results)))
    if len(fractions) < 2:
        return None
    pairs = _pairs(results)
    models: dict[str, dict[float | None, Result]] = {}
    for result in results:
        models.setdefault(result.name, {})[result.fraction] = result
    heads = [f"{fraction_name(fraction)}: {head}" for fraction in fractions for head in pairs]
    rows = tuple(_model_cells(found, fractions, pairs) for found in models.values())
    return Table(MODELS, ("model", *(column.head for column in COST), *heads), rows)


def calibration_table(records: Iterable[RunRecord]) -> Table | None:
    """Lay out temperature, calibration errors, area and thresholds; None where no result has probabilities."""
    results = [each for each in results_of(records) if "ece" in each.scores or "tuned_threshold" in each.scores]
    if not results:
        return None
    return result_table(CALIBRATED, [*LEADING, *map(_calibration_column, CALIBRATION)], results)


def difference_tables(evidence: Evidence) -> list[Table]:
    """Lay out how far one experiment's results lie from each that they were compared with."""
    own = [each for each in evidence.differences if each.experiment == evidence.records[0].experiment]
    place_of = {(result.fraction, result.name): place for place, result in enumerate(results_of(evidence.records))}
    shown = sorted((each for each in own if _key(each) in place_of), key=lambda each: place_of[_key(each)])
    return [
        _difference_table(against, [each for each in shown if each.against == against], evidence.records)
        for against in dict.fromkeys(each.against for each in shown)
    ]


def _title(records: Sequence[RunRecord]) -> str:
    tasks = ", ".join(dict.fromkeys(record.task for record in records))
    seeds = sorted({record.seed for record in records})
    return f"Scores on {tasks}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _by_tuning(name: str, records: Sequence[RunRecord]) -> Table:
    """Put how long the encoder was tuned above the rows, rather than into a column."""
    table = terminal_table(records)
    rows: list[Cells] = []
    for fraction, group in groupby(table.rows, key=lambda row: str(row[0])):
        rows += [(f"[{_tuned_for(fraction)}]",), *(row[1:] for row in group)]
    seeds = len({record.seed for record in records})
    title = f"{name}, mean of {seeds} seeds" if seeds > 1 else name
    return replace(table, title=title, columns=table.columns[1:], rows=tuple(rows))


def _tuned_for(fraction: str) -> str:
    known = {"": "baseline", "given": "encoder as given", "0": "encoder untuned"}
    return known[fraction] if fraction in known else f"encoder tuned for {tuned_for(float(fraction))}"


def _terminal_note(records: Sequence[RunRecord]) -> str:
    """Name the thresholds of a terminal's columns; nothing where a task has none."""
    named = [measure for measure in measures_of(records).columns if measure.at and measure.short]
    texts = [f"{each.short} {each.at}" if each.short == each.title else f"{each.short}: {each.head}" for each in named]
    return f"By the threshold for “no answer”: {', '.join(texts)}." if texts else ""


def _columns(results: Sequence[Result]) -> list[ResultColumn]:
    measures = measures_of([record for result in results for record in result.records]).columns
    return [*LEADING, *COST, *map(_score_column, measures), SECONDS]


def _score_column(measure: Measure) -> ResultColumn:
    short = measure.title if measure.short is None else measure.short or None

    def cell(result: Result) -> Cell:
        return score_cell(result.scores.get(measure.key), measure.digits)

    return ResultColumn(measure.head, cell, measure.meaning, short=short)


def _calibration_column(measure: Measure) -> ResultColumn:
    column = _score_column(measure)
    if measure.key != BEST_THRESHOLD:
        return column

    def cell(result: Result) -> Cell:
        silent = sum(map(is_best_silent, result.records))
        if silent in (0, result.seeds):
            return BELOW_ALL if silent else column.cell(result)
        return f"{BELOW_ALL} in {silent} of {result.seeds}"  # a mean with the official 0 in it would say nothing

    return column._replace(cell=cell)


def _interval_column(measure: Measure) -> ResultColumn:
    def cell(result: Result) -> Cell:
        bounds, dev = mean_interval(result, measure.key), result.records[0].data.get("dev")
        if bounds is None:
            return TOO_FEW if dev is not None and dev.examples < LEAST_EXAMPLES else ""
        return f"{bounds[0]:.1f} to {bounds[1]:.1f}"

    about = (
        f"where the {measure.head} of this very training lies on all such examples, with 95% confidence: exact for a "
        "share of right examples, else from resamples of dev"
    )
    return ResultColumn("95% interval", cell, about)


def _pairs(results: Sequence[Result]) -> dict[str, list[Measure]]:
    """Gather the measures that share a cell, such as EM and F1 at one threshold, by the head of their column."""
    measures = [each for each in measures_of([result.records[0] for result in results]).columns if each.is_paired]
    groups = [(at, list(group)) for at, group in groupby(measures, key=lambda measure: measure.at)]
    return {f"{' / '.join(measure.title for measure in group)} {at}".rstrip(): group for at, group in groups}


def _model_cells(
    by_fraction: Mapping[float | None, Result],
    fractions: Sequence[float | None],
    pairs: Mapping[str, Sequence[Measure]],
) -> tuple[Cell, ...]:
    first = next(iter(by_fraction.values()))
    cells: list[Cell] = [first.name, *(column.cell(first) for column in COST)]
    for fraction in fractions:
        result = first if first.kind == "baseline" else by_fraction.get(fraction)
        cells += [_pair_text(result, measures) for measures in pairs.values()]
    return tuple(cells)


def _pair_text(result: Result | None, measures: Sequence[Measure]) -> str:
    texts = [] if result is None else [str(score_cell(result.scores.get(each.key), each.digits)) for each in measures]
    return " / ".join(texts) if all(texts) else ""


def _key(each: DifferenceRecord) -> tuple[float | None, str]:
    return (each.fraction, each.model)


def _difference_table(against: str, differences: Sequence[DifferenceRecord], records: Sequence[RunRecord]) -> Table:
    first, has_best = differences[0], any(each.best is not None for each in differences)
    score = next((each.head for each in measures_of(records).columns if each.key == first.metric), first.metric)
    columns = (Column("fraction", "left"), Column("model", "left"), score, "95% interval", "by seed")
    rows = tuple(
        (fraction_name(each.fraction), each.model, *_cells(each), *(_cells(each.best) if has_best else ()))
        for each in differences
    )
    title = f"{first.example.capitalize()} by {first.example}, less {against}"
    return Table(title, (*columns, *(BEST_DIFFERENCES if has_best else ())), rows, _difference_note(differences))


def _difference_note(differences: Sequence[DifferenceRecord]) -> str:
    """Say what was resampled; of comparisons that were resampled in different ways, what holds for all."""
    drawn = [f"{unit}s" for unit in differences[0].resampled if all(unit in each.resampled for each in differences)]
    note = DIFFERENCES_NOTE.format(drawn=" and ".join(drawn)) + ("" if "seeds" in drawn else THESE_SEEDS) + "."
    return note + (BEST_NOTE if any(each.best is not None for each in differences) else "")


def _cells(each: Apart | None) -> tuple[Cell, ...]:
    if each is None:
        return ("", "", "")
    by_seed = ", ".join(f"{difference:+.2f}" for difference in each.by_seed)
    return (Number(each.difference, "+.2f"), f"{each.low:+.2f} to {each.high:+.2f}", by_seed)


def _parameters(result: Result) -> Cell:
    return "" if result.kind == "baseline" else Number(result.parameters, ",")


def _share(result: Result) -> Cell:
    return "" if result.share is None else share_text(result.share)


def _seconds(result: Result) -> Cell:
    if result.kind == "baseline":
        return ""
    return Number(result.seconds, ",.0f" if result.seconds >= 10 else ".1f")


KIND = ResultColumn("kind", lambda result: result.kind, alignment="left")
LEADING = (
    ResultColumn(
        "experiment",
        lambda result: result.experiment,
        alignment="left",
        is_shown=lambda results: len({result.experiment for result in results}) > 1,
    ),
    ResultColumn("fraction", lambda result: result.fraction_text, alignment="left", short="fraction"),
    ResultColumn("model", lambda result: result.name, alignment="left", short="model"),
    KIND,
    ResultColumn(
        "data",
        lambda result: f"{100 * result.data:g}%",
        "share of the training data that heads were trained on",
        is_shown=lambda results: len({result.data for result in results}) > 1,
        short="data",
    ),
    ResultColumn(
        "seeds",
        lambda result: Number(result.seeds, "d"),
        "how many times the row was trained, each from another random start",
        is_shown=lambda results: len({result.seeds for result in trained(results)}) > 1,
        short="seeds",
    ),
)
COST = (
    ResultColumn(
        "parameters",
        _parameters,
        "how many numbers were trained and are added to the encoder; rows with the encoder itself in them count all of "
        "it that was trained",
        short="parameters",
    ),
    ResultColumn("% of encoder", _share),
)
SECONDS = ResultColumn(
    "seconds",
    _seconds,
    "training time until the row exists: the fine-tuning up to that fraction, and the one pass that trained all heads "
    "together",
    short="secs",
)
