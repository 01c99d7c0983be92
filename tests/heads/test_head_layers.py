"""Heads that read some of the states (`layers`)."""

import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig, reads_last_alone
from bertvision.heads.grouped import grouped_logits
from bertvision.heads.head import layer_contributions
from bertvision.shapes import StackShape

SHAPE = StackShape(5, 8)
MASK = torch.ones(2, 6, dtype=torch.bool)
SEGMENTS = torch.zeros(2, 6, dtype=torch.int64)


@pytest.fixture
def states():
    torch.manual_seed(3)
    return torch.randn(2, 5, 6, 8)


def make(head, layers, shape=SHAPE, **more):
    torch.manual_seed(1)
    config = HeadConfig.model_validate({"name": "mine", "head": head, "layers": layers, **more})
    return build_head(config, shape).eval()


@pytest.mark.parametrize(
    "name", ["adapter_386_shared_skip", "learned_pooling", "mix4", "adapter_386_shared_skip_joint"]
)
@pytest.mark.parametrize(("layers", "places"), [([1, 3], [1, 3]), ([-2, -1], [3, 4]), ([4, 4, 0], [4, 4, 0])])
def test_a_head_on_some_layers_is_the_head_on_an_encoder_of_these_layers(name, layers, places, states):
    some, alone = make(name, layers, same_size_as=None), make(name, None, StackShape(len(places), 8), same_size_as=None)
    expected = alone(states[:, places], MASK, SEGMENTS)
    torch.testing.assert_close(some(states, MASK, SEGMENTS), expected)
    some.layers = (0, 1, 2, 3, 4)  # as loading sets it where an experiment keeps some of the encoder's states
    torch.testing.assert_close(some(states, MASK, SEGMENTS), expected)


def test_states_that_an_experiment_keeps_are_counted_among_themselves(states):
    some, alone = make("adapter_386_shared", [-1], StackShape(2, 8)), make("adapter_386_shared", None, StackShape(1, 8))
    some.layers = (0, 3)
    torch.testing.assert_close(some(states, MASK, SEGMENTS), alone(states[:, 3:4], MASK, SEGMENTS))


def test_a_head_of_the_last_state_that_names_another_does_not_read_the_last():
    assert reads_last_alone(HeadConfig.model_validate("last_linear"))
    assert not reads_last_alone(HeadConfig.model_validate({"name": "mine", "head": "last_linear", "layers": [1]}))


def test_its_parts_are_named_after_the_layers_that_it_reads(states):
    head = make("adapter_386_shared_skip", [2, -1])
    names, parts = layer_contributions(head, states, MASK, SEGMENTS)
    assert names == ("layer 2", "layer 4", "skip", "bias")
    torch.testing.assert_close(parts.sum(dim=1), head(states, MASK, SEGMENTS), rtol=1e-4, atol=1e-6)  # float32


def test_heads_on_the_same_layers_are_computed_together(states):
    heads = [make(name, [0, -1]) for name in ("adapter_386_shared", "learned_pooling")]
    together = grouped_logits(heads, heads[0].own_states(states))
    for head, logits in zip(heads, together, strict=True):
        torch.testing.assert_close(logits, head(states, MASK, SEGMENTS), rtol=1e-4, atol=1e-6)  # float32


@pytest.mark.parametrize("layer", [5, -6])
def test_a_layer_that_there_is_not_is_refused(layer):
    with pytest.raises(SettingsError, match=f"head 'mine': layers names {layer}, and there are the states 0 to 4"):
        make("learned_pooling", [0, layer])
