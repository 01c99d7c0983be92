import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.adapter import width_of
from bertvision.heads.catalog import CATALOG, HeadConfig, build_head
from bertvision.heads.head import count_parameters, layer_weights
from bertvision.settings import validate
from bertvision.shapes import StackShape
from bertvision.training.checkpoint import load_weights, save_weights

BERT_LARGE = StackShape(layers=25, hidden=1024)
SMALL = StackShape(layers=3, hidden=8)

# SPEC 3.1: every count of the papers' recovered span heads at BERT-large's shape.
COUNTS = {
    "learned_pooling": 2_076,
    "average_pooling": 2_050,
    "first_last_mean": 2_050,
    "adapter_64_shared": 68_802,
    "adapter_64_shared_skip": 70_850,
    "adapter_386_shared": 414_952,
    "adapter_386_shared_skip": 417_000,
    "last_linear": 2_050,
}


def make_head(name, shape=SMALL, seed=0):
    torch.manual_seed(seed)
    return build_head(HeadConfig.model_validate(name), shape)


def make_input(batch=2, tokens=5, shape=SMALL):
    torch.manual_seed(1)
    states = torch.randn(batch, shape.layers, tokens, shape.hidden)
    return states, torch.ones(batch, tokens, dtype=torch.bool), torch.zeros(batch, tokens, dtype=torch.long)


def test_every_head_of_the_catalog_has_a_published_count():
    assert COUNTS.keys() == CATALOG.keys()


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_a_head_has_the_published_number_of_parameters_at_the_shape_of_bert_large(name, count):
    assert count_parameters(make_head(name, BERT_LARGE)) == (count, count)


@pytest.mark.parametrize(
    ("share", "hidden", "width"), [(0.377, 1024, 386), (0.377, 384, 145), (0.0625, 384, 24), (7, 384, 7)]
)
def test_a_width_is_a_number_or_a_share_of_the_hidden_size(share, hidden, width):
    assert width_of(share, hidden) == width


@pytest.mark.parametrize("name", CATALOG)
def test_every_weight_of_a_head_learns(name):
    head = make_head(name)
    head(*make_input()).pow(2).sum().backward()
    assert all(parameter.grad.any() for parameter in head.parameters())


@pytest.mark.parametrize("name", CATALOG)
def test_padding_changes_no_logit_of_a_real_token_and_is_never_chosen(name):
    head = make_head(name)
    states, mask, segments = make_input(tokens=5)
    alone = head(states, mask, segments)
    padded_states = torch.cat([states, torch.full((2, 3, 4, 8), 9.0)], dim=2)
    padded_mask = torch.cat([mask, torch.zeros(2, 4, dtype=torch.bool)], dim=1)
    padded = head(padded_states, padded_mask, torch.zeros(2, 9, dtype=torch.long))
    torch.testing.assert_close(padded[:, :5], alone)
    assert (padded[:, 5:] < alone.min()).all()


@pytest.mark.parametrize("name", CATALOG)
def test_the_order_of_rows_changes_nothing(name):
    head = make_head(name)
    states, mask, segments = make_input(batch=3)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(head(states[order], mask[order], segments[order]), head(states, mask, segments)[order])


@pytest.mark.parametrize("name", CATALOG)
def test_a_head_comes_back_from_disk_bit_by_bit(name, tmp_path):
    head, other = make_head(name, seed=0), make_head(name, seed=5)
    save_weights(tmp_path / "head.safetensors", head)
    load_weights(tmp_path / "head.safetensors", other)
    assert torch.equal(other(*make_input()), head(*make_input()))


def test_learned_pooling_with_equal_weights_is_average_pooling():
    learned, average = make_head("learned_pooling"), make_head("average_pooling")
    learned.pooler.weights.data.zero_()
    learned.readout.load_state_dict(average.readout.state_dict())
    torch.testing.assert_close(learned(*make_input()), average(*make_input()))


def test_learned_pooling_starts_near_equal_weights_with_scale_one():
    torch.manual_seed(0)
    pooler = build_head(HeadConfig.model_validate("learned_pooling"), StackShape(2000, 4)).pooler
    assert pooler.weights.std().item() == pytest.approx(0.05, rel=0.1)  # SPEC 2.1
    assert pooler.scale.item() == 1.0


def test_layer_weights_are_the_softmax_of_what_was_learned():
    head = make_head("learned_pooling")
    head.pooler.weights.data = torch.tensor([0.0, 0.0, 1.0])
    total = 2 + 2.718281828
    assert layer_weights(head) == pytest.approx([1 / total, 1 / total, 2.718281828 / total], abs=1e-6)
    assert layer_weights(make_head("average_pooling")) is None


def test_first_last_mean_reads_two_layers_only():
    states, mask, segments = make_input()
    features = make_head("first_last_mean").pooler(states, mask, segments)
    torch.testing.assert_close(features, (states[:, 0] + states[:, 2]) / 2)


def test_an_adapter_lays_the_layers_of_one_feature_side_by_side():
    head = make_head({"name": "mine", "pooler": {"kind": "adapter", "width": 2, "skip": True}})
    states, mask, segments = make_input()
    features = head.pooler(states, mask, segments)
    down = head.pooler.down
    expected = torch.nn.functional.gelu(states[1, 2, 3] @ down.weight.T + down.bias, approximate="tanh")
    assert features.shape[-1] == 2 * 3 + 8
    torch.testing.assert_close(features[1, 3, [0 * 3 + 2, 1 * 3 + 2]], expected)  # element j * layers + s
    torch.testing.assert_close(features[1, 3, 6:], states[1, 2, 3])  # the skip is the last state


def test_an_adapter_starts_small_and_its_readout_as_glorot():
    torch.manual_seed(0)
    head = build_head(HeadConfig.model_validate("adapter_386_shared"), BERT_LARGE)
    weight, readout = head.pooler.down.weight, head.readout.linear.weight
    assert weight.abs().max().item() <= 2e-3  # cut at two standard deviations
    assert weight.std().item() == pytest.approx(0.88e-3, rel=0.02)  # a normal of 1e-3 cut there has this deviation
    limit = (6 / (9650 + 2)) ** 0.5
    assert readout.abs().max().item() <= limit
    assert readout.std().item() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert not head.pooler.down.bias.any()
    assert not head.readout.linear.bias.any()


def test_a_head_may_be_varied_under_a_name_of_its_own():
    config = validate(HeadConfig, {"head": "adapter_64_shared", "name": "fast", "lr": 0.01}, "test")
    assert (config.name, config.lr, config.pooler.kind, config.kind) == ("fast", 0.01, "adapter", "head")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"head": "adaptor"}, "no head 'adaptor' in the catalog"),
        ({"name": "x", "pooler": {"kind": "conv"}}, "adapter"),
        ({"head": "last_linear", "name": "encoder"}, "cannot be a head's name"),
        ({"head": "last_linear", "name": "a/b"}, "pattern"),
        ({"name": "x", "pooler": {"kind": "adapter", "width": 0}}, "width"),
    ],
)
def test_a_wrong_head_is_refused_in_one_line(given, told):
    with pytest.raises(SettingsError, match=told) as caught:
        validate(HeadConfig, given, "test")
    assert "\n" not in str(caught.value)
