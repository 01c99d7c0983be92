"""A run that keeps articles of its training data for thresholds and temperatures, on a tiny BERT."""

import json
import shutil
from dataclasses import replace

import pytest
from scipy.stats import binomtest

import bertvision
from bertvision.data.split import write_squad
from bertvision.data.squad import read_squad
from bertvision.errors import DataError, FolderError, SettingsError
from bertvision.experiment import build_experiment
from bertvision.model_config import Calibration
from bertvision.progress import SILENT
from bertvision.scoring.squad import score_squad2
from bertvision.stages.context import prepare
from bertvision.stages.run import run

pytestmark = pytest.mark.flow
NEEDS_HELD_OUT = {"tuned_threshold", "tuned_exact", "tuned_f1", "tuned_below_best_f1", "temperature", "ece_calibrated"}


@pytest.fixture
def settings(questions, squad_file, encoder_folder, tmp_path):
    """Train on four articles of two questions each."""
    train = tmp_path / "train.json"
    write_squad(train, [replace(each, title=f"article {n // 2}") for n, each in enumerate(questions)])
    return {
        "data": {"train": str(train), "dev": str(squad_file("dev.json"))},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [1], "batch": {"windows": 2}, "lr": 1e-3},
        "heads": {"train": ["learned_pooling", "last_linear"], "batch": {"windows": 4}},
        "ensembles": [{"models": ["encoder", "last_linear"]}],
        "device": "cpu",
    }


@pytest.fixture
def held_out(questions, tmp_path):
    """A file of as many questions as a threshold needs, about other texts than those that are learned from."""
    path = tmp_path / "apart.json"
    write_squad(path, [replace(q, context=f"{q.context} x", id=f"{q.id}-{n}") for n in range(13) for q in questions])
    return path


def run_with(settings, out, *overrides):
    return run(build_experiment(settings, overrides), out)


def test_every_row_answers_the_held_out_articles_too(settings, tmp_path):
    out = tmp_path / "out"
    records = run_with(settings, out, "data.held_out=0.25", "seeds=[1, 2]")
    gold = read_squad(str(out / "held_out.json"))
    whole = read_squad(settings["data"]["train"])
    assert {each.title for each in gold.examples} < {each.title for each in whole.examples}
    assert all(each in whole.examples for each in gold.examples)
    assert [len(gold.examples), records[0].data["held_out"].examples, records[0].data["train"].examples] == [2, 2, 6]
    for root in (out, out / "seeds" / "2"):
        for row in ("encoder", "last_linear", "encoder+last_linear"):
            folder = root / "predictions_held_out" / "1" / row
            assert json.loads((folder / "predictions.json").read_text()).keys() == {each.id for each in gold.examples}


def test_the_tuned_scores_are_those_of_dev_at_the_best_threshold_of_the_held_out_questions(
    settings, held_out, tmp_path
):
    out = tmp_path / "out"
    record = next(each for each in run_with(settings, out, f"data.held_out={held_out}") if each.model == "last_linear")

    def scores_at(place, gold, threshold):
        folder = out / place / "1" / "last_linear"
        spans, odds = (json.loads((folder / name).read_text()) for name in ("best_spans.json", "null_odds.json"))
        return score_squad2(read_squad(gold).examples, spans, odds, threshold)

    tuned, gold = record.scores["tuned_threshold"], str(out / "held_out.json")
    odds = json.loads((out / "predictions_held_out" / "1" / "last_linear" / "null_odds.json").read_text()).values()
    possible = [scores_at("predictions_held_out", gold, threshold)["f1"] for threshold in (min(odds) - 1, *odds)]
    assert scores_at("predictions_held_out", gold, tuned)["f1"] == max(possible)
    dev = scores_at("predictions", settings["data"]["dev"], tuned)
    assert (record.scores["tuned_exact"], record.scores["tuned_f1"]) == (dev["exact"], dev["f1"])
    assert record.scores["tuned_NoAns_f1"] == dev["NoAns_f1"]
    assert record.scores["tuned_below_best_f1"] == pytest.approx(dev["best_f1"] - dev["f1"])


def test_without_held_out_questions_nothing_is_tuned_and_the_rest_is_there(settings, tmp_path):
    record = run_with(settings, tmp_path / "out")[0]
    assert not NEEDS_HELD_OUT & record.scores.keys()
    assert {"ece", "risk_coverage_area"} <= record.scores.keys()
    assert record.curves.reliability.keys() == {"before"}
    assert not (tmp_path / "out" / "held_out.json").exists()
    assert not (tmp_path / "out" / "predictions_held_out").exists()


def test_too_few_held_out_questions_change_no_threshold_and_are_said_to_be_too_few(settings, tmp_path):
    out = tmp_path / "out"
    record = run_with(settings, out, "data.held_out=0.5", "answers.decoders=[official, reader]")[0]
    low, high = binomtest(2, 4).proportion_ci()
    assert record.notes == [
        "4 questions held out are too few to choose a threshold and a temperature by (with 2 of 4 right, the 95% "
        f"interval is {100 * low:.0f} to {100 * high:.0f}%), so models keep their own; hold out at least 100 "
        "(data.held_out)"
    ]
    assert not any("tuned" in name or "calibrated" in name for name in record.scores)
    assert bertvision.load(out / "encoder" / "1", device="cpu").served.calibration == Calibration()


def test_curves_end_where_the_scores_say(settings, held_out, tmp_path):
    record = run_with(settings, tmp_path / "out", f"data.held_out={held_out}")[0]
    assert record.curves.risk_coverage[-1] == (1.0, pytest.approx(1 - record.scores["exact"] / 100))
    assert record.curves.threshold[-1][2] == pytest.approx(
        record.scores["best_span_HasAns_f1"] * 7 / 8
    )  # never declines
    for name, key in (("before", "ece"), ("after", "ece_calibrated")):
        bins = record.curves.reliability[name]
        assert sum(count for *_, count in bins) == 8
        error = sum(count / 8 * abs(right - confidence) for confidence, right, count in bins)
        assert record.scores[key] == pytest.approx(error, abs=1e-5)


def test_squad1_has_no_threshold_to_tune(settings, questions, tmp_path):
    answered = [replace(each, title=each.id) for each in questions if each.answers]
    write_squad(tmp_path / "train.json", answered)
    write_squad(tmp_path / "dev.json", answered)
    record = run_with(settings, tmp_path / "out", "task=squad1", "data.held_out=0.25")[0]
    assert not (NEEDS_HELD_OUT | {"ece"}) & record.scores.keys()
    assert record.curves is None


def test_a_finished_run_is_kept_and_lost_held_out_answers_are_made_again(settings, tmp_path):
    out = tmp_path / "out"
    first = run_with(settings, out, "data.held_out=0.25")
    assert run_with(settings, out, "data.held_out=0.25") == first
    (out / "held_out.json").unlink()
    shutil.rmtree(out / "predictions_held_out" / "1" / "encoder")
    again = run_with(settings, out, "data.held_out=0.25")
    assert [each.scores for each in again] == [each.scores for each in first]
    assert (out / "predictions_held_out" / "1" / "encoder" / "predictions.json").exists()
    assert (out / "held_out.json").exists()


def test_models_that_learnt_from_other_articles_are_refused(settings, tmp_path):
    run_with(settings, tmp_path / "out")
    with pytest.raises(FolderError, match=r"train\.held_out was 0\.0 and is now 0\.25"):
        run_with(settings, tmp_path / "out", "data.held_out=0.25")


def test_one_article_cannot_be_parted(settings, tmp_path):
    with pytest.raises(DataError, match="one must stay to learn from"):
        run_with(settings, tmp_path / "out", f"data.train={settings['data']['dev']}", "data.held_out=0.1")


def test_heads_learn_from_their_share_and_the_encoder_from_everything(settings, tmp_path):
    def line_of(*overrides):
        return prepare(build_experiment(settings, overrides), tmp_path / "unused", SILENT)

    whole, half = line_of(), line_of("heads.data_fraction=0.5")
    assert whole.head_windows() is whole.train
    assert len(half.train) == len(whole.train)
    drawn = half.head_windows()
    kept = {window.example for window in drawn}
    assert [window.ids.tolist() for window in drawn] == [
        window.ids.tolist() for window in whole.train if window.example in kept
    ]
    most = max(sum(window.example == number for window in whole.train) for number in range(8))
    assert 0.5 * len(whole.train) <= len(drawn) < 0.5 * len(whole.train) + most
    assert kept != {window.example for window in half.at(2).head_windows()}
    less = {window.example for window in line_of("heads.data_fraction=0.2").head_windows()}
    assert less < kept  # so that a curve over shares adds questions


def test_a_share_is_part_of_what_made_a_head_unless_it_is_all(settings, tmp_path):
    out = tmp_path / "out"
    run_with(settings, out)
    settings_fingerprint = json.loads((out / "heads" / "1" / "last_linear" / "settings_fingerprint.json").read_text())
    assert "data_fraction" not in settings_fingerprint["heads"]
    with pytest.raises(FolderError, match=r"heads\.data_fraction was null and is now 0\.5"):
        run_with(settings, out, "heads.data_fraction=0.5")
    half = run_with(settings, tmp_path / "half", "heads.data_fraction=0.5")
    whole = {record.model: record for record in run_with(settings, out)}
    assert half[0].encoder_fingerprint == whole["encoder"].encoder_fingerprint
    prints = [
        (place / "heads" / "1" / "last_linear" / "head.safetensors").read_bytes() for place in (out, tmp_path / "half")
    ]
    assert prints[0] != prints[1]


def test_a_file_of_its_own_can_be_held_out_of_nothing(settings, questions, held_out, tmp_path):
    record = run_with(settings, tmp_path / "out", f"data.held_out={held_out}")[0]
    assert [record.data["held_out"].examples, record.data["train"].examples] == [104, len(questions)]
    assert record.scores.keys() >= NEEDS_HELD_OUT
    answered = tmp_path / "out" / "predictions_held_out" / "1" / "encoder" / "predictions.json"
    assert len(json.loads(answered.read_text())) == 104


def test_a_held_out_file_that_has_changed_is_answered_anew_and_refused_where_heads_have_scores_on_it(
    settings, questions, tmp_path
):
    apart = tmp_path / "apart.json"
    moved = [replace(each, context=f"{each.context} x", id=f"{each.id}-apart") for each in questions[:3]]
    for out, epochs in ((tmp_path / "once", 1), (tmp_path / "twice", 2)):
        write_squad(apart, moved)
        run_with(settings, out, f"data.held_out={apart}", f"heads.epochs={epochs}")
    write_squad(apart, moved[:2])
    record = run_with(settings, tmp_path / "once", f"data.held_out={apart}", "heads.epochs=1")[0]
    assert record.data["held_out"].examples == 2
    assert len(read_squad(str(tmp_path / "once" / "held_out.json")).examples) == 2
    with pytest.raises(FolderError, match="made by other settings .scored_on.held_out was"):
        run_with(settings, tmp_path / "twice", f"data.held_out={apart}", "heads.epochs=2")


def test_a_held_out_file_may_share_no_paragraph_with_what_is_learned_from(settings, tmp_path):
    with pytest.raises(DataError, match="8 of its examples, such as .* have texts of .*train.json"):
        run_with(settings, tmp_path / "out", f"data.held_out={settings['data']['train']}")


@pytest.mark.parametrize("given", ["0.6", "-0.1", "''"])
def test_a_share_that_is_none_is_refused(settings, given):
    with pytest.raises(SettingsError, match="a share from 0 to 0.5, or a file"):
        build_experiment(settings, [f"data.held_out={given}"])


def test_both_decoders_are_scored_and_a_loaded_model_is_calibrated_for_its_own(settings, held_out, tmp_path):
    out = tmp_path / "out"
    record = next(each for each in run_with(settings, out, f"data.held_out={held_out}") if each.model == "last_linear")
    scores = record.scores
    reader = bertvision.load(out / "heads" / "1" / "last_linear", device="cpu")
    fitted = reader.served.calibration
    assert [fitted.threshold, fitted.temperature] == [scores["reader_tuned_threshold"], scores["reader_temperature"]]
    assert fitted.official_threshold == scores["tuned_threshold"]
    questions = read_squad(settings["data"]["dev"]).examples
    given = {each.id: reader(each.text, each.context).text for each in questions}
    assert score_squad2(questions, given)["f1"] == pytest.approx(scores["reader_tuned_f1"])
