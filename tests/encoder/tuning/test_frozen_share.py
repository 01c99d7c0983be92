import copy

import pytest
import torch
from torch import nn

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import count_trainable, frozen_numbers
from bertvision.encoder.tuning.tune import start_tuning, tune, what_is_trained
from bertvision.errors import SettingsError
from bertvision.training.config import OptimConfig
from bertvision.training.loop import Group, Learner, RandomStream, seed_for
from bertvision.training.optim import build_optimizer, build_schedule


def masks_of(model):
    by_weight = {id(param): name for name, param in model.named_parameters()}
    return {by_weight[id(weight)]: mask for weight, mask in frozen_numbers(model)}


def is_same(one, other):
    return one.keys() == other.keys() and all(torch.equal(mask, other[name]) for name, mask in one.items())


def test_each_number_of_every_weight_is_frozen_with_the_given_probability(make_model, kind):
    model = make_model(kind)
    start_tuning(model, TuneConfig(frozen_fraction=0.8), seed=1)
    masks = masks_of(model)
    assert masks.keys() == dict(model.named_parameters()).keys()
    size = sum(mask.numel() for mask in masks.values())
    share = sum(mask.sum().item() for mask in masks.values()) / size
    assert abs(share - 0.8) < 4 * (0.8 * 0.2 / size) ** 0.5  # four standard deviations of a binomial share


def test_masks_are_those_of_the_seed_and_of_nothing_else(make_model):
    one, again, other = make_model(), make_model(seed=5), make_model()
    start_tuning(one, TuneConfig(frozen_fraction=0.5), seed=1)
    torch.rand(7)
    start_tuning(again, TuneConfig(frozen_fraction=0.5), seed=1)
    start_tuning(other, TuneConfig(frozen_fraction=0.5), seed=2)
    assert is_same(masks_of(one), masks_of(again))
    assert is_same(masks_of(one), masks_of(copy.deepcopy(one)))
    assert not is_same(masks_of(one), masks_of(other))


def test_no_two_weights_of_one_shape_have_the_same_mask(make_model):
    model = make_model()
    start_tuning(model, TuneConfig(frozen_fraction=0.5), seed=1)
    masks = masks_of(model)
    first, second = (masks[f"encoder.layer.{block}.output.dense.weight"] for block in (0, 1))
    assert not torch.equal(first, second)


def test_what_is_not_trained_has_no_mask(make_model):
    model = make_model()
    start_tuning(model, TuneConfig(train="top:1", train_norms=False, frozen_fraction=0.5), seed=1)
    assert all(name.startswith("encoder.layer.2.") for name in masks_of(model))
    start_tuning(model, TuneConfig(), seed=1)
    assert not frozen_numbers(model)


def test_frozen_numbers_are_not_counted_as_trained(make_model):
    model = make_model()
    whole = sum(param.numel() for param in model.parameters())
    start_tuning(model, TuneConfig(frozen_fraction=0.5), seed=1)
    frozen = sum(mask.sum().item() for mask in masks_of(model).values())
    assert count_trainable(model) == what_is_trained(model).trained == whole - frozen
    assert what_is_trained(model).total == whole


class Rows(list):
    size = 4

    def share_of(self, num_examples):
        return self.size / num_examples


def train(model, batch, steps, **optim):
    """Train an encoder with an output layer on the first token; gives the group."""
    together, config = nn.ModuleList([model, nn.Linear(32, 1)]), OptimConfig(**optim)
    optimizer = build_optimizer(together, 1e-2, config)
    learner = Learner(
        name="encoder",
        model=together,
        optimizer=optimizer,
        schedule=build_schedule(optimizer, config, steps),
        stream=RandomStream(seed_for(1, "test"), torch.device("cpu")),
        max_grad_norm=config.max_grad_norm,
        frozen=frozen_numbers(model),
    )

    def losses_of(_):
        first = model(**batch).last_hidden_state[:, 0]
        return (together[1](first) - 3).pow(2).mean()[None]

    group = Group([learner], losses_of)
    for _ in range(steps):
        group.step([Rows()])
    return group


@pytest.mark.parametrize("weight_decay", [0, 0.5])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_frozen_numbers_keep_their_value_and_the_others_do_not(make_model, batch, weight_decay, bias_correction):
    model = make_model()
    start_tuning(model, TuneConfig(train="top:2", frozen_fraction=0.5), seed=1)
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    train(model, batch, 3, weight_decay=weight_decay, bias_correction=bias_correction)
    after, masks = dict(model.named_parameters()), masks_of(model)
    for name, mask in masks.items():
        assert torch.equal(after[name][mask], before[name][mask])
    for name in ("encoder.layer.1.output.dense.weight", "encoder.layer.2.attention.self.value.bias"):
        assert (after[name] != before[name])[~masks[name]].all()


def test_gradients_of_frozen_numbers_have_no_part_in_the_norm_that_is_clipped(make_model, batch):
    """Clipped to 1, the first moments after a step are a tenth of a gradient of norm 1."""
    model = make_model()
    start_tuning(model, TuneConfig(frozen_fraction=0.9), seed=1)
    (learner,) = train(model, batch, 1, max_grad_norm=1).learners
    masks = {id(weight): mask for weight, mask in learner.frozen}
    moments = [(state["exp_avg"], masks.get(id(weight))) for weight, state in learner.optimizer.state.items()]
    trained = [moment if mask is None else moment[~mask] for moment, mask in moments]
    assert torch.cat([each.flatten() for each in trained]).norm().item() == pytest.approx(0.1, rel=1e-4)


def test_a_loop_of_ones_own_cannot_keep_single_weights_frozen(make_model):
    with pytest.raises(SettingsError, match=r"frozen_fraction: 0.5 is kept by an experiment's own training"):
        tune(make_model(), TuneConfig(frozen_fraction=0.5), seed=1)
