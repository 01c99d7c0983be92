"""Records of one experiment -> its tables: all results, fractions side by side, what probabilities are worth.

What its best model takes for what, lists of examples to read, and the learning rates that each row was tried with.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from bertvision.records import (
    GIVEN,
    LEAST_EXAMPLES,
    Apart,
    DifferenceRecord,
    Mistake,
    MistakesRecord,
    Rate,
    RunRecord,
    Tried,
    fraction_name,
    held_out_metric,
    is_best_silent,
    merge_variants,
    tried_rates,
    tuned_for,
)
from bertvision.report.headline import best_result
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


MOST_CLASSES = 12  # of a whole matrix
COMMONEST = 20  # confusions of more classes


class ExampleList(NamedTuple):
    """Examples to read, under a title."""

    title: str
    note: str
    examples: list[Mistake]


def confusion_tables(evidence: Evidence) -> list[Table]:
    """Lay out which class the best model takes for which; the commonest confusions where there are many classes."""
    best = best_result(evidence.records)
    confusions = {} if best is None else best.records[0].confusions
    if best is None or not confusions:
        return []
    if len(confusions) > MOST_CLASSES:
        return [_commonest(best.name, confusions)]
    columns = (Column("true", "left"), *(Column(f"predicted {name}") for name in confusions))
    rows: list[Cells] = [
        (gold, *(Number(said.get(name, 0), ",") for name in confusions)) for gold, said in confusions.items()
    ]
    return [Table(f"Confusion matrix of {best.name} on dev", columns, tuple(rows))]


def example_lists(records: Sequence[RunRecord], mistakes: Sequence[MistakesRecord]) -> list[ExampleList]:
    """List the best model's worst errors, and rows that look mislabelled; nothing where the run folder is gone."""
    best = best_result(records)
    if best is None:
        return []
    own = next((each for each in mistakes if each.is_of(best.records[0])), None)
    found = [_errors(own), _suspects(own, records, mistakes)] if own is not None else []
    return [each for each in found if each.examples]


def _errors(own: MistakesRecord) -> ExampleList:
    order = "the surest first" if any(each.probability is not None for each in own.errors) else "the worst first"
    count = len(own.errors)
    wrong = (
        f"{own.wrong:,} of {own.examples:,} examples of dev are wrong; here are "
        if own.wrong is not None
        else "Here are "
    )
    return ExampleList(f"Errors of {own.model} to read", f"{wrong}{count}, {order}.", own.errors)


def _suspects(own: MistakesRecord, records: Sequence[RunRecord], mistakes: Sequence[MistakesRecord]) -> ExampleList:
    """List training rows where a regression was cross-validated on them, of several the best one, else rows of dev."""
    key = measures_of(records).main
    ordered = sorted(records, key=lambda record: -record.scores.get(key, 0.0))
    known = [each for record in ordered for each in mistakes if "train" in each.checked and each.is_of(record)]
    source, split = (known[0], "train") if known else (own, "dev")
    shown = [each for each in source.mislabelled if each.split == split]
    checked, found = source.checked.get(split, 0), source.suspects.get(split, 0)
    how = "fitted without them" if split == "train" else "which has not seen them"
    note = (
        f"Of {checked:,} examples of {split} {found:,} have a label that {source.model}, {how}, doubts"
        f"{f'; these are {len(shown)} of them' if len(shown) < found else ''}. Read them before you trust either: a "
        "model that is often wrong doubts many right labels."
    )
    return ExampleList("Rows that look mislabelled", note, shown)


def _commonest(name: str, confusions: dict[str, dict[str, int]]) -> Table:
    counts = Counter(
        {(gold, said): count for gold, of in confusions.items() for said, count in of.items() if said != gold}
    )
    rows = tuple((gold, said, Number(count, ",")) for (gold, said), count in counts.most_common(COMMONEST))
    return Table(
        f"Commonest confusions of {name} on dev",
        (Column("true", "left"), Column("predicted", "left"), "examples"),
        rows,
    )


CAPTION = "Learning rates, chosen on held-out examples"
READING = (
    "Rates from the lowest to the highest, each with its held-out {score} at the largest fraction that all "
    "rates of the row have: the mean over the seeds that they share there (where they share none, over each one's "
    "own). A row has its rate at every fraction."
)
TWO = (
    "A head's rate and that of the encoder below it are chosen together; where several of both were tried, they count "
    "as two choices."
)
TIE = "tie"
TIES = "Rates that tie for the best count for neither end."
BELOW = "encoder rate"
NONE = "none"


class Attempt(NamedTuple):
    """A row's rate and its held-out score; attempts sort by the rate of the encoder below a head, then by their own."""

    below: float  # 0 where the row is no head
    rate: float
    text: str
    score: str


class RateChoice(NamedTuple):
    """A row that was tried with several rates, and the best of them."""

    tried: Tried
    attempts: list[Attempt]
    best: Attempt
    ties: list[Attempt]  # those as good as the best, itself among them

    @property
    def by_below(self) -> dict[float, list[Attempt]]:
        """Split the attempts by the encoder's rate below them: a line of the table each."""
        return {below: [each for each in self.attempts if each.below == below] for below, *_ in self.attempts}

    @property
    def end(self) -> str:
        """Return whether the row's own rate is the lowest or the highest of those tried, or no better than another."""
        return _end({each.rate for each in self.ties}, {each.rate for each in self.attempts})

    @property
    def ends(self) -> list[str]:
        """Return the same of every rate that was chosen among several: the encoder's below a head is one, too."""
        below = self.by_below.keys()
        found = [_end({each.below for each in self.ties}, below)] if len(below) > 1 else []
        return [*found, self.end] if len({each.rate for each in self.attempts}) > 1 else found


def rate_tables(evidence: Evidence) -> list[Table]:
    """Lay out the rates of one experiment's variants, before they are merged; nothing where no row has several."""
    found = [(tried, tried.best) for tried in tried_rates(evidence.tried) if len(tried.rates) > 1]
    choices = sorted((_choice(tried, best) for tried, best in found if best is not None), key=_place)
    return [_table(choices)] if choices else []


def rate_text(rate: float) -> str:
    """Write a learning rate in its shortest form, such as 3e-3 for 0.003."""
    digits, power = f"{rate:.5e}".split("e")
    return min(f"{digits.rstrip('0').rstrip('.')}e{int(power)}", f"{rate:g}", key=len)


def _choice(tried: Tried, best: Rate) -> RateChoice:
    ties = [_attempt(rate) for rate in tried.rates if rate.held_out == best.held_out]
    return RateChoice(tried, sorted(map(_attempt, tried.rates)), _attempt(best), ties)


def _attempt(rate: Rate) -> Attempt:
    record = rate.records[0]
    score = "" if rate.held_out is None else f"{rate.held_out:.1f}"
    below = record.encoder_lr or 0.0
    if record.lr is None:
        return Attempt(0.0, below, rate_text(below), score)
    decay = "" if record.weight_decay is None else f", decay {record.weight_decay:g}"
    return Attempt(below, record.lr, f"{rate_text(record.lr)}{decay}", score)


def _place(choice: RateChoice) -> tuple[float, bool, int]:
    first = choice.tried.rates[0].records[0]
    return (GIVEN if choice.tried.fraction is None else choice.tried.fraction, first.kind != "encoder", first.position)


def _end(best: Collection[float], tried: Collection[float]) -> str:
    first, *others = best
    if others:
        return TIE
    lowest, highest = min(tried), max(tried)
    return "" if lowest == highest else {lowest: "lowest", highest: "highest"}.get(first, "")


def _table(choices: Sequence[RateChoice]) -> Table:
    most = max(len(line) for choice in choices for line in choice.by_below.values())
    numbers = [*([BELOW] if _has_two(choices) else []), *(f"rate {place}" for place in range(1, most + 1))]
    return Table(
        CAPTION,
        (
            *(Column(head, "left") for head in ("fraction", "model")),
            *numbers,
            *(Column(head, "left") for head in ("shared seeds", "chosen")),
        ),
        tuple(cells for choice in choices for cells in _lines(choice, most, _has_two(choices))),
        _note(choices),
    )


def _lines(choice: RateChoice, most: int, has_below: bool) -> list[tuple[str, ...]]:
    tried, best = choice.tried, choice.best
    chosen = f"{best.text} ({choice.end})" if choice.end else best.text
    return [
        (
            *(fraction_name(tried.fraction), tried.row),
            *([rate_text(below) if below else ""] if has_below else []),
            *(f"{each.text}: {each.score}" for each in line),
            *[""] * (most - len(line)),
            *(", ".join(map(str, tried.seeds)) or NONE, chosen if below == best.below else NONE),
        )
        for below, line in choice.by_below.items()
    ]


def _has_two(choices: Iterable[RateChoice]) -> bool:
    return any(len(choice.by_below) > 1 for choice in choices)


def _note(choices: Sequence[RateChoice]) -> str:
    ends = [end for choice in choices for end in choice.ends]
    counted = (
        f"Of {len(ends)} choices, {ends.count('lowest')} fell on the lowest rate tried and {ends.count('highest')} on "
        "the highest: there a better one may lie beyond."
    )
    said = {
        READING.format(score=_score(choices[0])): True,
        TWO: _has_two(choices),
        counted: bool(ends),
        TIES: TIE in ends,
    }
    return " ".join(sentence for sentence, is_said in said.items() if is_said)


def _score(choice: RateChoice) -> str:
    """Name the score that rates are chosen by, with the threshold of "no answer" where there is one."""
    records = choice.tried.rates[0].records
    metric = held_out_metric(records[0])
    return next((each.head for each in measures_of(records).columns if each.key == metric), str(metric))
