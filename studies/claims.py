"""Every claim of the papers, and what the records below a folder say of it."""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import inf
from os.path import commonpath
from pathlib import Path
from typing import NamedTuple, cast, get_args

from bertvision.records import RunRecord, located_records, merge_variants
from bertvision.report.renderers import to_markdown
from bertvision.tables import Cells, Column, Number, Table
from studies.records import SeedMean, read_study_records
from studies.study import Claim, Status, Study, read_studies
from studies.study_tables import interval_text
from studies.verdicts import Findings, judge_claim

HEADLINE = "headline"  # the study whose claims stand first
STATUS_BY_VERDICT: dict[str | None, Status] = {
    "holds": "confirmed",
    "does not hold": "contradicted",
    "cannot tell": "cannot tell",
    None: "untested",
}


class RecordGroup(NamedTuple):
    """The records of one experiment on one encoder."""

    place: str  # the folder that holds them
    experiment: str
    encoder: str
    tasks: frozenset[str]
    findings: Findings


class ClaimEvidence(NamedTuple):
    """What one group says of a claim."""

    group: RecordGroup
    status: Status
    ours: SeedMean
    score: str


class Settled(NamedTuple):
    """A claim with its status, and what that rests on."""

    study: Study
    claim: Claim
    status: Status
    evidence: Sequence[ClaimEvidence]


def settle_claims(folder: Path) -> list[Settled]:
    """Judge every claim by the records below a folder, experiment by experiment; the headline's paper comes first."""
    groups, studies = read_groups(folder), read_studies()
    in_order = sorted(studies.values(), key=lambda study: study.paper != studies[HEADLINE].paper)
    conditions = {name for name, study in studies.items() if study.is_condition}
    return [
        _settle(study, claim, [group for group in groups if _speaks(group, study, conditions)])
        for study in in_order
        for claim in study.claims
    ]


def _speaks(group: RecordGroup, study: Study, conditions: Collection[str]) -> bool:
    """Return whether records speak of a study's claims: those made under a condition do of that condition's alone."""
    return group.experiment == study.name if study.is_condition else group.experiment not in conditions


def read_groups(folder: Path) -> list[RecordGroup]:
    """Read the records below a folder, by experiment and encoder, each method at its best learning rate."""
    found: dict[tuple[str, str], list[tuple[Path, RunRecord]]] = {}
    for record, run in located_records(folder):
        encoder = _short_name(str(record.config.get("encoder", "")))
        found.setdefault((record.experiment, encoder), []).append((run, record))
    studies = read_study_records(folder)
    groups = []
    for (experiment, encoder), pairs in sorted(found.items()):
        records = [record for _, record in pairs]
        own = [each for each in studies if (each.study, _short_name(each.encoder)) == (experiment, encoder)]
        analyses = {seed: analysis for each in own for seed, analysis in zip(each.seeds, each.analyses, strict=False)}
        place = Path(commonpath([run for run, _ in pairs])).relative_to(folder.parent).as_posix()
        tasks = frozenset(record.task for record in records)
        resampled = {
            claim.text: (claim.ours.low, claim.ours.high)
            for each in own
            for claim in each.claims
            if claim.ours is not None and claim.ours.low is not None and claim.ours.high is not None
        }
        findings = Findings(merge_variants(records), analyses, resampled)
        groups.append(RecordGroup(place, experiment, encoder, tasks, findings))
    return groups


def claims_page(settled: Sequence[Settled]) -> str:
    """Write every claim, with its status and what that rests on, as Markdown."""
    counts = ", ".join(f"{count} {status}" for status, count in count_statuses(settled).items())
    tables = [*claims_tables(settled), further_evidence(settled)]
    sections = [f"## {table.title}\n\n{to_markdown(table)}" for table in tables]
    return "\n".join([f"Of {len(settled)} claims: {counts}.\n", to_markdown(summary_table(settled)), *sections])


def summary_table(settled: Sequence[Settled]) -> Table:
    """Count the claims of each paper by status."""
    statuses = cast(tuple[Status, ...], get_args(Status))
    rows: tuple[Cells, ...] = tuple(
        (paper, Number(len(claims), "d"), *(Number(count, "d") for count in count_statuses(claims).values()))
        for paper, claims in _by_paper(settled).items()
    )
    return Table("Summary", ("paper", "claims", *statuses), rows)


def claims_tables(settled: Sequence[Settled]) -> list[Table]:
    """Lay out claims, a table for each paper, a numbered line for each claim with what its status rests on."""
    heads = (
        *("no.", Column("claim", "left"), Column("where", "left"), "published"),
        *(Column("status", "left"), Column("evidence", "left")),
    )
    numbers = {id(each): number for number, each in enumerate(settled, start=1)}
    return [
        Table(paper, heads, tuple((str(numbers[id(each)]), *_row(each)) for each in claims))
        for paper, claims in _by_paper(settled).items()
    ]


def further_evidence(settled: Sequence[Settled]) -> Table:
    """Lay out all evidence that the claims' own lines leave out, by the claims' numbers."""
    rows = tuple(
        (str(number), _evidence_text(found))
        for number, each in enumerate(settled, start=1)
        for found in each.evidence
        if found not in strongest(each)
    )
    return Table("Further evidence", ("no.", Column("evidence", "left")), rows)


def strongest(each: Settled) -> list[ClaimEvidence]:
    """Return the evidence that a status rests on, of a conflict both sides.

    The most seeds come first, then the paper's own score, then the narrowest interval.
    """
    told = {found.status for found in each.evidence} - {"cannot tell"} or {"cannot tell"}
    return [
        max((found for found in each.evidence if found.status == status), key=partial(_weight, each.study))
        for status in sorted(told)
    ]


def _by_paper(settled: Sequence[Settled]) -> dict[str, list[Settled]]:
    papers = dict.fromkeys(each.study.paper for each in settled)
    return {paper: [each for each in settled if each.study.paper == paper] for paper in papers}


def _weight(study: Study, found: ClaimEvidence) -> tuple[int, bool, float]:
    low, high = found.ours.low, found.ours.high
    return found.ours.seeds, found.score in study.scores, -inf if low is None or high is None else low - high


def count_statuses(settled: Sequence[Settled]) -> dict[Status, int]:
    """Count the claims of each status."""
    statuses = cast(tuple[Status, ...], get_args(Status))
    return {status: sum(each.status == status for each in settled) for status in statuses}


def _settle(study: Study, claim: Claim, groups: Sequence[RecordGroup]) -> Settled:
    if claim.settled is not None:
        return Settled(study, claim, claim.settled, [])
    evidence = list(_evidence(study, claim, groups))
    # Of several experiments those count that can tell; where they contradict each other, none can.
    told = {each.status for each in evidence} - {"cannot tell"}
    status: Status = told.pop() if len(told) == 1 else "cannot tell" if evidence else "untested"
    return Settled(study, claim, status, evidence)


def _evidence(study: Study, claim: Claim, groups: Sequence[RecordGroup]) -> Iterator[ClaimEvidence]:
    for group in groups:
        if study.task is not None and study.task not in group.tasks:
            continue
        judged = judge_claim(study, claim, group.findings)
        if judged.ours is not None and judged.score is not None:
            yield ClaimEvidence(group, STATUS_BY_VERDICT[judged.verdict], judged.ours, judged.score)


def _short_name(encoder: str) -> str:
    """Return an encoder's name without its folders, except where it is a fraction of a run, such as RUN/encoder/1."""
    path = Path(encoder)
    return "/".join(path.parts[-3:]) if path.parent.name == "encoder" else path.name


def _row(each: Settled) -> tuple[str | Number, ...]:
    form = ".1f" if each.claim.other is None else "+.1f"
    published = "" if each.claim.published is None else Number(each.claim.published, form)
    if each.evidence:
        shown = strongest(each)
        left_out = len(each.evidence) - len(shown)
        more = f"; {left_out} more below" if left_out else ""
        return (each.claim.text, each.claim.where, published, each.status, "; ".join(map(_evidence_text, shown)) + more)
    needs = f"needs {each.study.needs}" if each.study.needs else f"python -m studies run {each.study.name} runs it"
    return (each.claim.text, each.claim.where, published, each.status, each.claim.because or needs)


def _evidence_text(each: ClaimEvidence) -> str:
    seeds = f"{each.ours.seeds} seed{'s' if each.ours.seeds > 1 else ''}"
    where = each.group.place.removeprefix("results/")
    return f"{each.score} {interval_text(each.ours, '+')}, {seeds}, {each.group.encoder}: {where}"
