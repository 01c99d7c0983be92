import numpy as np
import pytest
import torch
from torch import nn

from bertvision.training.config import OptimConfig
from bertvision.training.optim import build_optimizer, build_schedule, rate_by_step


def test_weights_decay_and_biases_norms_and_mixing_weights_do_not():
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2), nn.Embedding(4, 2))
    model.register_parameter("mix", nn.Parameter(torch.zeros(5)))
    decayed, spared = build_optimizer(model, 1e-3, OptimConfig(weight_decay=0.3)).param_groups
    assert (decayed["weight_decay"], [tuple(p.shape) for p in decayed["params"]]) == (0.3, [(2, 3), (4, 2)])
    assert (spared["weight_decay"], sorted(p.numel() for p in spared["params"])) == (0.0, [2, 2, 2, 5])


def test_a_word_of_a_weights_name_can_have_a_rate_of_its_own():
    model = nn.ModuleDict({"own": nn.Linear(3, 2), "owner": nn.Linear(2, 1, bias=False)})
    groups = build_optimizer(model, 1e-3, OptimConfig(weight_decay=0.3), {"own": 0.5}).param_groups
    found = [(group["lr"], group["weight_decay"], [tuple(p.shape) for p in group["params"]]) for group in groups]
    assert found == [(1e-3, 0.3, [(1, 2)]), (0.5, 0.3, [(2, 3)]), (0.5, 0.0, [(2,)])]


def test_frozen_weights_are_not_optimised():
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    groups = build_optimizer(model, 1e-3, OptimConfig()).param_groups
    assert [parameter.numel() for group in groups for parameter in group["params"]] == [2]


def test_a_linear_schedule_warms_up_and_falls_to_zero_at_the_last_step():
    rate = rate_by_step(OptimConfig(schedule="linear", warmup=0.2), 10)
    assert [rate(step) for step in (0, 1)] == pytest.approx([1 / 3, 2 / 3])
    assert [rate(step) for step in (2, 6, 9, 10)] == pytest.approx([1, 0.5, 1 / 8, 0])


def test_a_constant_schedule_stays_where_it_is():
    rate = rate_by_step(OptimConfig(schedule="constant"), 10)
    assert {rate(step) for step in range(20)} == {1.0}


def test_a_schedule_sets_the_rate_of_the_next_step():
    optimizer = build_optimizer(nn.Linear(2, 2), 0.5, OptimConfig())
    schedule = build_schedule(optimizer, OptimConfig(schedule="linear"), 4)
    seen = []
    for _ in range(4):
        seen.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    assert seen == pytest.approx([0.5, 0.375, 0.25, 0.125])


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_follows_its_formula(bias_correction):
    lr, (beta1, beta2), eps, decay = 0.01, (0.9, 0.999), 1e-6, 0.1
    config = OptimConfig(eps=eps, weight_decay=decay, bias_correction=bias_correction)
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    weight = model.weight.detach().numpy().astype(np.float64).copy()
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    optimizer = build_optimizer(model, lr, config)
    for step in range(1, 4):
        gradient = np.full_like(weight, 0.1 * step) * np.sign(weight)
        model.weight.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        first, second = beta1 * first + (1 - beta1) * gradient, beta2 * second + (1 - beta2) * gradient**2
        corrections = (1 - beta1**step, 1 - beta2**step) if bias_correction else (1, 1)
        weight = weight * (1 - lr * decay)
        weight -= lr * (first / corrections[0]) / (np.sqrt(second / corrections[1]) + eps)
    np.testing.assert_allclose(model.weight.detach().numpy(), weight, rtol=1e-5)
