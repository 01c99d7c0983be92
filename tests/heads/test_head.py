import re

import pytest
import torch
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.build import build_head
from bertvision.heads.catalog import CATALOG
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import layer_contributions
from bertvision.heads.readouts import ClassReadout
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective

SHAPE = StackShape(layers=3, hidden=32)
ADAPTERS = [f"adapter_{width}_{kind}" for width in (64, 386) for kind in ("shared", "unshared")]
SUMS = {
    *("learned_pooling", "average_pooling", "first_last_mean", "last_linear", "ap_squad", "ap_glue"),
    *ADAPTERS,
    *(f"{name}_skip" for name in ADAPTERS),
}
HAS_SKIP = {name for name in SUMS if name.endswith("_skip")}
OF_ROWS = {"regression", "last_regression"}  # sums too; tests/heads/test_regression.py
OTHERS = sorted(set(CATALOG) - SUMS - OF_ROWS)


def make_head(name, objective=SPANS):
    """A head with random weights everywhere: as built, biases are 0 and projections tiny."""
    torch.manual_seed(0)
    head = build_head(HeadConfig.model_validate(name), SHAPE, objective).eval()
    for weight in head.parameters():
        nn.init.normal_(weight, std=0.05)
    return head


def make_input(tokens=9, layers=SHAPE.layers):
    torch.manual_seed(1)
    mask = torch.arange(tokens) < torch.tensor([[tokens], [tokens - 3]])
    return torch.randn(2, layers, tokens, SHAPE.hidden), mask, (mask & (torch.arange(tokens) > 2)).long()


@pytest.mark.parametrize("name", sorted(SUMS - {"ap_glue"}))
def test_the_parts_of_a_span_head_sum_to_its_logits(name):
    head, seen = make_head(name), make_input()
    names, parts = layer_contributions(head, *seen)
    assert names == ("layer 0", "layer 1", "layer 2", *(["skip"] if name in HAS_SKIP else []), "bias")
    assert parts.shape == (2, len(names), 9, 2)
    torch.testing.assert_close(parts.sum(dim=1)[seen[1]], head(*seen)[seen[1]], rtol=1e-4, atol=1e-5)


def test_the_parts_of_a_tagging_head_sum_to_its_logits():
    head, seen = make_head("adapter_64_shared_skip", objective=Objective(KINDS["tags"], 5)), make_input()
    parts = layer_contributions(head, *seen).parts
    assert parts.shape == (2, 3 + 2, 9, 5)
    torch.testing.assert_close(parts.sum(dim=1)[seen[1]], head(*seen)[seen[1]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(SUMS))
@pytest.mark.parametrize("tokens", [9, 140])  # more than ap_glue was built for, all of them padding
def test_the_parts_of_a_class_head_sum_to_its_logits(name, tokens):
    head, (states, mask, segments) = make_head(name, objective=Objective(KINDS["class"], 3)), make_input(tokens)
    mask[:, 100:] = False
    names, parts = layer_contributions(head, states, mask, segments)
    assert parts.shape == (2, len(names), 1, 3)
    torch.testing.assert_close(parts.sum(dim=1)[:, 0], head(states, mask, segments), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(SUMS - {"ap_glue"}))
@pytest.mark.parametrize("layer", range(3))
def test_a_layer_changes_its_own_part_alone(name, layer):
    head, (states, mask, segments) = make_head(name), make_input()
    names, before = layer_contributions(head, states, mask, segments)
    states = states.clone()
    states[:, layer] += 1.0
    after = layer_contributions(head, states, mask, segments).parts
    changed = {part for place, part in enumerate(names) if not torch.equal(after[:, place], before[:, place])}
    read = {"first_last_mean": (0, 2), "last_linear": (2,)}.get(name, (0, 1, 2))
    expected = {f"layer {layer}"} if layer in read else set()
    assert changed == expected | ({"skip"} if layer == 2 and name in HAS_SKIP else set())


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_head_is_refused_in_one_line_that_names_those_that_are_not(name):
    objective = Objective(KINDS[CATALOG[name].kinds[0]], 2)
    with pytest.raises(SettingsError) as caught:
        layer_contributions(make_head(name, objective), *make_input())
    told = re.split(
        r",? and |, ", str(caught.value).partition("the heads that are: ")[2].removesuffix(" without joint")
    )
    assert "\n" not in str(caught.value)
    patterns = [re.compile(each.replace("*", r"(?!.*joint)\w+")) for each in told]
    assert {known for known in CATALOG if any(each.fullmatch(known) for each in patterns)} == SUMS


def test_parts_are_numbered_by_the_layers_that_a_head_was_trained_on():
    head, (states, mask, segments) = make_head("adapter_64_shared_skip"), make_input(layers=9)
    head.layers = (0, 4, 8)
    names, parts = layer_contributions(head, states, mask, segments)
    assert names == ("layer 0", "layer 4", "layer 8", "skip", "bias")
    torch.testing.assert_close(parts.sum(dim=1)[mask], head(states, mask, segments)[mask], rtol=1e-4, atol=1e-5)


def test_a_mix_is_taken_apart_by_its_weights():
    head, (states, mask, segments) = make_head("learned_pooling"), make_input()
    parts = layer_contributions(head, states, mask, segments).parts
    exponentials = head.pooler.weights.exp()
    for layer in range(3):
        factor = head.pooler.scale * exponentials[layer] / exponentials.sum()
        expected = factor * (states[:, layer] @ head.readout.linear.weight.T)
        torch.testing.assert_close(parts[:, layer], expected)
    assert torch.equal(parts[:, 3], head.readout.linear.bias.expand(2, 9, 2))


def test_states_of_a_short_number_format_are_taken_apart_in_float32():
    head, (states, mask, segments) = make_head("adapter_64_shared_skip"), make_input()
    short = states.bfloat16()
    parts = layer_contributions(head, short, mask, segments).parts
    assert parts.dtype == torch.float32
    torch.testing.assert_close(parts.sum(dim=1)[mask], head(short.float(), mask, segments)[mask], rtol=1e-4, atol=1e-5)


def test_a_class_is_read_from_the_first_token():
    head, (states, mask, segments) = make_head("average_pooling", objective=Objective(KINDS["class"], 3)), make_input()
    assert isinstance(head.readout, ClassReadout)
    parts = layer_contributions(head, states, mask, segments).parts
    torch.testing.assert_close(parts[:, 0, 0], states[:, 0, 0] @ head.readout.linear.weight.T / 3)
