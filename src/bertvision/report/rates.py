"""Records of variants -> the learning rates that each row was tried with, and which one was chosen."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from bertvision.records import GIVEN, Rate, Tried, fraction_name, held_out_metric, tried_rates
from bertvision.report.measures import measures_of
from bertvision.report.results import Evidence
from bertvision.tables import Column, Table

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
