import json
import math
import subprocess
import sys
from typing import NamedTuple

import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.errors import DataError
from bertvision.predictions.prediction import Prediction
from bertvision.scoring.squad import (
    exact_match,
    normalize_answer,
    score_predictions,
    score_squad1,
    score_squad2,
    token_f1,
)


class Row(NamedTuple):
    """One question of the golden file: its golds, what was answered, and what that is worth, worked out by hand."""

    id: str
    golds: tuple[str, ...]
    answer: str
    odds: float
    exact: int
    f1: float


ROWS = (
    Row("article", ("the Rhine", "River Rhine"), "Rhine", -3.0, 1, 1.0),
    Row("punctuation", ("St. John's",), "st johns", -1.0, 1, 1.0),
    # 3 words shared of 3 answered and 4 gold: 2 * 1 * 3/4 / (1 + 3/4) = 6/7; the first gold gives 4/5.
    Row("second gold", ("Hannah Coyle", "Hannah Coyle of Leeds"), "Hannah Coyle, Leeds", 0.5, 0, 6 / 7),
    # to x2 and be x2 are shared: precision 4/5, recall 4/6, so F1 is 2 * 4/5 * 4/6 / (4/5 + 4/6) = 8/11.
    Row("repeated words", ("to be or not to be",), "to be to be to", 0.5, 0, 8 / 11),
    Row("made up", (), "1887", 0.5, 0, 0.0),
    Row("declined rightly", (), "", 2.0, 1, 1.0),
    Row("gold that is an article", ("The",), "an", 0.1, 1, 1.0),
    Row("declined wrongly", ("Leeds",), "", 3.0, 0, 0.0),
    # Only an article: right as it stands, but the threshold sweep counts it as an answer, for it is not empty.
    Row("article for none", (), "The", -2.0, 1, 1.0),
    Row("gold of dots", ("...", "Mill Lane"), "mill  lane.", 0.25, 1, 1.0),
    # A dash is not among Python's punctuation, a hyphen is.
    Row("dash", ("1939–1945",), "1939-1945", 1.5, 0, 0.0),
    Row("made up in doubt", (), "Leeds", 1.25, 0, 0.0),
)
ANSWERS = {row.id: row.answer for row in ROWS} | {"not in the gold file": "Leeds"}
ODDS = {row.id: row.odds for row in ROWS} | {"not in the gold file": -9.0}
# Three questions have odds of 0.5; among equals, the order of the odds file decides what the sweep sees.
ODDS_BACKWARDS = dict(reversed(ODDS.items()))

# What transformers 4.57.6 gives for the rows above: data.metrics.squad_metrics.squad_evaluate, the official script's
# own arithmetic, called with `no_answer_probs=ODDS` and the key as `no_answer_probability_threshold`. On the same day
# all keys were also compared on the 11,873 questions of dev-v2.0, with four sets of pseudo-random answers and odds and
# three thresholds each: no digit differed. The values for SQuAD 1.1 come from the published evaluate-v1.1.
FROZEN_BEST = {
    "best_exact": 58.333333333333336,
    "best_exact_thresh": 0.25,
    "best_f1": 71.53679653679653,
    "best_f1_thresh": 0.5,
}
FROZEN_BY_THRESHOLD = {
    9.0: (50.0, 63.2034632034632, 12, 50.0, 69.8051948051948, 8, 50.0, 50.0, 4),
    1.0: (58.333333333333336, 71.53679653679653, 12, 50.0, 69.8051948051948, 8, 75.0, 75.0, 4),
    0.5: (58.333333333333336, 71.53679653679653, 12, 50.0, 69.8051948051948, 8, 75.0, 75.0, 4),
    0.0: (50.0, 50.0, 12, 25.0, 25.0, 8, 100.0, 100.0, 4),
    -5.0: (33.333333333333336, 33.333333333333336, 12, 0.0, 0.0, 8, 100.0, 100.0, 4),
}
KEYS = tuple(f"{part}{name}" for part in ("", "HasAns_", "NoAns_") for name in ("exact", "f1", "total"))


def ask(identity, golds):
    return Question(identity, "who?", "", tuple(GoldAnswer(text, 0) for text in golds), "golden")


QUESTIONS = [ask(row.id, row.golds) for row in ROWS]
ANSWERABLE = [question for question in QUESTIONS if question.answers]
UNANSWERABLE = [question for question in QUESTIONS if not question.answers]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_question_scores_what_was_worked_out_by_hand(row):
    scores = score_squad2([ask(row.id, row.golds)], ANSWERS)
    assert scores["exact"] == 100 * row.exact
    assert scores["f1"] == pytest.approx(100 * row.f1, abs=1e-12)


@pytest.mark.parametrize("threshold", FROZEN_BY_THRESHOLD)
def test_squad2_scores_equal_the_official_ones_in_every_digit_and_in_their_order(threshold):
    scores = score_squad2(QUESTIONS, ANSWERS, ODDS, threshold)
    expected = dict(zip(KEYS, FROZEN_BY_THRESHOLD[threshold], strict=True)) | FROZEN_BEST
    assert list(scores.items()) == list(expected.items())


def test_the_threshold_is_1_unless_said_otherwise():
    assert score_squad2(QUESTIONS, ANSWERS, ODDS) == score_squad2(QUESTIONS, ANSWERS, ODDS, 1.0)
    assert score_squad2(QUESTIONS, ANSWERS, ODDS) != score_squad2(QUESTIONS, ANSWERS, ODDS, 9.0)


def test_squad2_scores_are_the_means_of_the_hand_worked_values():
    scores = score_squad2(QUESTIONS, ANSWERS, ODDS)
    declined = {"declined rightly": 1, "declined wrongly": 0, "dash": 0, "made up in doubt": 1}  # odds above 1
    for name in ("exact", "f1"):
        worth = {row.id: getattr(row, name) for row in ROWS} | declined
        assert scores[name] == pytest.approx(100 * sum(worth.values()) / 12)
        assert scores[f"HasAns_{name}"] == pytest.approx(100 * sum(worth[each.id] for each in ANSWERABLE) / 8)
        assert scores[f"NoAns_{name}"] == pytest.approx(100 * sum(worth[each.id] for each in UNANSWERABLE) / 4)


def test_the_best_threshold_is_found_by_answering_more_and_more_questions():
    # Declining everything is worth 4. By rising odds: Rhine +1, article for none -1, St. John's +1, "The" +1,
    # Mill Lane +1 (7, the best exact score, at 0.25), then three at 0.5: +6/7, +8/11, -1. All others lose or add 0.
    scores = score_squad2(QUESTIONS, ANSWERS, ODDS)
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (pytest.approx(100 * 7 / 12), 0.25)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (pytest.approx(100 * (7 + 6 / 7 + 8 / 11) / 12), 0.5)


def test_among_equal_odds_the_order_of_the_odds_file_decides_as_in_the_official_script():
    # Backwards the made-up answer comes first of the three: 7 - 1 + 8/11 + 6/7.
    scores = score_squad2(QUESTIONS, ANSWERS, ODDS_BACKWARDS)
    assert scores["best_f1"] == pytest.approx(100 * (6 + 8 / 11 + 6 / 7) / 12)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (63.2034632034632, 0.5)  # transformers 4.57.6, as above


def test_without_odds_nothing_is_declined_and_no_best_threshold_is_given():
    scores = score_squad2(QUESTIONS, ANSWERS)
    assert list(scores.items()) == list(zip(KEYS, FROZEN_BY_THRESHOLD[9.0], strict=True))


@pytest.mark.parametrize(
    ("questions", "prefix", "other", "best"),
    [
        (ANSWERABLE, "HasAns", "NoAns", (50.0, 0.25, 69.8051948051948, 0.5)),
        (UNANSWERABLE, "NoAns", "HasAns", (100.0, 0.0) * 2),
    ],
)
def test_a_kind_of_question_that_is_absent_has_no_scores(questions, prefix, other, best):
    scores = score_squad2(questions, ANSWERS, ODDS)
    assert not [key for key in scores if key.startswith(other)]
    assert [scores[f"{prefix}_{name}"] for name in ("exact", "f1", "total")] == [
        scores[name] for name in ("exact", "f1", "total")
    ]
    assert tuple(scores[key] for key in FROZEN_BEST) == best


def test_scores_are_added_in_the_order_of_the_gold_file():
    # F1 of 1, 2/5 and 2/5. Added in this order, and only so, binary floating point gives 59.99999999999999.
    questions = [ask(identity, ("w",)) for identity in ("one", "two", "three")]
    answers = {"three": "w x y z", "two": "w x y z", "one": "w"}
    assert score_squad2(questions, answers)["f1"] == 59.99999999999999
    assert score_squad1(questions, answers)["f1"] == 59.99999999999999
    assert score_squad2(questions[::-1], answers)["f1"] == 60.0


def test_squad1_scores_equal_the_official_ones_in_every_digit_and_in_their_order():
    # 4 of 8 are exact; F1 is 3 + 6/7 + 8/11, for version 1.1 gives 0 where both texts normalise to nothing.
    scores = score_squad1(ANSWERABLE, ANSWERS)
    assert list(scores.items()) == [("exact_match", 50.0), ("f1", 57.3051948051948)]
    assert scores["f1"] == pytest.approx(100 * (3 + 6 / 7 + 8 / 11) / 8)


def test_a_question_without_a_prediction_scores_0_in_squad1():
    answers = {identity: text for identity, text in ANSWERS.items() if identity != "article"}
    assert score_squad1(ANSWERABLE, answers) == {"exact_match": 37.5, "f1": 44.8051948051948}


@pytest.mark.parametrize(
    ("gold", "answer", "squad1", "squad2"),
    [
        (("The",), "a", (100.0, 0.0), (100.0, 100.0)),  # both normalise to nothing
        (("...", "Mill Lane"), "", (100.0, 0.0), (0.0, 0.0)),  # version 2.0 leaves out the gold of dots
        (("Leeds",), "", (0.0, 0.0), (0.0, 0.0)),
    ],
)
def test_the_two_versions_differ_where_a_text_normalises_to_nothing(gold, answer, squad1, squad2):
    questions, answers = [ask("q", gold)], {"q": answer}
    assert tuple(score_squad1(questions, answers).values()) == squad1
    assert tuple(score_squad2(questions, answers).values())[:2] == squad2


def test_squad1_refuses_a_question_without_golds():
    with pytest.raises(DataError, match=r"made up.*squad2") as caught:
        score_squad1(QUESTIONS, ANSWERS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Theatre of an Ant", "theatre of ant"),
        ("a.b-c, THE", "abc"),
        ("the\u00a0Rhine\n\tand a Weir", "rhine and weir"),
        ("U.S.A.", "usa"),
        ("“Weir”", "“weir”"),  # curly quotes are no ASCII punctuation
        ("ÉCOLE", "école"),
        (" \t", ""),
    ],
)
def test_normalising_drops_case_ascii_punctuation_articles_and_blanks(text, normal):
    assert normalize_answer(text) == normal


def test_one_pair_of_texts_can_be_compared_alone():
    assert (exact_match("the Rhine", "Rhine."), exact_match("Rhine", "Ruhr")) == (1, 0)
    assert token_f1("stone weir", "old stone weir") == pytest.approx(4 / 5)  # precision 2/3, recall 1
    assert (token_f1("a", "the"), token_f1("a", "weir"), token_f1("weir", "")) == (1, 0, 0)


@pytest.mark.parametrize(
    ("answers", "odds", "message"),
    [
        ({"article": "Rhine"}, None, r"no prediction for 11 of 12 questions, such as 'punctuation'.*empty string"),
        (ANSWERS, {"dash": 0.0}, r"no null odds for 11 of 12 questions, such as 'article'"),
        (ANSWERS, ODDS | {"dash": math.nan}, r"null odds of question 'dash' are not a number"),
    ],
)
def test_incomplete_or_broken_input_is_refused_in_one_line(answers, odds, message):
    with pytest.raises(DataError, match=message) as caught:
        score_squad2(QUESTIONS, answers, odds)
    assert "\n" not in str(caught.value)


def test_infinite_odds_are_odds():
    scores = score_squad2(QUESTIONS, ANSWERS, ODDS | {"made up": math.inf, "article": -math.inf})
    assert scores["NoAns_exact"] == 100.0
    assert scores["best_exact"] == pytest.approx(100 * 7 / 12)


def predict(identity, best_span, odds):
    return Prediction(identity, "" if odds is not None and odds > 0 else best_span, best_span, odds, ())


def test_a_models_predictions_are_scored_by_their_best_spans_and_odds():
    # q2 is declined at threshold 0 although its span is half right; q3 is declined rightly; q4 is made up.
    questions = [ask("q1", ("1887",)), ask("q2", ("Hannah Coyle",)), ask("q3", ()), ask("q4", ())]
    given = (("q1", "1887", -2.0), ("q2", "Coyle", 0.5), ("q3", "weir", 1.0), ("q4", "weir", -1.0))
    predictions = [predict(*each) for each in given]
    scores = score_predictions(questions, predictions)
    assert (scores["exact"], scores["f1"]) == (50.0, 50.0)
    assert (scores["HasAns_exact"], scores["HasAns_f1"], scores["NoAns_exact"]) == (50.0, 50.0, 50.0)
    # Declining all is worth 2; q1 +1 is best for exact match; for F1 q4 -1 and q2 +2/3 do not make up for it.
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (75.0, -2.0)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (75.0, -2.0)
    assert scores["best_span_HasAns_exact"] == 50.0
    assert scores["best_span_HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)


def test_a_higher_threshold_lets_a_model_answer_more():
    questions, predictions = [ask("q", ("1887",))], [predict("q", "1887", 0.5)]
    assert score_predictions(questions, predictions)["exact"] == 0.0
    assert score_predictions(questions, predictions, threshold=0.5)["exact"] == 100.0


def test_predictions_without_odds_get_the_scores_of_squad1():
    scores = score_predictions([ask("q", ("1887",))], [predict("q", "in 1887", None)])
    f1 = pytest.approx(100 * 2 / 3)  # precision 1/2, recall 1
    assert scores == {"exact_match": 0.0, "f1": f1, "best_span_HasAns_exact": 0.0, "best_span_HasAns_f1": f1}


def test_without_answerable_questions_there_are_no_scores_of_best_spans():
    scores = score_predictions([ask("q", ())], [predict("q", "1887", 0.5)])
    assert not [key for key in scores if key.startswith("best_span")]


HEAVY = {"torch", "transformers"}


def test_importing_the_metric_imports_no_torch():
    code = "import json, sys, bertvision.scoring.squad; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert "bertvision.scoring.squad" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize("task", ["squad1", "squad2"])
def test_scoring_from_the_command_line_imports_no_torch(tmp_path, task):
    (tmp_path / "predictions.json").write_text(json.dumps({"q": "1887"}))
    (tmp_path / "odds.json").write_text(json.dumps({"q": 0.0}))
    qa = {"id": "q", "question": "when?", "answers": [{"text": "1887", "answer_start": 0}]}
    gold = {"data": [{"title": "weir", "paragraphs": [{"context": "1887", "qas": [qa]}]}]}
    (tmp_path / "gold.json").write_text(json.dumps(gold))
    arguments = ["score", task, "--gold", "gold.json", "--predictions", "predictions.json"]
    arguments += ["--null-odds", "odds.json"] if task == "squad2" else []
    # -X importtime names every module on standard error as it is imported.
    command = [sys.executable, "-X", "importtime", "-m", "bertvision", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert json.loads(done.stdout)["f1"] == 100.0
    assert "bertvision.scoring.squad" in modules
    assert not modules & HEAVY
