"""The comparison with run_qa's way on small work; how long it takes is not asserted."""

import json

import numpy as np
import pytest

from benchmarks.decode import DecodeWork, answer_plainly, count_differences, make_logits, windows_by_question
from benchmarks.run import run_bench
from bertvision.data.example import GoldAnswer, Question
from bertvision.errors import DataError
from bertvision.predictions.logits import grid_of
from bertvision.predictions.prediction import AnswerConfig
from bertvision.windows.window import Window

WORDS = [f"w{number}" for number in range(60)]
CONTEXT = " ".join(WORDS)


def make_grid(*lengths):
    """Lay out one question per length, with a window of so many words from the start of the context."""
    places = np.cumsum([0, *(len(word) + 1 for word in WORDS)])
    offsets = np.stack([places[:-1], places[1:] - 1], axis=1).astype(np.int32)
    windows = [Window(q, np.zeros(n + 3, np.int32), 2, offsets[:n]) for q, n in enumerate(lengths)]
    return grid_of(windows, [f"q{number}" for number in range(len(lengths))])


def ask(count):
    return [Question(f"q{number}", "what", CONTEXT, (GoldAnswer("w1", 3),), "") for number in range(count)]


def lost_logits(grid):
    """Return the 20 best starts to a window's last words and the 20 best ends to its first."""
    logits = np.full((len(grid.offsets), 2), -9, np.float32)
    context = np.flatnonzero(grid.offsets[:, 0] >= 0)
    logits[context[-20:], 0] += np.arange(1, 21, dtype=np.float32) / 4
    logits[context[:20], 1] += np.arange(1, 21, dtype=np.float32) / 8
    logits[0] = -50
    return logits


def answer(grid, logits, **config):
    return answer_plainly("q0", CONTEXT, windows_by_question(grid, logits)[0], AnswerConfig(**config), 20)


def test_run_qas_way_ranks_pairs_and_keeps_no_answer():
    grid = make_grid(5)
    logits = np.full((8, 2), -9, np.float32)
    logits[0], logits[3], logits[5] = (0.5, 0.5), (2.0, 1.0), (0.0, 2.5)
    prediction = answer(grid, logits, n_best=3)
    assert [each.text for each in prediction.candidates] == ["w1 w2 w3", "w1", "w3", ""]
    assert [each.score for each in prediction.candidates] == [4.5, 3.0, 2.5, 1.0]
    weights = np.exp([4.5, 3.0, 2.5, 1.0])
    assert [each.probability for each in prediction.candidates] == pytest.approx((weights / weights.sum()).tolist())
    assert (prediction.text, prediction.null_odds) == ("w1 w2 w3", 1.0 - 4.5)
    assert answer(grid, logits, max_answer_length=2).text == "w1"
    assert answer(grid, logits, null_threshold=-4.0).text == ""


def test_run_qas_way_finds_nothing_where_no_preselected_pair_is_a_span():
    assert answer(make_grid(50), lost_logits(make_grid(50))).best_span == "empty"  # the original's own word


def test_answers_that_run_qas_preselection_lost_are_counted():
    grid = make_grid(50, 50)
    logits = make_logits(grid, seed=0)
    logits[: len(logits) // 2] = lost_logits(make_grid(50))
    counted = count_differences(DecodeWork(ask(2), grid, logits))
    assert counted == {"answers that differ": 1.0, "of these, a better span not preselected": 1.0}


def test_a_difference_that_preselection_does_not_explain_is_refused(monkeypatch):
    grid = make_grid(9, 9)
    work = DecodeWork(ask(2), grid, make_logits(grid, seed=0))
    assert count_differences(work)["answers that differ"] == 0.0
    logits = make_logits(grid, seed=0)
    logits[grid.window_at[:-1]] = -50  # both questions are answered
    work = DecodeWork(ask(2), grid, logits)
    ours = work.decode()
    monkeypatch.setattr(work, "decode", lambda: [ours[1], ours[0]])
    with pytest.raises(DataError, match="preselection does not explain"):
        count_differences(work)


def test_made_up_logits_answer_some_questions_and_decline_others():
    grid = make_grid(*[30] * 200)
    logits = make_logits(grid, seed=3)
    assert np.array_equal(logits, make_logits(grid, seed=3))
    assert not np.array_equal(logits, make_logits(grid, seed=4))
    declined = sum(not each.text for each in DecodeWork(ask(200), grid, logits).decode())
    assert 40 < declined < 160


def test_the_record_names_the_file_without_its_folder(encoder_folder, squad_file):
    record = run_bench("decode", [f"encoder={encoder_folder}", f"data={squad_file('dev-v3.json')}", "rounds=1"])
    assert record.variant == "tiny-dev-v3"
    assert record.settings == {"data": "dev-v3.json", "encoder": "tiny", "seed": 0, "rounds": 1}
    assert [side.name for side in record.sides] == [
        "decode and score",
        "run_qa's way, and score",
        "decode alone",
        "run_qa's way alone",
    ]
    assert (record.figures["questions"], record.figures["windows"]) == (8, 8)
    assert str(encoder_folder.parent) not in json.dumps(record.model_dump(mode="json"))
