import numpy as np
import pytest

from bertvision.data.example import ChoiceRow, GoldAnswer, Question, Sentence, TextRow
from bertvision.errors import DataError
from bertvision.kinds.kind import Golds
from bertvision.predictions.prediction import RowPrediction, TagPrediction
from bertvision.tasks import TASKS


def score_rows(task, examples, predictions):
    return TASKS[task].kind.score(Golds(task, TASKS[task], examples, ()), predictions)


def majority_scores(task, train, dev):
    return TASKS[task].kind.guess_scores(Golds(task, TASKS[task], dev, ()), train)


def rows_of(labels):
    return [TextRow(str(place), ("text",), label) for place, label in enumerate(labels)]


def predictions_of(labels, **more):
    return [RowPrediction(str(place), label, **more) for place, label in enumerate(labels)]


def questions_of(*impossible):
    return [
        Question(str(place), "who?", "Anna", () if none else (GoldAnswer("Anna", 0),), "")
        for place, none in enumerate(impossible)
    ]


@pytest.mark.parametrize(
    ("task", "gold", "found", "scores"),
    [
        ("cola", [1, 0, 1, 0], [1, 0, 1, 0], {"matthews": 100.0}),
        ("sst2", [1, 0, 1, 0], [1, 0, 1, 1], {"accuracy": 75.0}),
        ("mrpc", [1, 0, 1, 0], [1, 0, 1, 1], {"accuracy": 75.0, "f1": 80.0}),
        ("qqp", [1, 0, 1, 0], [1, 0, 1, 1], {"accuracy": 75.0, "f1": 80.0}),
        ("mnli", [2, 1, 0, 0], [2, 1, 0, 1], {"accuracy": 75.0}),
        ("qnli", [1, 0], [1, 1], {"accuracy": 50.0}),
        ("rte", [1, 0], [1, 1], {"accuracy": 50.0}),
        ("wnli", [1, 0], [0, 1], {"accuracy": 0.0}),
        ("stsb", [1.0, 2.0, 3.0], [2.0, 4.0, 6.0], {"pearson": 100.0, "spearman": 100.0}),
        ("stsb", [1.0, 2.0, 3.0], [2.0, 2.0, 2.0], {}),
        ("regression", [1.0, 2.0], [3.0, 3.0], {"rmse": 2.5**0.5, "mae": 1.5}),
        ("classification", [0, 1, 2, 2], [0, 1, 2, 1], {"accuracy": 75.0, "macro_f1": 100 * (1 + 2 / 3 + 2 / 3) / 3}),
        ("multilabel", [(1, 0), (1, 1)], [(1, 0), (1, 0)], {"micro_f1": 80.0, "macro_f1": 50.0, "exact": 50.0}),
    ],
)
def test_every_task_has_its_own_scores(task, gold, found, scores):
    assert score_rows(task, rows_of(gold), predictions_of(found)) == pytest.approx(scores)


def test_choices_are_scored_by_their_endings():
    rows = [ChoiceRow(str(place), "x", ("a", "b", "c"), label) for place, label in enumerate([2, 0])]
    assert score_rows("swag", rows, predictions_of([2, 1])) == {"accuracy": 50.0}


def test_answerability_has_scores_by_both_rules():
    questions = questions_of(True, True, False, False)
    found = [
        RowPrediction(str(place), *pair) for place, pair in enumerate([(1, (), 1), (0, (), 1), (0, (), 1), (0, (), 0)])
    ]
    assert score_rows("answerability", questions, found) == pytest.approx(
        {"accuracy": 75.0, "f1": 100 * 2 / 3, "paper_v1_accuracy": 75.0, "paper_v1_f1": 80.0}
    )


def test_without_the_second_rule_s_labels_its_scores_are_absent():
    assert set(score_rows("answerability", questions_of(True, False), predictions_of([1, 1]))) == {"accuracy", "f1"}


def test_order_does_not_matter():
    rows, found = rows_of([1, 0, 0]), predictions_of([1, 0, 1])
    assert score_rows("sst2", rows, found[::-1]) == score_rows("sst2", rows, found)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([1], "no prediction for 1 of 2 examples, such as '1'; predict again"),
        ([1, 0, 1], "a prediction for '2', which the examples do not have"),
    ],
)
def test_missing_and_unknown_predictions_are_refused(labels, problem):
    with pytest.raises(DataError, match=problem):
        score_rows("sst2", rows_of([1, 0]), predictions_of(labels))


def test_rows_without_labels_cannot_be_scored():
    with pytest.raises(DataError, match="example '1' has no label to compare with"):
        score_rows("sst2", rows_of([1, None]), predictions_of([1, 0]))


@pytest.mark.parametrize(
    ("task", "train", "dev", "scores"),
    [
        ("mrpc", [1, 1, 0], [1, 0, 1, 1], {"accuracy": 75.0, "f1": 100 * 6 / 7}),
        ("cola", [1, 1, 0], [1, 0, 1, 1], {"matthews": 0.0}),
        ("regression", [1.0, 3.0], [2.0, 5.0], {"rmse": (9 / 2) ** 0.5, "mae": 1.5}),
        ("multilabel", [(1, 0), (1, 1), (0, 0)], [(1, 0), (1, 1)], {"micro_f1": 80.0, "macro_f1": 50.0, "exact": 50.0}),
        ("classification", [2, 0, 2], [2, 2], {"accuracy": 100.0, "macro_f1": 100.0}),
    ],
)
def test_guessing_is_scored_on_dev_with_what_train_has_most(task, train, dev, scores):
    assert majority_scores(task, rows_of(train), rows_of(dev)) == pytest.approx(scores)


def test_guessing_whether_there_is_an_answer_has_all_scores():
    scores = majority_scores("answerability", questions_of(True, True, False), questions_of(True, False))
    assert scores == pytest.approx(
        {name: 50.0 if "accuracy" in name else 200 / 3 for name in TASKS["answerability"].scores}
    )


def test_guessing_tags_finds_no_entity():
    dev = [Sentence("0", ("a", "b"), ("B-X", "O"), 0)]
    assert majority_scores("ner", dev, dev) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 50.0}


def test_tags_are_scored():
    dev = [Sentence("0", ("a", "b"), ("B-X", "O"), 0), Sentence("1", ("c",), ("B-X",), 0)]
    scores = score_rows("ner", dev, [TagPrediction("1", ("B-X",)), TagPrediction("0", ("O", "O"))])
    assert scores == pytest.approx({"precision": 100.0, "recall": 50.0, "f1": 200 / 3, "accuracy": 200 / 3})
    assert np.isclose(scores["f1"], 66.667, atol=0.001)
