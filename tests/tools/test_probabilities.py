"""What the models' cards say of their probabilities."""

import importlib

import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.scoring.calibration import Decision
from bertvision.scoring.confidence import Answers

tool = importlib.import_module("probabilities")
# Ten questions: six are given an answer, of which the fifth by probability is wrong; four are given "no answer".
GIVEN = tool.Given(
    confidence=np.array([0.9, 0.95, 0.8, 0.7, 0.99, 0.6, 0.5, 0.97, 0.4, 0.96]),
    exact=np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]),
    f1=np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.4, 1.0, 1.0, 0.0]),
    is_answer=np.array([True, False, True, True, False, True, True, False, True, False]),
)


@pytest.mark.parametrize(("accuracy", "coverage"), [(100, 40.0), (90, 40.0), (84, 40.0), (83, 60.0), (80, 60.0)])
def test_coverage_is_the_largest_share_of_all_questions_whose_likeliest_answers_are_right_so_often(accuracy, coverage):
    assert tool.coverage_at(GIVEN, accuracy) == pytest.approx(coverage)


def test_where_every_answer_is_wrong_none_can_be_given():
    assert tool.coverage_at(GIVEN._replace(exact=np.zeros(10)), 80) == 0


def test_the_curve_ends_with_all_answers_that_are_given():
    curve = tool.coverage_curve(GIVEN)
    assert [point.coverage for point in curve] == [10, 20, 30, 40, 50, 60]
    fifth, last = curve[4:]
    assert (fifth.probability, fifth.exact, fifth.f1) == (0.5, 80, pytest.approx(88))
    assert (last.probability, last.exact) == (0.4, pytest.approx(83.3333))


def make_answers(rows):
    """Answers from (null odds, gold is found, is impossible): one span and "no answer" for each question."""
    questions = [
        Question(str(place), "?", "a b", () if is_impossible else (GoldAnswer("a", 0),), "")
        for place, (_, _, is_impossible) in enumerate(rows)
    ]
    odds = np.array([each[0] for each in rows])
    exact = np.array([float(is_found and not is_impossible) for _, is_found, is_impossible in rows])
    marks = np.tile([True, False], (len(rows), 1))
    return Answers(
        questions,
        {each.id: "a" if found else "b" for each, found in zip(questions, exact, strict=True)},
        {each.id: float(value) for each, value in zip(questions, odds, strict=True)},
        odds,
        np.stack([odds, np.zeros(len(rows))], axis=1),
        is_null=marks,
        is_best=~marks,
        exact=exact,
        f1=exact,
        is_impossible=np.array([each[2] for each in rows]),
    )


@pytest.fixture
def record():
    rows = (
        [(-2.0, True, False)] * 60 + [(-2.0, False, False)] * 20 + [(3.0, False, True)] * 15 + [(3.0, True, False)] * 5
    )
    judged = tool.judge_answers(make_answers(rows), Decision(0.0, 1.0))
    about = {"model": "default", "sha256": "0" * 64, "data": "dev.json", "data_sha256": "0" * 64, "questions": 100}
    made = {"commit": None, "dirty": None, "device": "cpu", "precision": "float32", "python": "3", "versions": {}}
    return tool.AnswersRecord(
        **about, **judged, threshold=0.0, temperature=1.0, windows=100, seconds=2.0, provenance=made
    )


def test_a_record_holds_what_can_be_counted(record):
    scores = record.scores
    assert (scores["exact"], scores["answered"], scores["right"]) == (75, 80, 75)
    # The probability of what is given is 1 / (1 + exp(-2)) for the 80 answers and 1 / (1 + exp(-3)) for "no answer".
    assert scores["ece"] == pytest.approx((80 * (0.8808 - 0.75) + 20 * (0.9526 - 0.75)) / 100, abs=1e-4)
    assert scores["coverage_at_90"] == 0  # answers of one probability cannot be told apart
    low, high = record.intervals["exact"]
    # Of 100 drawn with a share of 0.75 the middle 95% lie about two standard errors of 4.33 around 75.
    assert (low, high) == (pytest.approx(75 - 1.96 * 4.33, abs=1.5), pytest.approx(75 + 1.96 * 4.33, abs=1.5))
    assert record.ranges[-1] == (pytest.approx((80 * 0.8808 + 20 * 0.9526) / 100, abs=1e-4), 0.75, 100)
    assert [size for *_, size in record.ranges] == [0, 0, 0, 0, 100]


def test_the_section_shows_the_records_numbers(record):
    section = tool.trust_section(record)
    assert 'bertvision.load("default")` answers the 100 questions of `dev.json`' in section
    assert f"| ECE                                   | {record.scores['ece']:.3f} |" in section
    assert "| 90%      |                    0.0% |   0.0 to 0.0 |" in section


def test_coverage_by_f1_is_read_from_the_curve(record):
    points = [(10, 95.0), (20, 85.0), (30, 79.0), (40, 81.0), (50, 70.0)]
    curve = [tool.CoveragePoint(coverage=each, probability=0.5, exact=0.0, f1=f1) for each, f1 in points]
    section = tool.trust_section(record.model_copy(update={"curve": curve}))
    assert "|             40% |\n| 90%" in section
    assert "|             10% |\n\nThese thresholds were" in section


def test_a_record_of_another_model_than_ships_is_refused(record, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "RESULTS", tmp_path)
    assert tool.read_answers("default") is None
    tool.write_file(tmp_path / "probabilities-default.json", record)
    with pytest.raises(SystemExit, match="another model than ships"):
        tool.read_answers("default")
    shipped = tool.sha256_of(tool.SHIPPED["default"] / "sha256.json")
    own = record.model_copy(update={"sha256": shipped})
    tool.write_file(tmp_path / "probabilities-default.json", own)
    assert tool.read_answers("default") == own
