"""A study of `studies/papers` -> its experiments, what they take, their runs, its record."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bertvision
from bertvision.data.sources import parse_source
from bertvision.errors import DataError, SettingsError
from bertvision.evaluate.compare import Shown, apart_by_seed, resample_rows
from bertvision.evaluate.score import read_golds
from bertvision.experiment import Experiment, build_experiments
from bertvision.files import check_folder, write_text
from bertvision.progress import SILENT, Progress
from bertvision.records import MAIN_SCORES, RunRecord, choose, fraction_name
from bertvision.report.renderers import markdown_text, to_markdown
from bertvision.run_folder import folder_of_seed
from bertvision.settings import Settings, merge, read_yaml
from bertvision.tables import counted
from bertvision.tasks import TASKS, task_name
from studies.paper_scores import extra_scores
from studies.records import StudyRecord, write_study
from studies.second import score_paper_seconds
from studies.study import Claim, Study, is_own_encoder, study_config
from studies.study_tables import study_tables
from studies.verdicts import Bounds, Findings, fraction_at, judge, judge_claim

DATA = "data/"  # where shipped experiments look for their files
RESAMPLES = 2_000  # of articles and seeds: enough for the ends of an interval
RESAMPLED = {"f1": "scores", "best_f1": "bests"}  # scores of questions, and what holds their resamples
RowPlace = tuple[str, float | None]  # a row, and its fraction


class StudyWork(NamedTuple):
    """What a study takes: passes over its training data, all seeds together."""

    runs: int
    seeds: int
    tuning_epochs: float
    head_passes: float


class StudyPlan(NamedTuple):
    """A study with its experiments, ready to run."""

    study: Study
    experiments: tuple[Experiment, ...]


def plan_study(
    study: Study,
    encoder: str | None = None,
    data: Path | None = None,
    seeds: int = 3,
    overrides: Iterable[str] = (),
) -> StudyPlan:
    """Lay the study's settings over its experiment; `data` is the folder that takes the place of `data/` there."""
    if not study.config:
        raise SettingsError(f"{study.name}: cannot be run here; it needs {study.needs}")
    settings: Settings = merge(read_yaml(study_config(study)), study.settings)
    if encoder is not None:
        elsewhere = {} if is_own_encoder(study, encoder) else study.elsewhere
        settings = merge(merge(settings, elsewhere), {"encoder": encoder})
    settings = {**settings, "name": study.name, "seeds": list(range(1, seeds + 1))}
    overrides = list(overrides)
    if not any(each.startswith("variant=") for each in overrides):
        overrides += [f"variant={method}" for method in study.methods]
    if data is not None:
        settings = _with_data(settings, data)
    return StudyPlan(study, tuple(build_experiments(settings, overrides, study.name)))


def missing_files(plan: StudyPlan) -> list[str]:
    """Name the files of a plan that are not there."""
    sources = [
        source
        for each in plan.experiments
        for source in (each.data.train, each.data.dev, *each.data.extra_dev_sets.values())
    ]
    wholes = dict.fromkeys(parse_source(source).whole for source in sources)
    return [each for each in wholes if Path(each).suffix and not Path(each).exists()]


def count_work(plan: StudyPlan) -> StudyWork:
    """Count the passes of a plan over the papers' training data."""
    experiments = plan.experiments
    # Runs that differ in their heads alone share one tuned encoder.
    tuned = {(each.task, str(each.tuning_settings()), str(each.windows)): each for each in experiments}
    epochs = [max(each.finetune.fractions, default=0.0) * len(each.seeds) for each in tuned.values()]
    num_tasks = len({each.task for each in experiments})  # the study's windows are those of all its tasks
    passes = sum(map(_head_passes, experiments))
    return StudyWork(len(experiments), len(experiments[0].seeds), sum(epochs) / num_tasks, passes / num_tasks)


def run_study(plan: StudyPlan, out: Path, progress: Progress = SILENT) -> StudyRecord:
    """Run all experiments of a plan below OUT/NAME, judge them, and write OUT/NAME/study.json and study.md.

    What is there is kept, as in any run; an encoder that another study below OUT has tuned by the same settings serves.
    """
    if missing := missing_files(plan):
        raise DataError(f"{missing[0]}: no such file; give the folder of {plan.study.name}'s files as --data, or --set")
    from bertvision import run  # torch, which plans do without

    records: list[RunRecord] = []
    for experiment in plan.experiments:
        if experiment.variant is not None:
            progress.say(f"{experiment.variant}:")
        records += run(
            experiment,
            check_folder(out / experiment.folder),
            progress,
            lender=out,
            extra_scores=extra_scores(plan.study.extra_scores),
        )
    resampled = resample_claims(plan.study, _shown(plan, out, records), plan.experiments[0].data.dev)
    record = judge(plan.study, records, _analyses(plan, out), resampled)
    write_study(out / plan.study.name, record)
    write_text(out / plan.study.name / "study.md", study_page(plan.study, record))
    return record


def study_page(study: Study, record: StudyRecord) -> str:
    """Write a study as Markdown."""
    where = ", ".join(f"{name} {Path(each).name}" for name, each in record.data.items())
    head = f"{study.paper}. Encoder: {record.encoder}; {counted(len(record.seeds), 'seed')}; {where}."
    wrong = [f"- {markdown_text(each)}" for each in study.wrong]
    parts = [f"# {record.title}\n", f"{markdown_text(head)}\n"]
    parts += ["Known to be wrong in the paper:\n", *wrong, ""] if wrong else []
    for table in study_tables(record):
        if table.rows:
            parts += [
                f"## {table.title}\n",
                to_markdown(table),
                *([f"{markdown_text(table.note)}\n"] if table.note else []),
            ]
    return "\n".join(parts)


def _with_data(settings: Settings, folder: Path) -> Settings:
    """Look up in a folder what shipped experiments have below `data/`."""
    own = dict(settings)
    if "data" in own:
        own["data"] = _found(own["data"], folder)
    if "variants" in own:
        own["variants"] = {name: _with_data(each or {}, folder) for name, each in own["variants"].items()}
    return own


def _found(content: Any, folder: Path) -> Any:  # noqa: ANN401 (what the YAML holds)
    if isinstance(content, dict):
        return {key: _found(value, folder) for key, value in content.items()}
    if not isinstance(content, str) or not content.startswith(DATA):
        return content
    whole = parse_source(content).whole
    rest = whole.removeprefix(DATA)
    places = (folder / rest, folder / f"{rest}.gz", *folder.glob(f"*/{rest}"), *folder.glob(f"*/{rest}.gz"))
    found = next((place for place in places if place.exists()), places[0])
    return f"{found}{content.removeprefix(whole)}"


def _head_passes(experiment: Experiment) -> float:
    """Return how often heads read the training data, all seeds together."""
    config, fractions = experiment.heads, max(1, len(experiment.finetune.fractions))
    return fractions * config.epochs * config.data_fraction * len(experiment.seeds) if config.train else 0.0


def _analyses(plan: StudyPlan, out: Path) -> dict[int, dict[str, Any]]:
    """Set the answers of the study's two rows side by side, for every seed."""
    analysed, experiment = plan.study.analysed, plan.experiments[0]
    if analysed is None or analysed.fraction not in experiment.finetune.fractions:
        return {}
    found = {}
    for seed in experiment.seeds:
        folder = folder_of_seed(out / experiment.folder, seed, experiment.seeds, analysed.fraction)
        one, other = folder.predictions(analysed.row), folder.predictions(analysed.against)
        found[seed] = _analyse(one, other, experiment)
    return found


def _analyse(one: Path, other: Path, experiment: Experiment) -> dict[str, Any]:
    """Take answers apart, and add the second answers as the 2020 paper found them."""
    found = bertvision.analyze(one, against=other, disagreements=0).as_dict()
    questions = read_golds(task_name(experiment.task), experiment.data.dev, experiment.data, [one]).examples
    paper = score_paper_seconds(questions, one)
    ways = {"n-best": found["second_answers"], "paper": None if paper is None else paper._asdict()}
    return {**found, "second_answers": ways}


def resample_claims(study: Study, shown: Sequence[Shown], dev: str) -> dict[str, Bounds]:
    """Resample seeds and articles together for every claim about the F1 of two rows; by the claim's text."""
    info = TASKS[task_name(shown[0].record.task)]
    if study.task is None or (info.kind.cluster, MAIN_SCORES[shown[0].record.task]) != ("article", "f1"):
        return {}
    findings = Findings([each.record.model_copy(update={"model": each.row}) for each in shown])
    wanted = {claim.text: pair for claim in study.claims if (pair := _rows_of(study, claim, findings)) is not None}
    rows = {place for one, other, _ in wanted.values() for place in (one, other)}
    chosen = [each for each in shown if (each.row, each.record.fraction) in rows]
    if len({each.record.seed for each in chosen}) < 2:
        return {}
    scored = {(each.row, each.fraction): each for each in resample_rows(chosen, dev, RESAMPLES)}
    found = {}
    for text, (one, other, score) in wanted.items():
        ours, theirs = (getattr(scored[each], score) for each in (one, other))
        if seeds := sorted(ours.keys() & theirs.keys()):
            apart = apart_by_seed(ours, theirs, seeds)
            found[text] = (apart.low, apart.high)
    return found


def _rows_of(study: Study, claim: Claim, findings: Findings) -> tuple[RowPlace, RowPlace, str] | None:
    """Return the two rows of a claim that resamples can be of, and what `ScoredVariant` calls the score."""
    if claim.settled is not None or claim.other is None or claim.one.epoch is not None or claim.other.epoch is not None:
        return None
    score = RESAMPLED.get(judge_claim(study, claim, findings).score or "")
    places = [(place.row, fraction_at(place, findings)) for place in (claim.one, claim.other)]
    return None if score is None or claim.one.layers is not None else (places[0], places[1], score)


def _shown(plan: StudyPlan, out: Path, records: Sequence[RunRecord]) -> list[Shown]:
    """Name all rows as claims do, each with the folder of its predictions."""
    experiments = {each.variant: each for each in plan.experiments}
    shown = []
    for record, row in [*((each, each.model) for each in records if each.method is None), *choose(records)]:
        own = experiments[record.variant]
        folder = folder_of_seed(out / own.folder, record.seed, own.seeds, record.fraction)
        shown.append(Shown(record, row, folder.predictions(record.model)))
    return shown


def describe_plan(plan: StudyPlan) -> list[str]:
    """Say in lines what a plan would run."""
    lines = []
    for each in plan.experiments:
        seeds = ", ".join(map(str, each.seeds))
        fractions = ", ".join(map(fraction_name, each.finetune.fractions)) or "as given"
        heads = counted(len(each.heads.train), "head") + (
            f" on {each.heads.data_fraction:.0%} of the data" if each.heads.data_fraction < 1 else ""
        )
        lines.append(f"{each.title}: {each.task}, {each.encoder}, fractions {fractions}, {heads}, seeds {seeds}")
    return lines
