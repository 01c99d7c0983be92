"""`Study`: a table of a paper as data. Which runs, what was published, by which metric, what is known to be wrong.

They stand in `papers/*.yaml`, a file for each paper. The rule by which a claim is judged stands here, and nowhere else.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bertvision.errors import SettingsError
from bertvision.settings import Config, find_config, read_yaml, suggest, validate
from studies.paper_scores import PaperScore
from studies.records import SeedMean, Verdict

PAPERS = Path(__file__).parent / "papers"
CONFIGS = Path(__file__).parent / "configs"
Fraction = float | Literal["last", "given"]  # given: of an encoder that was not tuned
Expected = Literal["above", "below", "equal", "not above"]
OPPOSITE: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds", "cannot tell": "cannot tell"}
Status = Literal["confirmed", "contradicted", "cannot tell", "untested"]
RULE = (
    "A difference is the mean over seeds, paired by seed, with its 95% interval (Student's t). That of a claim about "
    "official F1 on questions reaches at least as far as the interval of seeds and articles resampled together. "
    "“Above” holds where the interval lies above 0 and does not where it lies below the margin (of a difference that "
    "is claimed to be large, above 0 too), “not above” the other way round; “equal” holds where it lies within the "
    "margin on both sides (two one-sided tests at 2.5%) and does not where it lies outside of it; all else, and a "
    "single seed, cannot tell. What others are compared with is to equal its published value, which another encoder "
    "than the paper's cannot tell."
)


class NumberPlace(Config):
    """Where a number stands: in the records of a row, in an analysis, or among the weights of layers."""

    row: str = "encoder"  # as reports name it: a head, an ensemble; of variants a method, or method:head
    fraction: Fraction = "last"
    epoch: int | Literal["best"] | None = (
        None  # of head training; best: on dev, as the 2020 paper chose; None: the last
    )
    score: str | tuple[str, ...] = ()  # of several the first that records have; none: the study's
    analysis: tuple[str, ...] = ()  # the way to a number in the study's analysis, in place of all above
    layers: Literal["last_third"] | None = None  # the share of a mix's weights, in percent, in place of a score


class PublishedResult(NumberPlace):
    """A row of a published table."""

    scores: dict[str, float]
    against: str | None = None  # the row that it is compared with; None: the study's
    note: str = ""


class Claim(Config):
    """A sentence of a paper that numbers can speak to."""

    text: str
    where: str  # in the paper
    one: NumberPlace = NumberPlace()
    other: NumberPlace | None = None  # None: `one` is compared with `published` itself
    expected: Expected = "above"
    published: float | None = None  # how far the papers have `one` above `other`, or what `one` is
    margin: float | None = Field(None, gt=0)  # None: the study's
    settled: Status | None = None  # what needs no run, such as a count, or cannot be run here
    because: str = ""  # of what is settled: the evidence


class Analysed(Config):
    """Two rows whose answers are set side by side (`bertvision analyze --against`)."""

    row: str
    against: str = "encoder"
    fraction: float


class Study(Config):
    """One table or figure of a paper."""

    name: str
    paper: str
    title: str
    config: str = ""  # of `configs/` here, or a shipped experiment; empty: it cannot be run here, and `needs` says why
    needs: str = ""
    task: str | None = None  # None: several, and rows are named after them
    settings: dict[str, Any] = {}  # on top of it
    extra_scores: tuple[PaperScore, ...] = ()  # computed beside the official ones
    is_condition: bool = False  # its data or recipe are its point: its runs speak of its own claims, and no others do
    elsewhere: dict[str, Any] = {}  # on top of these where another encoder than the paper's is given
    methods: tuple[str, ...] = ()  # those of the config's variants that are run; empty: all
    windows: int = 131_911  # of an epoch of training, in the paper; of all tasks together where there are several
    tokens: float = 171.0  # of a window, in the mean
    metric: str  # how the published numbers were computed
    scores: tuple[str, ...] = Field(min_length=1)  # the same in records, the one that is judged by first
    official: tuple[str, ...] = ()  # shown beside them
    against: str | None = "encoder"  # the row that others are compared with
    against_fraction: float | None = None  # None: at the same fraction
    controls: tuple[str, ...] = ()  # rows that the papers lack
    control: str | None = None  # the one that every row's gain is set against
    margin: float = Field(0.5, gt=0)
    published: tuple[PublishedResult, ...] = ()
    wrong: tuple[str, ...] = ()  # what is known to be wrong in the paper
    claims: tuple[Claim, ...] = ()
    analysed: Analysed | None = None


def read_studies() -> dict[str, Study]:
    """Read all studies, by name, in the order of papers and of their tables."""
    found: dict[str, Study] = {}
    for path in sorted(PAPERS.glob("*.yaml")):
        content = read_yaml(path)
        paper, shared = content.pop("paper"), content.pop("shared", {})
        for name, own in content.items():
            found[name] = validate(Study, {**shared, **own, "name": name, "paper": paper}, f"{path.name}, {name}")
    return found


def find_study(name: str) -> Study:
    """Return a study by its name."""
    studies = read_studies()
    if name not in studies:
        hint = suggest(name, studies) or f"; known: {', '.join(studies)}"
        raise SettingsError(f"no study {name!r}{hint}")
    return studies[name]


def study_config(study: Study) -> Path:
    """Return the file of a study's experiment: one of this folder's own, or a shipped one."""
    own = CONFIGS / f"{study.config}.yaml"
    return own if own.exists() else find_config(Path(study.config))


def own_encoder(study: Study) -> str:
    """Return the encoder that a paper's numbers are of."""
    shipped = read_yaml(study_config(study)) if study.config else {}
    return str(study.settings.get("encoder", shipped.get("encoder", "")))


def is_own_encoder(study: Study, encoder: str) -> bool:
    """Return whether an encoder has the name of the paper's own, in whatever folder or account of a hub it lies."""
    return Path(encoder).name == Path(own_encoder(study)).name


def verdict_of(expected: Expected, ours: SeedMean, margin: float, *, is_large: bool = False) -> Verdict:
    """Judge a difference by the rule that was fixed beforehand (`RULE`); a large one is more than a margin above 0."""
    if ours.low is None or ours.high is None:
        return "cannot tell"
    low, high = (ours.low, ours.high) if expected != "below" else (-ours.high, -ours.low)
    if expected == "equal":
        if -margin < low and high < margin:
            return "holds"
        return "does not hold" if low > margin or high < -margin else "cannot tell"
    above: Verdict = "cannot tell"
    if low > 0 and not (is_large and high < margin):
        above = "holds"
    elif high < margin:
        above = "does not hold"
    return OPPOSITE[above] if expected == "not above" else above


def expected_of(difference: float, margin: float) -> Expected:
    """Return what a published difference claims: within the margin, two results are equal."""
    if abs(difference) <= margin:
        return "equal"
    return "above" if difference > 0 else "below"
