"""Every claim of the papers, and what the records below a folder say of it."""

from collections.abc import Collection, Iterator, Sequence
from os.path import commonpath
from pathlib import Path
from typing import NamedTuple, cast, get_args

from bertvision.records import RunRecord, SeedMean, merge_variants, read_record, read_study_records, record_paths
from bertvision.studies.study import Claim, Status, Study, read_studies
from bertvision.studies.study_tables import interval_text
from bertvision.studies.verdicts import Findings, judge_claim
from bertvision.tables import Column, Number, Table

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
    """Judge every claim by the records below a folder, experiment by experiment."""
    groups, studies = read_groups(folder), read_studies()
    conditions = {name for name, study in studies.items() if study.is_condition}
    return [
        _settle(study, claim, [group for group in groups if _speaks(group, study, conditions)])
        for study in studies.values()
        for claim in study.claims
    ]


def _speaks(group: RecordGroup, study: Study, conditions: Collection[str]) -> bool:
    """Return whether records speak of a study's claims: those made under a condition do of that condition's alone."""
    return group.experiment == study.name if study.is_condition else group.experiment not in conditions


def read_groups(folder: Path) -> list[RecordGroup]:
    """Read the records below a folder, by experiment and encoder, each method at its best learning rate."""
    found: dict[tuple[str, str], list[tuple[Path, RunRecord]]] = {}
    for path in record_paths(folder):
        record = read_record(path)
        found.setdefault((record.experiment, _encoder_name(record)), []).append((path, record))
    studies = read_study_records(folder)
    groups = []
    for (experiment, encoder), pairs in sorted(found.items()):
        records = [record for _, record in pairs]
        own = [each for each in studies if (each.study, Path(each.encoder).name) == (experiment, encoder)]
        analyses = {seed: analysis for each in own for seed, analysis in zip(each.seeds, each.analyses, strict=False)}
        place = Path(commonpath([path.parent for path, _ in pairs])).relative_to(folder.parent).as_posix()
        tasks = frozenset(record.task for record in records)
        resampled = {
            claim.text: (claim.ours.low, claim.ours.high)
            for each in own
            for claim in each.claims
            if claim.ours is not None and claim.ours.low is not None and claim.ours.high is not None
        }
        findings = Findings(merge_variants(records), analyses, resampled)
        groups.append(RecordGroup(place.removesuffix("/records"), experiment, encoder, tasks, findings))
    return groups


def claims_tables(settled: Sequence[Settled]) -> list[Table]:
    """Lay out claims, a table for each paper, a line for each claim."""
    heads = ("claim", Column("where", "left"), "published", Column("status", "left"), Column("evidence", "left"))
    papers = dict.fromkeys(each.study.paper for each in settled)
    return [
        Table(paper, heads, tuple(_row(each) for each in settled if each.study.paper == paper), "") for paper in papers
    ]


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


def _encoder_name(record: RunRecord) -> str:
    return Path(str(record.config.get("encoder", ""))).name


def _row(each: Settled) -> tuple[str | Number, ...]:
    form = ".1f" if each.claim.other is None else "+.1f"
    published = "" if each.claim.published is None else Number(each.claim.published, form)
    needs = f"needs {each.study.needs}" if each.study.needs else ""
    evidence = "; ".join(map(_evidence_text, each.evidence)) or each.claim.because or needs
    return (each.claim.text, each.claim.where, published, each.status, evidence)


def _evidence_text(each: ClaimEvidence) -> str:
    seeds = f"{each.ours.seeds} seed{'s' if each.ours.seeds > 1 else ''}"
    return f"{each.group.place}, {each.group.encoder}, {each.score}: {interval_text(each.ours, '+')}, {seeds}"
