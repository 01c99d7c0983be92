from bertvision.records import MAIN_SCORES
from bertvision.report.measures import TASKS as COLUMNS
from bertvision.tasks import TASKS


def test_every_task_is_judged_by_one_of_its_scores_and_shows_it():
    assert MAIN_SCORES.keys() == TASKS.keys()
    for task, score in MAIN_SCORES.items():
        assert score in TASKS[task].scores
        assert score in [column.key for column in COLUMNS[task]]
