import math
from typing import NamedTuple

import pytest
import torch
from torch import nn

from bertvision.training.loop import MAX_BAD_STEPS_IN_A_ROW, Learner, train_steps
from bertvision.training.optim import OptimConfig, build_optimizer, build_schedule
from bertvision.training.random_stream import RandomStream, seed_for

CPU = torch.device("cpu")


class Numbers(NamedTuple):
    values: torch.Tensor

    @property
    def size(self):
        return len(self.values)


def make_learner(name="one", loss_of=None, dropout=0.0, **optim):
    model = nn.Sequential(nn.Dropout(dropout), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[1].weight)
    config = OptimConfig(weight_decay=0.0, **optim)
    optimizer = build_optimizer(model, 0.1, config)
    return Learner(
        name=name,
        model=model,
        loss_of=loss_of or (lambda batch: model(batch.values).pow(2).mean()),
        optimizer=optimizer,
        schedule=build_schedule(optimizer, config, 10),
        stream=RandomStream(seed_for(1, name), CPU),
        max_grad_norm=config.max_grad_norm,
    )


def batch(*values):
    return Numbers(torch.tensor([[float(value)] for value in values]))


def test_accumulated_batches_make_the_mean_over_all_their_examples():
    whole, parts = make_learner(), make_learner()
    list(train_steps([whole], [[batch(1, 2, 3)]]))
    steps = list(train_steps([parts], [[batch(1), batch(2, 3)]]))
    assert steps[0].losses["one"] == pytest.approx((1 + 4 + 9) / 3)
    torch.testing.assert_close(parts.model[1].weight, whole.model[1].weight)


def test_gradients_are_clipped_to_the_norm_and_left_alone_without_one():
    clipped, free = make_learner(max_grad_norm=0.5), make_learner(max_grad_norm=None)
    clipped.backward([batch(3)])
    _, norm = free.backward([batch(3)])
    assert clipped.model[1].weight.grad.item() == pytest.approx(0.5, rel=1e-4)
    assert free.model[1].weight.grad.item() == pytest.approx(norm.item()) == pytest.approx(18.0)


def test_a_step_that_is_not_finite_is_left_out_and_counted():
    learner = make_learner()
    steps = list(train_steps([learner], [[batch(1)], [batch(math.inf)], [batch(1)]]))
    only_good = make_learner()
    list(train_steps([only_good], [[batch(1)], [batch(1)]]))
    assert learner.bad_steps == 1
    assert not learner.diverged
    assert len(steps) == 3
    torch.testing.assert_close(learner.model[1].weight, only_good.model[1].weight)


def test_a_learner_that_keeps_failing_takes_no_further_part():
    bad, good = (
        make_learner("bad", loss_of=lambda batch: bad.model(batch.values).sum() * math.nan),
        make_learner("good"),
    )
    steps = list(train_steps([bad, good], [[batch(1)]] * (MAX_BAD_STEPS_IN_A_ROW + 2)))
    assert bad.diverged
    assert steps[-1].losses.keys() == {"good"}


def test_what_one_learner_draws_does_not_depend_on_who_else_draws():
    alone = make_learner("first", dropout=0.5, max_grad_norm=None)
    list(train_steps([alone], [[batch(1, 2, 3, 4)]] * 5))
    first, second = (
        make_learner("first", dropout=0.5, max_grad_norm=None),
        make_learner("second", dropout=0.5, max_grad_norm=None),
    )
    torch.manual_seed(99)
    list(train_steps([second, first], [[batch(1, 2, 3, 4)]] * 5))
    assert torch.equal(first.model[1].weight, alone.model[1].weight)
    assert not torch.equal(second.model[1].weight, first.model[1].weight)


def test_a_model_that_was_evaluated_between_steps_trains_on():
    learner = make_learner()
    for _ in train_steps([learner], [[batch(1)], [batch(1)]]):
        assert learner.model.training
        learner.model.eval()
