import subprocess
import sys

import pytest

from bertvision.metrics.scores import piece_f1, score_pieces


@pytest.mark.parametrize(
    ("gold", "answer", "f1"),
    [
        ((5, 6, 7), (5, 6, 7), 1.0),
        ((5, 6, 7), (7, 5, 6), 1.0),  # a bag has no order
        # 2 shared of 3 answered and of 4 gold: 2 * 2/3 * 2/4 / (2/3 + 2/4) = 4/7.
        ((5, 6, 7, 8), (5, 6, 9), 4 / 7),
        # 5 is shared twice, not three times: precision 2/3, recall 2/2.
        ((5, 5), (5, 5, 5), 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ((5,), (6,), 0.0),
        ((5,), (), 0.0),
        ((), (5,), 0.0),
        ((), (), 1.0),
    ],
)
def test_f1_compares_bags_of_pieces(gold, answer, f1):
    assert piece_f1(gold, answer) == pytest.approx(f1)


def test_scores_are_percentages_of_the_best_gold_over_all_questions():
    golds = [[(5, 6), (5,)], [(7, 8, 9)], [()], [()]]
    answers = [(5,), (8, 7, 9), (), (4,)]
    # Exact: the second gold, not the same order, rightly none, not none. F1: the same, but order does not count.
    assert score_pieces(golds, answers) == {"paper_v1_exact": 50.0, "paper_v1_f1": 75.0}


def test_the_f1_of_a_question_is_that_of_its_best_gold():
    assert score_pieces([[(5, 6, 7), (5, 6)]], [(5,)])["paper_v1_f1"] == pytest.approx(100 * 2 / 3)  # 1 of 1, 1 of 2


def test_every_question_needs_an_answer():
    with pytest.raises(ValueError, match="zip"):
        score_pieces([[(5,)], [()]], [(5,)])


def test_scoring_needs_no_torch():
    code = "import sys, bertvision.metrics.scores; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
