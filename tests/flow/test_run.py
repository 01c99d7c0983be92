"""The whole line on a tiny BERT."""

import json
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from bertvision.data.squad import read_squad
from bertvision.encoder.load import load_encoder
from bertvision.errors import EncoderError, FolderError
from bertvision.experiment import build_experiment
from bertvision.files import locked
from bertvision.model_folder import load_model
from bertvision.predictions.ensemble import log_softmax
from bertvision.predictions.logits import load_logits
from bertvision.progress import Silent
from bertvision.records import read_mistakes, read_records
from bertvision.report.page import write_report
from bertvision.scoring.squad import score_squad2
from bertvision.serving.predict import predict_file
from bertvision.stages.heads import keep_head
from bertvision.stages.run import run, run_finetune, run_train_heads
from bertvision.training.checkpoint import fingerprint

pytestmark = pytest.mark.flow
HEADS = ["learned_pooling", "adapter_64_shared_skip", "last_linear"]


@pytest.fixture
def settings(tiny):
    return {
        **tiny,
        "finetune": {"fractions": [0, 0.5, 1], "batch": {"windows": 2}, "lr": 1e-3},
        "heads": {"train": HEADS, "batch": {"windows": 4}},
        "ensembles": [
            {"models": ["encoder", "learned_pooling"]},
            {"models": ["encoder", "last_linear"], "method": "mean"},
        ],
    }


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run_with(settings, out, *overrides):
    return run(build_experiment(settings, overrides), out)


def test_a_run_leaves_a_record_of_every_row_and_fraction(settings, out):
    records = run_with(settings, out)
    rows = ["encoder", *HEADS, "encoder+learned_pooling", "encoder+last_linear-mean"]
    assert [(record.fraction, record.model) for record in records] == [(f, row) for f in (0, 0.5, 1) for row in rows]
    assert read_records(out / "records") == records
    assert {record.kind for record in records} == {"encoder", "head", "control", "ensemble"}
    assert all(len(record.epoch_scores) == (record.kind in ("head", "control")) for record in records)


def test_a_record_says_what_it_cost_and_where_it_came_from(settings, out, questions):
    records = {record.model: record for record in run_with(settings, out, "finetune.fractions=[1]")}
    encoder, head = records["encoder"], records["learned_pooling"]
    parameters = sum(weight.numel() for weight in load_encoder(str(out / "encoder" / "1")).model.parameters())
    assert encoder.parameters.trainable == parameters + 32 * 2 + 2
    assert (head.parameters.trainable, head.parameters.encoder) == (3 + 1 + 32 * 2 + 2, parameters)
    assert records["encoder+learned_pooling"].parameters.trainable == parameters + 66 + 70
    assert sum(head.layer_weights) == pytest.approx(1, abs=1e-5)
    assert head.data["train"].examples == len(questions)
    assert len(head.data["train"].sha256) == 64
    assert head.seconds.finetune == encoder.seconds.finetune > 0
    assert head.config["windows"]["max_length"] == 24
    assert head.provenance.versions["torch"] == metadata.version("torch")


def test_the_run_folder_is_an_interface(settings, out):
    run_with(settings, out)
    for fraction in ("0", "0.5", "1"):
        assert (out / "encoder" / fraction / "model.safetensors").is_file()
        for head in HEADS:
            assert (out / "heads" / fraction / head / "head.safetensors").is_file()
        for row in ("encoder", *HEADS, "encoder+learned_pooling"):
            written = {path.name for path in (out / "predictions" / fraction / row).iterdir()}
            answers = {"predictions.json", "nbest_predictions.json", "best_spans.json", "null_odds.json"}
            assert written == {*answers, "logits.safetensors", "mistakes.json", "sha256.json"}
    assert not (out / "unfinished").exists()


def test_the_scores_of_a_record_are_those_of_its_prediction_files(settings, out):
    record = next(record for record in run_with(settings, out) if (record.model, record.fraction) == ("last_linear", 1))
    folder = out / "predictions" / "1" / "last_linear"
    answers, odds = (json.loads((folder / name).read_text()) for name in ("predictions.json", "null_odds.json"))
    golds = read_squad(settings["data"]["dev"]).examples
    again = score_squad2(golds, answers)
    assert {key: record.scores[key] for key in again} == again
    spans = json.loads((folder / "best_spans.json").read_text())
    swept = score_squad2(golds, spans, odds, 0.0)
    assert {key: record.scores[key] for key in swept} == swept


def test_the_ensemble_takes_the_larger_probability_of_its_members(settings, out):
    run_with(settings, out)
    grid, encoder = load_logits(out / "predictions" / "1" / "encoder" / "logits.safetensors")
    _, head = load_logits(out / "predictions" / "1" / "learned_pooling" / "logits.safetensors")
    _, both = load_logits(out / "predictions" / "1" / "encoder+learned_pooling" / "logits.safetensors")
    expected = np.maximum(np.exp(log_softmax(grid, encoder)), np.exp(log_softmax(grid, head)))
    np.testing.assert_allclose(np.exp(both), expected, rtol=1e-4)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(settings, out, tmp_path):
    run_with(settings, out, "seeds=[1, 2]", "finetune.fractions=[1]")
    run_with(settings, tmp_path / "again", "finetune.fractions=[1]")
    one, two = out / "encoder" / "1", out / "seeds" / "2" / "encoder" / "1"
    prints = [fingerprint(load_encoder(str(place)).model) for place in (one, tmp_path / "again" / "encoder" / "1", two)]
    assert prints[0] == prints[1] != prints[2]
    assert {record.seed for record in read_records(out)} == {1, 2}


def test_a_finished_run_is_not_done_again(settings, out):
    first = run_with(settings, out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert run_with(settings, out) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == times


def test_dev_data_that_changed_in_place_are_answered_anew(settings, out, squad_file, questions):
    settings = {**settings, "data": {**settings["data"], "dev": str(squad_file("dev.json"))}}
    before = run_with(settings, out)
    squad_file("dev.json", questions[:4])
    after = run_with(settings, out)
    assert (before[0].scores["total"], after[0].scores["total"]) == (8, 4)


def test_a_head_added_later_is_trained_alone_and_equals_one_trained_with_the_others(settings, out, tmp_path):
    run_with(settings, out, f"heads.train={HEADS[:2]}", "ensembles=[]")
    kept = (out / "heads" / "1" / HEADS[0] / "head.safetensors").stat().st_mtime_ns
    later = run_with(settings, out)
    together = run_with(settings, tmp_path / "together")
    assert (out / "heads" / "1" / HEADS[0] / "head.safetensors").stat().st_mtime_ns == kept
    assert [record.scores for record in later] == [pytest.approx(record.scores, rel=1e-4) for record in together]


def test_a_run_that_lost_a_stage_makes_it_again(settings, out):
    first = run_with(settings, out)
    shutil.rmtree(out / "heads" / "0.5")
    shutil.rmtree(out / "predictions" / "0.5" / "encoder")
    assert [record.scores for record in run_with(settings, out)] == [record.scores for record in first]
    assert (out / "heads" / "0.5" / "last_linear" / "head.safetensors").is_file()


@pytest.mark.parametrize(
    ("override", "told"),
    [("finetune.lr=0.01", r"finetune\.lr was 0\.001 and is now 0\.01"), ("heads.lr=0.5", r"heads\.lr was")],
)
def test_a_run_folder_of_other_settings_is_refused(settings, out, override, told):
    run_with(settings, out)
    with pytest.raises(FolderError, match=told):
        run_with(settings, out, override)


def test_a_refused_run_leaves_the_experiment_as_it_was(settings, out):
    run_with(settings, out)
    before = (out / "experiment.json").read_text()
    with pytest.raises(FolderError):
        run_with(settings, out, "finetune.lr=0.01")
    assert (out / "experiment.json").read_text() == before


def test_a_head_that_diverged_is_noted_and_not_tried_again(settings, out):
    fast = {"name": "wild", "head": "last_linear", "lr": 1e38}
    settings = {**settings, "heads": {**settings["heads"], "train": [*HEADS, fast], "epochs": 8}, "ensembles": []}
    settings["finetune"] = {**settings["finetune"], "fractions": [0.5]}
    first = run_with(settings, out)
    assert "wild" not in [record.model for record in first]
    assert first[0].notes == ["head wild diverged and was left out"]
    assert run_with(settings, out) == first


def test_a_run_that_was_cut_short_while_it_kept_its_heads_goes_on(settings, out, monkeypatch):
    kept = []

    def keep_one(*arguments):
        if kept:
            raise KeyboardInterrupt
        kept.append(keep_head(*arguments))

    monkeypatch.setattr("bertvision.stages.heads.keep_head", keep_one)
    with pytest.raises(KeyboardInterrupt):
        run_with(settings, out)
    monkeypatch.undo()
    assert len(run_with(settings, out)) == 3 * 6


def test_a_fraction_asked_for_after_it_was_passed_is_made_all_the_same(settings, out, tmp_path, monkeypatch):
    monkeypatch.setattr("bertvision.stages.finetune._save", _raise_keyboard_interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_with(settings, out, "finetune.fractions=[1]", "finetune.save_every=1e-9")
    monkeypatch.undo()
    later = run_with(settings, out, "finetune.fractions=[0.25, 1]", "finetune.save_every=1e-9")
    whole = run_with(settings, tmp_path / "whole", "finetune.fractions=[0.25, 1]")
    assert [record.scores for record in later] == [record.scores for record in whole]


def _raise_keyboard_interrupt(*arguments):
    raise KeyboardInterrupt


def test_epoch_scores_on_other_dev_data_are_refused(settings, out, squad_file, questions):
    settings = {**settings, "data": {**settings["data"], "dev": str(squad_file("dev.json"))}}
    run_with(settings, out, "heads.epochs=2", "finetune.fractions=[0.5]")
    squad_file("dev.json", questions[:4])
    with pytest.raises(FolderError, match=r"scored_on\.dev"):
        run_with(settings, out, "heads.epochs=2", "finetune.fractions=[0.5]")


def test_scores_are_kept_for_every_epoch_and_the_last_one_counts(settings, out):
    records = run_with(settings, out, "heads.epochs=3", "finetune.fractions=[0.5]")
    for record in records:
        if record.kind in ("head", "control"):
            assert len(record.epoch_scores) == 3
            assert record.epoch_scores[2] == record.scores


def test_epochs_can_be_told_apart_by_training_for_fewer(settings, out, tmp_path):
    three = run_with(settings, out, "heads.epochs=3", "finetune.fractions=[0.5]", "heads.lr=0.1", "states=live")
    one = run_with(settings, tmp_path / "one", "heads.epochs=1", "finetune.fractions=[0.5]", "heads.lr=0.1")
    for many, single in zip(three, one, strict=True):
        if many.kind in ("head", "control"):
            # Calibration is measured at the reported epoch alone.
            calibrated = {name: score for name, score in single.scores.items() if name.startswith("reader_")}
            calibrated |= {name: single.scores[name] for name in ("ece", "risk_coverage_area")}
            assert many.epoch_scores[0] | calibrated == single.scores


@pytest.mark.parametrize(("states", "told"), [("memory", "memory, bf16"), ("live", "live")])
def test_heads_learn_the_same_from_states_that_were_kept(settings, out, states, told):
    options = ("heads.epochs=2", "finetune.fractions=[0.5]", "ensembles=[]")
    kept = run_with(settings, out, *options, f"states={states}")
    live = run_with(settings, out.with_name("live"), *options, "states=live")
    assert [record.states for record in kept] == ["live", *[told] * len(HEADS)]  # the encoder's own layer has no states
    for one, other in zip(kept, live, strict=True):
        assert one.scores["best_f1_thresh"] == pytest.approx(other.scores["best_f1_thresh"], abs=0.1)


def test_heads_can_read_some_of_the_layers(settings, out):
    records = run_with(settings, out, "states.layers=[0, 1]", "finetune.fractions=[0.5]", "ensembles=[]")
    learned = next(record for record in records if record.model == "learned_pooling")
    assert len(learned.layer_weights) == 2
    model = load_model(out / "heads" / "0.5" / "learned_pooling")
    states, mask = torch.randn(1, 3, 4, 32), torch.ones(1, 4, dtype=torch.bool)
    changed = states.clone()
    changed[:, 2] += 1.0
    seen = mask, torch.zeros(1, 4, dtype=torch.long)
    assert torch.equal(model.head(states, *seen), model.head(changed, *seen))
    changed[:, 1] += 1.0
    assert not torch.equal(model.head(states, *seen), model.head(changed, *seen))


def outside(folder):
    """Return how likely it is, on average, that an answer starts at the question or a separator."""
    grid, logits = load_logits(folder / "logits.safetensors")
    shares = []
    for first, stop, context in zip(grid.window_at[:-1], grid.window_at[1:], grid.context_at, strict=True):
        starts = torch.from_numpy(logits[first:stop, 0]).softmax(dim=0)
        shares.append(float(starts[1:context].sum() + starts[-1]))
    return np.mean(shares)


def test_training_can_leave_out_what_is_no_answer(settings, out, tmp_path):
    training = ("finetune.fractions=[6]", "finetune.lr=3e-3", "heads.epochs=6", "heads.lr=0.03", "ensembles=[]")
    run_with(settings, out, *training)
    run_with(settings, tmp_path / "masked", *training, "windows.mask_question=true")
    for row in ("encoder", "last_linear"):  # only what has a part in the softmax is pushed down
        plain, masked = (outside(place / "predictions" / "6" / row) for place in (out, tmp_path / "masked"))
        assert masked > 2 * plain, row
    with pytest.raises(FolderError, match="mask_question"):
        run_with(settings, out, *training, "windows.mask_question=true")


def test_without_fractions_heads_are_trained_on_the_encoder_as_given(settings, out):
    records = run_with(settings, out, "finetune.fractions=[]", "ensembles=[]")
    assert [(record.model, record.fraction) for record in records] == [(name, None) for name in HEADS]
    assert not (out / "encoder").exists()
    model = load_model(out / "heads" / "given" / "last_linear", allow_outside=True)
    assert model.encoder.shape == (3, 32)


def test_a_run_goes_on_from_an_earlier_checkpoint_with_its_output_layer(settings, out, tmp_path):
    run_with(settings, out)
    start = str(out / "encoder" / "1")
    first = run_with({**settings, "encoder": start}, tmp_path / "more", "finetune.fractions=[0]")
    last = [record for record in run_with(settings, out) if record.fraction == 1 and record.model == "encoder"]
    assert first[0].scores == last[0].scores
    given = run_with({**settings, "encoder": start}, tmp_path / "given", "finetune.fractions=[]", "ensembles=[]")
    assert given[0].model == "encoder"
    assert given[0].scores == last[0].scores


def test_a_model_folder_answers_a_file_as_the_run_did(settings, out, tmp_path):
    run_with(settings, out)
    answered = predict_file(out / "heads" / "1" / "learned_pooling", settings["data"]["dev"], tmp_path / "answers")
    before = json.loads((out / "predictions" / "1" / "learned_pooling" / "predictions.json").read_text())
    assert json.loads((tmp_path / "answers" / "predictions.json").read_text()) == before
    assert answered.scores["total"] == 8


@pytest.mark.parametrize("kept", [0, 3])
def test_a_file_that_is_not_answered_throughout_is_answered_but_not_scored(settings, out, tmp_path, kept):
    run_with(settings, out, "finetune.fractions=[1]")
    content = json.loads(Path(settings["data"]["dev"]).read_text())
    for paragraph in content["data"][0]["paragraphs"][kept:]:
        del paragraph["qas"][0]["answers"]
    (tmp_path / "asked.json").write_text(json.dumps(content))
    answered = predict_file(out / "encoder" / "1", str(tmp_path / "asked.json"), tmp_path / "answers")
    assert answered.scores is None
    assert len(answered.predictions) == 8


def test_a_run_folder_can_be_moved(settings, out, tmp_path):
    run_with(settings, out)
    shutil.move(out, tmp_path / "elsewhere")
    load_model(tmp_path / "elsewhere" / "heads" / "1" / "last_linear")


def test_a_prediction_leaves_other_files_of_its_folder_alone(settings, out, tmp_path):
    run_with(settings, out, "finetune.fractions=[1]")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    predict_file(out / "encoder" / "1", settings["data"]["dev"], tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_model_folder_may_be_linked_and_its_encoder_may_be_elsewhere(settings, out, tmp_path):
    run_with(settings, out, "finetune.fractions=[]", "ensembles=[]")
    (tmp_path / "deep").mkdir()
    shutil.move(out, tmp_path / "deep" / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "moved" / "heads" / "given" / "last_linear")
    with pytest.raises(FolderError, match="allow_outside=True"):
        load_model(tmp_path / "link")
    assert load_model(tmp_path / "link", allow_outside=True).encoder.shape == (3, 32)


def test_an_ensemble_that_lacks_a_member_is_noted(settings, out):
    records = run_with(settings, out, "finetune.fractions=[]")
    assert records[0].notes[0] == "ensemble encoder+learned_pooling was left out, because there is no row encoder"


def test_a_head_refuses_an_encoder_that_is_not_its_own(settings, out):
    run_with(settings, out)
    shutil.rmtree(out / "encoder" / "1")
    shutil.copytree(out / "encoder" / "0", out / "encoder" / "1")
    with pytest.raises(FolderError, match="not the one this head was trained on"):
        load_model(out / "heads" / "1" / "last_linear")


def test_the_stages_can_be_run_one_by_one(settings, out):
    experiment = build_experiment(settings)
    assert [path.name for path in run_finetune(experiment, out)] == ["0", "0.5", "1"]
    assert not (out / "heads").exists()
    assert all(path.is_dir() for path in run_train_heads(experiment, out))
    assert not (out / "records").exists()
    assert len(run(experiment, out)) == 3 * 6


def test_windows_longer_than_the_encoder_reads_are_refused_before_any_training(settings, out):
    with pytest.raises(EncoderError, match="reads at most 512 tokens"):
        run_with(settings, out, "windows.max_length=513")


def test_a_second_process_is_kept_out_of_a_run_folder(settings, out):
    with locked(out), pytest.raises(FolderError, match="another bertvision is working"):
        run_with(settings, out)


def test_squad_1_has_its_own_metric_and_no_null(settings, out, squad_file, questions):
    answerable = str(squad_file("v1.json", [question for question in questions if question.answers]))
    settings = {**settings, "task": "squad1", "data": {"train": answerable, "dev": answerable}}
    records = run_with(settings, out, "finetune.fractions=[1]")
    official = {"exact_match", "f1", "best_span_HasAns_exact", "best_span_HasAns_f1"}
    assert records[0].scores.keys() == official | {"reader_exact_match", "reader_f1"}
    assert not (out / "predictions" / "1" / "encoder" / "null_odds.json").exists()


def test_a_run_folder_of_before_there_were_two_decoders_goes_on(settings, out):
    options = ("heads.epochs=2", "finetune.fractions=[1]", "ensembles=[]")
    first = run_with(settings, out, *options)
    settings_fingerprint = json.loads((out / "heads" / "1" / "last_linear" / "settings_fingerprint.json").read_text())
    assert "decoders" not in settings_fingerprint["scored_on"]["answers"]
    (out / "records" / "sha256.json").unlink()
    for path in (out / "records").glob("*.json"):
        record = json.loads(path.read_text())
        del record["config"]["answers"]["decoders"]
        path.write_text(json.dumps(record))
    assert [record.scores for record in run_with(settings, out, *options)] == [record.scores for record in first]


def test_a_run_can_be_reported_from_its_records_alone(settings, out, tmp_path):
    run_with(settings, out)
    page = write_report(read_records(out / "records"), tmp_path / "report")
    assert "adapter_64_shared_skip" in page.read_text().replace("<wbr>", "")


def test_answers_to_questions_have_intervals_and_errors_to_read(settings, out, tmp_path):
    records, mistakes = run_with(settings, out), read_mistakes(out)
    for record in records:
        right = round(record.scores["exact"] * 8 / 100)  # of eight questions, too few for an interval of F1
        exact = binomtest(right, 8).proportion_ci()
        assert record.intervals == {"exact": pytest.approx((100 * exact.low, 100 * exact.high))}
        (own,) = (each for each in mistakes if each.is_of(record))
        answers = json.loads(
            (out / "predictions" / f"{record.fraction:g}" / record.model / "predictions.json").read_text()
        )
        assert own.model == record.model
        assert own.wrong >= len(own.errors) == min(own.wrong, 20)
        assert all(each.predicted == (answers[each.id] or "(no answer)") != each.gold for each in own.errors)
    page = write_report(records, tmp_path / "report", mistakes=mistakes).read_text(encoding="utf-8")
    assert "to read</h2>" in page
    assert "mislabelled" not in page  # answers have no probabilities of classes


def test_a_deterministic_run_takes_kernels_that_are_and_says_so(settings, out):
    seen = []

    class Watching(Silent):
        def bar(self, what, total):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return super().bar(what, total)

    records = run(build_experiment({**settings, "deterministic": True}), out, Watching())
    assert seen
    assert all(seen)
    assert not torch.are_deterministic_algorithms_enabled()
    assert all(record.config["deterministic"] for record in records)


@pytest.mark.gpu
def test_two_deterministic_runs_on_a_gpu_have_the_same_bits(settings, tmp_path):
    settings = {**settings, "device": "cuda", "deterministic": True}
    for name in ("one", "two"):
        run(build_experiment(settings), tmp_path / name)
    weights = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.safetensors"))
    assert len(weights) > 5
    for path in weights:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
