import json
import re
from pathlib import Path

import elsewhere
import numpy as np
import pytest

from bertvision.data.example import GoldAnswer, Question
from bertvision.files import sha256_of
from bertvision.hub import CARD
from bertvision.model_config import SHIPPED
from bertvision.predictions.prediction import Candidate
from bertvision.scoring.calibration import Decision
from bertvision.scoring.confidence import build_answers

ROOT = Path(__file__).parents[2]
ARTICLES = json.loads(elsewhere.DATA.read_text(encoding="utf-8"))["data"]
ASKED = [
    (article["title"], paragraph["context"], question)
    for article in ARTICLES
    for paragraph in article["paragraphs"]
    for question in paragraph["qas"]
]


def words(text):
    return re.findall(r"\w+", text.lower())


def test_every_marked_answer_stands_where_the_file_says():
    for _, context, question in ASKED:
        for answer in question["answers"]:
            assert context[answer["answer_start"] :].startswith(answer["text"]), question["id"]


def test_a_question_without_an_answer_is_asked_elsewhere_of_a_passage_that_has_one_and_of_none_that_holds_it():
    answers = {(title, each["question"]): each["answers"] for title, _, each in ASKED if each["answers"]}
    impossible = [(title, context, each) for title, context, each in ASKED if each["is_impossible"]]
    known = [
        (context, answers[title, each["question"]])
        for title, context, each in impossible
        if (title, each["question"]) in answers
    ]
    assert len(known) > 60
    for context, marked in known:
        passage = f" {' '.join(words(context))} "
        assert not any(f" {' '.join(words(each['text']))} " in passage for each in marked)


def test_ids_are_unique_and_all_sources_say_where_they_come_from_and_under_which_licence():
    assert len({question["id"] for _, _, question in ASKED}) == len(ASKED)
    licences = (elsewhere.DATA.parent / "LICENCES.txt").read_text(encoding="utf-8")
    for article in ARTICLES:
        assert "(Debian package " in article["source"]
        assert article["licence"]
        assert f"\n{article['title']}\n=====" in licences


def test_the_page_on_its_making_counts_as_the_file_does():
    page = (ROOT / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    impossible = [question for _, _, question in ASKED if question["is_impossible"]]
    asked_how = [each for _, _, each in ASKED if each["answers"] and each["question"].lower().startswith("how")]
    assert f"holds {len(ASKED)} questions in SQuAD 2.0's format" in page
    assert f"an F1 of {100 * len(impossible) / len(ASKED):.1f} on this set" in page
    assert f"{len(impossible)} questions of the same FAQs" in page
    assert f"ask how ({len(asked_how)} of {len(ASKED) - len(impossible)})" in page


def answered(number, gold, best, best_share, null_odds):
    """A question with its gold answer (none: impossible), the model's best span, and the odds of "no answer"."""
    golds = () if gold is None else (GoldAnswer(gold, 0),)
    question = Question(id=str(number), text="Who?", context=gold or "Nobody.", answers=golds, title="")
    return question, best, null_odds, [Candidate(best, 0, 0, best_share), Candidate("", 0, 0, 1 - best_share)]


def test_scores_are_of_the_answers_given_at_the_models_own_threshold():
    rows = [
        answered(1, "Ada", "Ada", 0.9, -2.0),  # given, right
        answered(2, "Bo", "Cy", 0.6, -1.0),  # given, wrong
        answered(3, "Di", "Di", 0.4, 1.0),  # abstains, though it knew
        answered(4, None, "Ed", 0.2, 2.0),  # abstains, rightly
    ]
    questions, best, odds, candidates = zip(*rows, strict=True)
    ids = [each.id for each in questions]
    by_id = [dict(zip(ids, column, strict=True)) for column in (best, odds, candidates)]
    scores = elsewhere.scores_of(build_answers(questions, *by_id), Decision(0.0, 1.0))
    assert scores["f1"] == pytest.approx(50.0)
    assert scores["HasAns_f1"] == pytest.approx(100 / 3)
    assert scores["span_f1"] == pytest.approx(200 / 3)
    assert scores["NoAns_f1"] == pytest.approx(100.0)
    assert (scores["answered"], scores["right"], scores["given_f1"]) == pytest.approx((50.0, 50.0, 50.0))
    assert scores["best_f1"] == pytest.approx(75.0)
    confidence = np.array([0.9, 0.6, 0.6, 0.8])
    assert scores["brier"] == pytest.approx(np.square(confidence - [1, 0, 0, 1]).mean())


@pytest.mark.parametrize("name", SHIPPED)
def test_the_record_is_of_the_files_that_ship_and_in_the_card(name):
    found = json.loads(elsewhere.RECORD.read_text(encoding="utf-8"))[name]
    assert found["model"] == sha256_of(SHIPPED[name] / "sha256.json"), f"run python tools/elsewhere.py {name}"
    assert found["data"]["sha256"] == sha256_of(elsewhere.DATA), f"run python tools/elsewhere.py {name}"
    assert elsewhere.section(found) in (SHIPPED[name] / CARD).read_text(encoding="utf-8"), "run make pages"
