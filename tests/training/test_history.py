"""The course of a training: what is recorded, when the host looks, and what is handed on."""

import json

import pytest
import torch
from torch import nn

from bertvision.records import TrainingPoint
from bertvision.training.config import OptimConfig
from bertvision.training.history import MAX_POINTS, History, TrainingLog, thinned
from bertvision.training.loop import STEPS_BETWEEN_LOOKS, Group, Learner, RandomStream, Step
from bertvision.training.optim import build_optimizer, build_schedule


def make_group(num_steps, names=("one", "two")):
    learners = []
    for name in names:
        model = nn.Linear(1, 1)
        optimizer = build_optimizer(model, 0.1, OptimConfig(schedule="linear"))
        schedule = build_schedule(optimizer, OptimConfig(schedule="linear"), num_steps)
        learners.append(Learner(name, model, optimizer, schedule, RandomStream(1, torch.device("cpu"))))
    return Group(learners, lambda batch: batch)


def point(step, loss=1.0, score=None):
    return TrainingPoint(step=step, epoch=step / 10, loss=loss, score=score, lr=0.1, seconds=float(step))


class Seen:
    def __init__(self):
        self.points = []

    def on_point(self, point):
        self.points.append(point)


def feed(history, group, losses, first=1):
    """Take steps with these losses, one for each learner."""
    for number, loss in enumerate(losses, start=first):
        history.add(Step(number, [(group, torch.tensor([loss, 2 * loss]))]), number, float(number))


def test_a_point_has_the_mean_loss_since_the_last_one_and_the_rate_of_its_step():
    num_steps = 2 * MAX_POINTS
    group = make_group(num_steps)
    history = History([group], num_steps, lambda number: number / 100)
    feed(history, group, [float(number) for number in range(1, num_steps + 1)])
    history.mark()
    points = history.points["one"]
    assert [each.step for each in points] == list(range(2, num_steps + 1, 2))
    assert [each.loss for each in points] == [step - 0.5 for step in range(2, num_steps + 1, 2)]
    assert [each.loss for each in history.points["two"]] == [2 * each.loss for each in points]
    # Linear decay from 0.1: the n-th step of N is taken with 0.1 * (N - n + 1) / N.
    assert [each.lr for each in points] == pytest.approx(
        [0.1 * (num_steps - each.step + 1) / num_steps for each in points]
    )
    assert points[-1].epoch == num_steps / 100
    assert points[-1].seconds == num_steps


def test_the_host_looks_at_losses_once_in_many_steps_and_at_evaluations():
    group, seen = make_group(3), Seen()
    history = History([group], 3, float, TrainingLog(callbacks=[seen]))
    feed(history, group, [1.0] * STEPS_BETWEEN_LOOKS)
    assert seen.points == []
    feed(history, group, [1.0], first=STEPS_BETWEEN_LOOKS + 1)
    assert len(seen.points) == 2 * STEPS_BETWEEN_LOOKS
    history.mark({"one": 75.0})
    assert [(each.model, each.score) for each in seen.points[-2:]] == [("one", 75.0), ("two", None)]


def test_losses_that_are_not_finite_are_left_out_of_the_mean():
    group = make_group(1)
    history = History([group], 3 * MAX_POINTS, float)
    feed(history, group, [1.0, float("nan"), 4.0, float("inf"), float("nan"), float("nan")])
    history.mark()
    assert [each.loss for each in history.points["one"]] == [2.5, None]


def test_a_step_is_one_point_also_when_it_is_saved_and_evaluated_afterwards():
    group, seen = make_group(2), Seen()
    history = History([group], 2, float, TrainingLog(callbacks=[seen]))
    feed(history, group, [1.0, 3.0])
    history.state()
    history.mark({"one": 50.0})
    history.mark()
    assert [(each.step, each.loss, each.score) for each in seen.points if each.model == "one"] == [
        (1, 1.0, None),
        (2, 3.0, 50.0),
    ]


def test_an_evaluated_step_ends_when_the_device_has_ended_it():
    group = make_group(2)
    history = History([group], 2, float)
    feed(history, group, [1.0, 3.0])
    history.mark({"one": 50.0}, 9.5)
    assert [each.seconds for each in history.points["one"]] == [1.0, 9.5]


def test_a_history_that_was_stopped_goes_on_and_its_file_holds_no_step_twice(tmp_path):
    group, path = make_group(3 * MAX_POINTS), tmp_path / "training.jsonl"
    whole, stopped = (History([group], 3 * MAX_POINTS, float) for _ in range(2))
    losses = [float(number % 7) for number in range(20)]
    feed(whole, group, losses)
    feed(stopped, group, losses[:8])
    state = json.loads(json.dumps(stopped.state()))
    log = TrainingLog(path, seed=1)
    ahead = History([group], 3 * MAX_POINTS, float, log)
    feed(ahead, group, losses[:14])  # the process is killed after it was saved at step 8
    ahead.mark()
    with path.open("a") as file:
        file.write('{"step": 15, "ep')
    gone_on = History([group], 3 * MAX_POINTS, float, log, state)
    feed(gone_on, group, losses[8:], first=9)
    for each in (whole, gone_on):
        each.mark()
    assert gone_on.points == whole.points
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines if line["row"] == "one"] == [each.step for each in whole.points["one"]]


def test_a_file_keeps_the_lines_of_other_rows_and_fractions(tmp_path):
    path = tmp_path / "training.jsonl"
    for fraction in (None, 0.5, 1.0):
        TrainingLog(path, 1, fraction).begin({"one": [point(1)], "two": [point(1)]})
    TrainingLog(path, 1, 0.5).begin({"one": [point(7)]})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = sorted((line["row"], line["fraction"] or 0, line["step"]) for line in lines)
    assert found == [("one", 0, 1), ("one", 0.5, 7), ("one", 1.0, 1), ("two", 0, 1), ("two", 0.5, 1), ("two", 1.0, 1)]


def test_many_points_are_thinned_evenly_and_evaluations_stay():
    points = [point(step, loss=float(step), score=80.0 if step % 50 == 25 else None) for step in range(1, 501)]
    few = thinned(points)
    assert len(few) == 167  # groups of three
    assert [each.loss for each in few[:2]] == [2.0, 5.0]
    assert [each.step for each in few if each.score is not None] == [step for step in range(1, 501) if step % 50 == 25]
    assert few[-1].step == 500
    assert thinned(points[:MAX_POINTS]) == points[:MAX_POINTS]
