"""What a run shows of its training, and which weights it keeps, on a tiny BERT and rows of an own table."""

import csv
import json
from itertools import pairwise

import pytest
import torch
from transformers import BertModel

import bertvision
from bertvision.errors import DataError
from bertvision.experiment import build_experiment
from bertvision.stages.run import run

pytestmark = pytest.mark.flow
PLACES, ACTS = ("river", "weir", "stone", "coyle"), ("the {} was built", "hannah was in the {}", "by the {}, in 1887")
HEADS = ["learned_pooling", "last_linear"]
TIMES = {"seconds", "efficiency", "training", "provenance"}


def write_rows(path, count):
    texts = [f"{act.format(place)} {number}" for number in range(count) for act in ACTS for place in PLACES][:count]
    labels = ["wet" if "river" in text or "weir" in text else "dry" for text in texts]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *zip(texts, labels, strict=True)])
    return str(path)


@pytest.fixture
def settings(encoder_folder, tmp_path):
    return {
        "task": "classification",
        "data": {"train": write_rows(tmp_path / "train.csv", 48), "dev": write_rows(tmp_path / "dev.csv", 12)},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 16},
        "finetune": {"fractions": [0.5, 3], "batch": {"windows": 8}, "lr": 1e-3},
        "heads": {"train": HEADS, "epochs": 5, "batch": {"windows": 8}, "lr": 3e-2, "baseline": False},
        "device": "cpu",
    }


class Seen:
    """A callback that notes what it sees, and ends the process after so many points."""

    def __init__(self, most=None):
        self.points, self.most = [], most

    def on_point(self, point):
        self.points.append(point)
        if self.most is not None and len(self.points) > self.most:
            raise KeyboardInterrupt


def run_with(settings, out, *overrides, callbacks=()):
    return run(build_experiment(settings, overrides), out, callbacks=callbacks)


def lines_of(out):
    return [json.loads(line) for line in (out / "training.jsonl").read_text().splitlines()]


def row_of(records, name, fraction=3.0):
    return next(record for record in records if (record.model, record.fraction) == (name, fraction))


def timeless(records):
    plain = [record.model_dump(exclude=TIMES) for record in records]
    courses = [[point.model_dump(exclude={"seconds"}) for point in record.training] for record in records]
    return [{**each, "training": course} for each, course in zip(plain, courses, strict=True)]


def test_records_the_file_and_callbacks_have_the_same_course_of_training(settings, tmp_path):
    seen = Seen()
    records = run_with(settings, tmp_path / "out", "heads.baseline=true", callbacks=[seen])
    encoder, head = row_of(records, "encoder"), row_of(records, "last_linear")
    assert [point.step for point in encoder.training] == list(range(1, 19))  # three epochs of six steps
    assert [point.step for point in row_of(records, "encoder", 0.5).training] == [1, 2, 3]
    assert [point.step for point in head.training] == list(range(1, 31))
    assert encoder.training[-1].epoch == 3
    assert all(one.seconds <= other.seconds for one, other in pairwise(head.training))
    # After every epoch a head is scored on dev, where nothing is held out.
    scored = {point.epoch: point.score for point in head.training if point.score is not None}
    assert scored == {epoch: scores["accuracy"] for epoch, scores in enumerate(head.epoch_scores, start=1)}
    assert encoder.training[-1].score == encoder.scores["accuracy"]
    assert row_of(records, "last_regression").training == row_of(records, "majority").training == []
    written = lines_of(tmp_path / "out")
    assert written == [point.model_dump() for point in seen.points]
    own = [line for line in written if (line["model"], line["fraction"]) == ("last_linear", 3.0)]
    assert [line["loss"] for line in own] == [point.loss for point in head.training]


def test_a_head_that_learns_has_a_falling_loss(settings, tmp_path):
    course = row_of(run_with(settings, tmp_path / "out"), "encoder").training
    assert course[-1].loss < course[0].loss


def test_rows_can_be_held_out_and_nothing_learns_from_them(settings, tmp_path):
    records = run_with(settings, tmp_path / "out", "data.held_out=0.25")
    head = row_of(records, "last_linear")
    assert (head.data["train"].examples, head.data["held_out"].examples) == (36, 12)
    ids = json.loads((tmp_path / "out" / "held_out.json").read_text())
    answered = tmp_path / "out" / "predictions_held_out" / "3" / "last_linear" / "predictions.json"
    assert set(ids) == json.loads(answered.read_text()).keys()
    scored = [point.score for point in head.training if point.score is not None]
    assert scored == [scores["held_out_accuracy"] for scores in head.epoch_scores]


def test_a_held_out_file_may_share_no_text_with_what_is_learned_from(settings, tmp_path):
    with pytest.raises(DataError, match="48 of its examples, such as '0', have texts of"):
        run_with(settings, tmp_path / "out", f"data.held_out={settings['data']['train']}")


def test_the_best_epoch_of_each_head_is_kept_and_its_weights_are_those(settings, tmp_path):
    records = run_with(settings, tmp_path / "out", "data.held_out=0.25", "heads.keep_best=true")
    for record in [row_of(records, name) for name in HEADS]:
        held_out = [scores["held_out_accuracy"] for scores in record.epoch_scores]
        assert len(held_out) == 5
        assert record.scores["held_out_accuracy"] == max(held_out)  # of the weights that were kept, answered anew
        best = 1 + held_out.index(max(held_out))
        assert f"its weights are those of epoch {best} of 5, the best on the held-out rows" in record.notes


def test_heads_stop_early_when_none_gets_better(settings, tmp_path):
    rate_0 = ("heads.lr=1e-12", "heads.optim.weight_decay=0", "heads.epochs=30", "heads.patience=2")
    records = run_with(settings, tmp_path / "out", "data.held_out=0.25", *rate_0)
    head = row_of(records, "last_linear")
    assert len(head.epoch_scores) == 3
    assert head.training[-1].step == 3 * 5  # 36 rows in batches of 8
    assert "its weights are those of epoch 1 of 3, the best on the held-out rows" in head.notes


def test_the_best_step_of_fine_tuning_is_kept_and_its_weights_are_those(settings, tmp_path):
    wanted = ("data.held_out=0.25", "finetune.evaluate_every=0.2", "finetune.keep_best=true", "finetune.lr=1e-2")
    records = run_with(settings, tmp_path / "out", *wanted)
    for fraction in (0.5, 3.0):
        encoder = row_of(records, "encoder", fraction)
        scores = {point.step: point.score for point in encoder.training if point.score is not None}
        assert len(scores) >= 3
        best = max(scores, key=scores.get)
        assert encoder.scores["held_out_accuracy"] == scores[best]
        assert any(note.startswith(f"its weights are those of step {best} of ") for note in encoder.notes)


def test_fine_tuning_stops_early_and_later_fractions_have_the_best_weights_too(settings, tmp_path):
    rate_0 = (
        "finetune.lr=1e-12",
        "finetune.optim.weight_decay=0",
        "finetune.fractions=[20, 30]",
        "finetune.patience=2",
    )
    records = run_with(settings, tmp_path / "out", "data.held_out=0.25", "heads.train=[]", *rate_0)
    both = [row_of(records, "encoder", fraction) for fraction in (20.0, 30.0)]
    assert [record.training[-1].epoch for record in both] == [3, 3]  # the first evaluation, and two that are no better
    assert both[0].encoder_fingerprint == both[1].encoder_fingerprint
    assert all("its weights are those of step 5 of 15, the best on the held-out rows" in each.notes for each in both)


def test_what_was_chosen_on_dev_says_so(settings, tmp_path):
    record = row_of(run_with(settings, tmp_path / "out", "heads.keep_best=true"), "last_linear")
    assert any("the best on dev: its scores there flatter it; set data.held_out" in note for note in record.notes)


def test_a_run_that_was_stopped_anywhere_ends_with_the_same_records_and_no_step_twice(settings, tmp_path):
    chosen = ("data.held_out=0.25", "finetune.patience=4", "finetune.evaluate_every=0.4", "heads.patience=2")
    chosen += ("finetune.save_every=1e-9", "heads.save_every=1e-9")
    whole = run_with(settings, tmp_path / "whole", *chosen)
    for points in (4, 14, 40):
        out = tmp_path / str(points)
        with pytest.raises(KeyboardInterrupt):
            run_with(settings, out, *chosen, callbacks=[Seen(points)])
        again = run_with(settings, out, *chosen)
        assert timeless(again) == timeless(whole)
        steps = [(line["model"], line["fraction"], line["step"]) for line in lines_of(out)]
        assert len(set(steps)) == len(steps) == len(lines_of(tmp_path / "whole"))


def test_dev_is_encoded_once_for_all_epochs_of_heads(settings, tmp_path):
    data = {**settings["data"], "train": write_rows(tmp_path / "more.csv", 64)}
    frozen = {**settings, "data": data, "finetune": {"fractions": []}}
    encoded = []

    def note(module, given, output):
        if isinstance(module, BertModel):
            encoded.append(len(output.last_hidden_state))

    def rows_encoded(epochs):
        encoded.clear()
        with torch.nn.modules.module.register_module_forward_hook(note):
            run_with(frozen, tmp_path / str(epochs), f"heads.epochs={epochs}")
        return sum(encoded)

    # The training rows once, dev once for the scores after all epochs, and once for the predictions.
    assert rows_encoded(9) == rows_encoded(2) == 64 + 12 + 12


def test_callbacks_of_train_see_points_of_every_row(settings, tmp_path):
    seen = Seen()
    own = {key: settings[key] for key in ("windows", "finetune", "heads", "device")}
    bertvision.train(
        settings["data"]["train"],
        task="classification",
        dev=settings["data"]["dev"],
        encoder=settings["encoder"],
        settings=own,
        callbacks=[seen],
    )
    assert {(point.model, point.fraction) for point in seen.points} == {
        ("encoder", None),
        *((name, fraction) for name in HEADS for fraction in (0.5, 3.0)),
    }
