import math
from typing import NamedTuple

import pytest
import torch
from torch import nn

from bertvision.training.config import OptimConfig
from bertvision.training.loop import (
    MAX_BAD_STEPS_IN_A_ROW,
    STEPS_BETWEEN_LOOKS,
    Group,
    Learner,
    RandomStream,
    diverged_among,
    seed_for,
    train_steps,
)
from bertvision.training.optim import build_optimizer, build_schedule

CPU = torch.device("cpu")


class Numbers(NamedTuple):
    values: torch.Tensor

    @property
    def size(self):
        return len(self.values)

    def share_of(self, num_examples):
        return self.size / num_examples


def make_learner(name="one", loss_of=None, dropout=0.0, **optim):
    model = nn.Sequential(nn.Dropout(dropout), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[1].weight)
    config = OptimConfig(weight_decay=0.0, **optim)
    optimizer = build_optimizer(model, 0.1, config)
    learner = Learner(
        name=name,
        model=model,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, config, 10),
        stream=RandomStream(seed_for(1, name), CPU),
        max_grad_norm=config.max_grad_norm,
    )
    return learner, (loss_of or square)(model)


def square(model):
    return lambda batch: model(batch.values).pow(2).mean()


def alone(*made):
    """A group for each learner."""
    return [Group([learner], lambda batch, loss=loss: loss(batch)[None]) for learner, loss in made]


def together(*made):
    """One group for all learners."""
    return Group([each for each, _ in made], lambda batch: torch.stack([loss(batch) for _, loss in made]))


def weight(made):
    return made[0].model[1].weight


def batch(*values):
    return Numbers(torch.tensor([[float(value)] for value in values]))


def test_accumulated_batches_make_the_mean_over_all_their_examples():
    whole, parts = make_learner(), make_learner()
    list(train_steps(alone(whole), [[batch(1, 2, 3)]]))
    steps = list(train_steps(alone(parts), [[batch(1), batch(2, 3)]]))
    assert steps[0].losses["one"] == pytest.approx((1 + 4 + 9) / 3)
    torch.testing.assert_close(weight(parts), weight(whole))


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(("limit", "first_moment"), [(0.5, 0.05), (None, 1.8)])
def test_gradients_are_clipped_to_the_norm_and_left_alone_without_one(bias_correction, limit, first_moment):
    made = make_learner(max_grad_norm=limit, bias_correction=bias_correction)
    list(train_steps(alone(made), [[batch(3)]]))  # the gradient of (3 w)^2 at w = 1 is 18
    learner = made[0]
    moment = learner.optimizer.state[learner.model[1].weight]["exp_avg"]  # a tenth of the gradient after one step
    assert moment.item() == pytest.approx(first_moment, rel=1e-4)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_step_that_is_not_finite_is_left_out_and_counted(bias_correction):
    made, only_good = (make_learner(bias_correction=bias_correction) for _ in range(2))
    (group,) = alone(made)
    steps = list(train_steps([group], [[batch(1)], [batch(math.inf)], [batch(1)]]))
    list(train_steps(alone(only_good), [[batch(1)], [batch(1)]]))
    assert group.bad_steps.tolist() == [1]
    assert not group.diverged.any()
    assert len(steps) == 3
    torch.testing.assert_close(weight(made), weight(only_good))


def broken(model):
    return lambda batch: model(batch.values).sum() * math.nan


@pytest.mark.parametrize("grouped", [True, False])
def test_a_learner_that_keeps_failing_takes_no_further_part_and_leaves_the_others_alone(grouped):
    bad, good, by_itself = make_learner("bad", broken), make_learner("good"), make_learner("good")
    groups = [together(bad, good)] if grouped else alone(bad, good)
    steps = [[batch(1)]] * (MAX_BAD_STEPS_IN_A_ROW + 2)
    done = list(train_steps(groups, steps))
    list(train_steps(alone(by_itself), steps))
    assert diverged_among(groups) == ["bad"]
    assert done[-1].losses.keys() == {"good"}
    assert weight(bad).item() == 1.0
    assert torch.equal(weight(good), weight(by_itself))


def test_a_learner_that_failed_too_often_stays_out_when_its_numbers_come_back():
    made = make_learner()
    list(train_steps(alone(made), [[batch(math.inf)]] * MAX_BAD_STEPS_IN_A_ROW + [[batch(1)]] * 3))
    assert weight(made).item() == 1.0


def test_training_ends_when_all_have_diverged():
    done = list(train_steps(alone(make_learner(loss_of=broken)), [[batch(1)]] * 200))
    assert len(done) == STEPS_BETWEEN_LOOKS


def test_learners_in_a_group_take_the_steps_they_take_alone():
    names = [("one", 0.5), ("two", None)]
    grouped, single = ([make_learner(name, max_grad_norm=limit) for name, limit in names] for _ in range(2))
    steps = [[batch(3)], [batch(1, 2), batch(4)], [batch(2)]]
    list(train_steps([together(*grouped)], steps))
    list(train_steps(alone(*single), steps))
    assert all(torch.equal(weight(one), weight(other)) for one, other in zip(grouped, single, strict=True))


def test_what_one_learner_draws_does_not_depend_on_who_else_draws():
    def make(name):
        return make_learner(name, dropout=0.5, max_grad_norm=None)

    by_itself, first, second = make("first"), make("first"), make("second")
    list(train_steps(alone(by_itself), [[batch(1, 2, 3, 4)]] * 5))
    torch.manual_seed(99)
    list(train_steps(alone(second, first), [[batch(1, 2, 3, 4)]] * 5))
    assert torch.equal(weight(first), weight(by_itself))
    assert not torch.equal(weight(second), weight(first))


def test_a_model_that_was_evaluated_between_steps_trains_on():
    made = make_learner()
    for _ in train_steps(alone(made), [[batch(1)], [batch(1)]]):
        assert made[0].model.training
        made[0].model.eval()


def test_a_part_of_a_model_that_was_evaluated_before_or_between_steps_trains_on():
    made = make_learner()
    dropout = made[0].model[0].eval()  # as a loaded encoder is, in a list with a new output layer
    for _ in train_steps(alone(made), [[batch(1)], [batch(1)]]):
        assert dropout.training
        dropout.eval()
