import math
from itertools import permutations

import pytest

from bertvision.report.chapters import GLUE, glue_chapters
from bertvision.report.measures import TASKS
from bertvision.report.page import write_report


def made(make_task_records, tasks, **changes):
    """Return every task's n-th score 10 n, plus the seed for models."""
    keys = {task: [measure.key for measure in TASKS[task]] for task in tasks}
    scores = {task: {key: 10.0 * (place + 1) for place, key in enumerate(keys[task])} for task in tasks}
    return [record for task in tasks for record in make_task_records(task, scores[task], **changes)]


def test_the_whole_of_glue_has_its_order_its_scores_and_both_averages(make_task_records):
    ((table,),) = (chapter.tables for chapter in glue_chapters(made(make_task_records, sorted(GLUE))))
    assert table.title.startswith("GLUE, dev sets, gte-small, ")
    assert [head.partition(":")[0] for head in table.header[1:]] == [
        *(f"{task} (1)" for task in ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")),
        *("average", "average without WNLI"),
    ]
    majority = dict(zip(table.header, table.texts[0], strict=True))
    assert (majority["model"], majority["MRPC (1): F1 / accuracy"]) == ("majority", "10.0 / 20.0")
    # Four of nine tasks have two scores, 10 and 20, which count as 15.
    assert majority["average"] == f"{(5 * 10 + 4 * 15) / 9:.1f}"
    assert majority["average without WNLI"] == f"{(4 * 10 + 4 * 15) / 8:.1f}"


def test_averages_have_the_spread_of_their_seeds(make_task_records):
    ((table,),) = (chapter.tables for chapter in glue_chapters(made(make_task_records, ["cola", "rte"])))
    encoder = table.texts[1]
    assert encoder[0] == "encoder"
    assert encoder[-1] == f"11.5 ± {math.sqrt(2 * 0.5**2):.1f}"  # 11 and 12, both tasks with the same seed moving alike


def test_spreads_of_tasks_that_move_against_each_other_cancel(make_task_records, make_record):
    scores = {"cola": ("matthews", (40.0, 50.0)), "rte": ("accuracy", (60.0, 50.0))}
    records = [
        make_record(experiment=task, task=task, seed=seed, scores={key: value})
        for task, (key, values) in scores.items()
        for seed, value in enumerate(values, start=1)
    ]
    ((table,),) = (chapter.tables for chapter in glue_chapters(records))
    assert table.texts[0][-1] == "50.0 ± 0.0"


def test_an_average_says_over_how_many_tasks_it_is(make_task_records):
    records = made(make_task_records, ["cola", "rte", "wnli"])
    lacking = [each for each in records if not (each.task == "rte" and each.model == "learned_pooling")]
    ((table,),) = (chapter.tables for chapter in glue_chapters(lacking))
    assert table.header[-2:] == ("average of 3", "average of 2 without WNLI")
    head = dict(zip(table.header, table.texts[-1], strict=True))
    assert head["RTE (1): accuracy"] == ""
    assert (head["average of 3"], head["average of 2 without WNLI"]) == ("11.5 ± 0.7 (of 2)", "11.5 ± 0.7 (of 1)")


def test_every_task_is_shown_at_the_largest_fraction_that_it_was_tuned_for(make_record):
    tuned = {("cola", 1.0): 30.0, ("cola", 3.0): 40.0, ("rte", 0.3): 50.0, ("rte", 1.0): 60.0}
    records = [
        make_record(experiment=task, task=task, fraction=fraction, scores={"matthews": score, "accuracy": score})
        for (task, fraction), score in tuned.items()
    ]
    ((table,),) = (chapter.tables for chapter in glue_chapters(records))
    assert table.header == ("model", "CoLA (3): Matthews", "RTE (1): accuracy", "average of 2 without WNLI")
    assert [row[1:] for row in table.texts] == [("40.0", "60.0", "50.0")]


def test_one_task_makes_no_table(make_task_records, make_record):
    assert glue_chapters([*made(make_task_records, ["cola"]), make_record()]) == []


def test_encoders_have_a_table_each(make_task_records):
    records = [
        record.model_copy(
            update={"config": {**record.config, "encoder": encoder}, "experiment": f"{record.task}_{encoder}"}
        )
        for encoder in ("b", "a")
        for record in made(make_task_records, ["cola", "rte"])
    ]
    assert [chapter.tables[0].title.split(", ")[2] for chapter in glue_chapters(records)] == ["a", "b"]


def test_tasks_may_share_the_name_of_their_experiment(make_task_records):
    apart, together = (
        glue_chapters(made(make_task_records, ["cola", "rte"], **name)) for name in ({}, {"experiment": "one"})
    )
    assert apart == together


def test_two_experiments_of_one_task_make_no_table_and_are_named(make_task_records):
    records = made(make_task_records, ["cola", "rte"]) + made(make_task_records, ["cola"], experiment="again")
    (chapter,) = glue_chapters(records)
    assert chapter.tables == []
    assert "cola has records of 2 experiments (again, cola)" in chapter.problem


@pytest.mark.parametrize("order", list(permutations(["cola", "rte", "sst2"])))
def test_the_order_of_records_changes_nothing(make_task_records, order):
    assert glue_chapters(made(make_task_records, order)) == glue_chapters(
        made(make_task_records, ["cola", "rte", "sst2"])
    )


def test_glue_stands_before_its_tasks_in_every_format(tmp_path, make_task_records):
    write_report(make_task_records("rte", {"accuracy": 60.0}) + make_task_records("cola", {"matthews": 40.0}), tmp_path)
    for name in ("report.html", "report.md", "tables.tex"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert 0 < text.index("average of 2 without WNLI") < text.index("Scores on cola")


def test_a_report_says_why_there_is_no_table_of_glue(tmp_path, make_task_records):
    records = make_task_records("rte", {"accuracy": 60.0}) + make_task_records("cola", {"matthews": 40.0})
    write_report([*records, *make_task_records("cola", {"matthews": 30.0}, experiment="again")], tmp_path)
    for name in ("report.html", "report.md"):
        assert "No table of GLUE: cola has records of 2" in (tmp_path / name).read_text(encoding="utf-8")
