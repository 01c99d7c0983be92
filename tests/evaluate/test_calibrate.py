import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.data.example import GoldAnswer, Question
from bertvision.data.split import hold_out, write_squad
from bertvision.data.squad import read_squad
from bertvision.evaluate.calibrate import _answers, _read_folder, calibrate_folder
from bertvision.predictions.files import write_predictions
from bertvision.predictions.prediction import Candidate, Prediction
from bertvision.scoring.calibration import Decision, fit_decision, judge


def questions_of(name, count):
    """Make questions of articles of two, every third of them unanswerable."""
    return [
        Question(
            f"{name}{n}",
            "?",
            f"the weir {name}{n // 2}",
            (GoldAnswer("weir", 4),) if n % 3 else (),
            f"article {name}{n // 2}",
        )
        for n in range(count)
    ]


def predictions_of(questions, *, has_null=True):
    """Let a model answer "weir" or "mill", with odds of chance."""
    random = np.random.default_rng(5)
    made = []
    for each in questions:
        odds, best = float(random.normal()), "weir" if random.random() < 0.7 else "mill"
        shares = np.exp([0.0, odds]) / np.exp([0.0, odds]).sum()
        listed = [Candidate(best, 0.0, 0.0, float(shares[0])), Candidate("", odds, 0.0, float(shares[1]))]
        listed = tuple(sorted(listed, key=lambda each: -each.probability)) if has_null else (listed[0],)
        made.append(
            Prediction(each.id, "" if odds > 0 and has_null else best, best, odds if has_null else None, listed)
        )
    return made


@pytest.fixture
def make(tmp_path):
    """Return a function that writes a prediction folder and its gold file."""

    def write(folder, gold, name, count, **more):
        questions = questions_of(name, count)
        (tmp_path / folder).mkdir(parents=True)
        write_predictions(tmp_path / folder, predictions_of(questions, **more))
        write_squad(tmp_path / gold, questions)
        return tmp_path / folder, str(tmp_path / gold)

    return write


def answers_in(folder, gold):
    return _answers(_read_folder(folder), read_squad(gold).examples)


def test_what_was_tuned_on_held_out_answers_is_applied_to_the_others(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    held, held_gold = make("held", "held.json", "b", 60)
    found = calibrate_folder(dev, gold, held, held_gold)
    decision = fit_decision(answers_in(held, held_gold))
    assert found.decisions == [decision]
    expected = judge([answers_in(dev, gold)], [decision])
    assert (found.after.f1, found.after.error) == (expected.f1, expected.error)
    assert found.fitted_on == f"tuned on {held}"


@pytest.mark.parametrize("root", ["out", "out/seeds/2"])
def test_the_held_out_answers_of_a_run_folder_are_found(make, root):
    dev, gold = make(f"{root}/predictions/0.5/encoder", "dev.json", "a", 20)
    held, _ = make(f"{root}/predictions_held_out/0.5/encoder", "out/held_out.json", "b", 20)
    assert calibrate_folder(dev, gold).fitted_on == f"tuned on {held}"


def test_without_held_out_answers_each_half_is_judged_by_the_other(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    found = calibrate_folder(dev, gold)
    folder, (one, other) = _read_folder(dev), (half.examples for half in hold_out(read_squad(gold), 0.5))
    one, other = (_answers(folder, half, is_part=True) for half in (one, other))
    assert found.decisions == [fit_decision(other), fit_decision(one)]
    together = (len(one.questions) * judge([one], [fit_decision(other)]).f1) + (
        len(other.questions) * judge([other], [fit_decision(one)]).f1
    )
    assert found.after.f1 == pytest.approx(together / 40)
    assert "no held-out answers" in found.fitted_on
    assert " / " in found.as_page().tables[0].rows[1][1]


def test_the_best_threshold_of_a_model_that_had_better_abstain_always_lies_below_all_odds(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    write_squad(Path(gold), [replace(each, answers=()) for each in read_squad(gold).examples])
    found = calibrate_folder(dev, gold)
    assert found.before.f1 < found.best_f1 == 100.0
    assert judge([answers_in(dev, gold)], [Decision(found.best_threshold)]).f1 == 100.0
    assert f"100.00 at {found.best_threshold:.2f}" in found.as_page().tables[0].note


def test_a_folder_without_best_spans_is_read_from_its_n_best(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    before = calibrate_folder(dev, gold).as_dict()
    (dev / "best_spans.json").unlink()  # as run_qa writes it
    assert calibrate_folder(dev, gold).as_dict() == before


def test_nothing_is_written(make, tmp_path):
    dev, gold = make("dev", "dev.json", "a", 40)
    there = set(tmp_path.rglob("*"))
    arguments = ["calibrate", str(dev), "--gold", gold]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0
    assert all(len(line) <= 80 for line in printed.stdout.splitlines() if str(tmp_path) not in line)
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert as_json["tuned_below_best_f1"] == pytest.approx(as_json["best_f1"] - as_json["after"]["f1"])
    assert set(tmp_path.rglob("*")) == there


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda dev, gold: (dev / "null_odds.json").unlink(), "no null_odds.json in it"),
        (lambda dev, gold: (dev / "nbest_predictions.json").unlink(), "no nbest_predictions.json in it"),
        (lambda dev, gold: write_squad(Path(gold), questions_of("x", 8)), "are not in the gold file"),
        (lambda dev, gold: write_squad(Path(gold), questions_of("a", 44)), "no prediction for 4 of 44"),
    ],
)
def test_bad_input_is_told_in_one_line(make, spoil, told):
    dev, gold = make("dev", "dev.json", "a", 40)
    spoil(dev, gold)
    assert told in error_of(["calibrate", str(dev), "--gold", gold])


def test_a_squad1_folder_has_no_threshold(make):
    dev, gold = make("dev", "dev.json", "a", 40, has_null=False)
    assert "there is no threshold to tune" in error_of(["calibrate", str(dev), "--gold", gold])


def test_held_out_questions_that_are_judged_too_are_refused(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    same, same_gold = make("same", "same.json", "a", 6)
    told = error_of(["calibrate", str(dev), "--gold", gold, "--held-out", str(same), "--held-out-gold", same_gold])
    assert "6 of its questions, such as 'a0', are in --gold too" in told


def test_a_held_out_folder_needs_its_golds(make):
    dev, gold = make("dev", "dev.json", "a", 40)
    assert "go together" in error_of(["calibrate", str(dev), "--gold", gold, "--held-out", str(dev)])


def test_one_article_needs_held_out_answers(make):
    dev, gold = make("dev", "dev.json", "a", 2)
    assert "cannot be parted into two halves; give --held-out" in error_of(["calibrate", str(dev), "--gold", gold])


def test_torch_is_not_needed():
    heavy = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import bertvision.evaluate.calibrate, sys; sys.exit(len({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def error_of(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    return done.stderr
