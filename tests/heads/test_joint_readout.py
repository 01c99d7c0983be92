import numpy as np
import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import count_parameters, layer_weights, score_columns
from bertvision.heads.readouts import JointReadout
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective

SHAPE = StackShape(layers=3, hidden=4)
MASK = torch.arange(5) < torch.tensor([[5], [3]])


@pytest.fixture
def readout():
    torch.manual_seed(0)
    readout = JointReadout(6, SHAPE, rank=2)
    readout.layer_weights.data.normal_()
    readout.no_answer.bias.data.fill_(0.5)
    return readout


def test_the_first_tokens_start_has_the_say_of_all_layers_in_it(readout):
    features, states = torch.randn(2, 5, 6), torch.randn(2, 3, 5, 4)
    columns = readout(features, states, MASK)
    expected = (features @ readout.linear.weight.T + readout.linear.bias).detach()
    shares = np.exp(readout.layer_weights.detach().numpy())
    for row in range(2):
        first = sum(share * states[row, layer, 0].numpy() for layer, share in enumerate(shares / shares.sum()))
        expected[row, 0, 0] += float(readout.no_answer.weight.detach().numpy()[0] @ first) + 0.5
    torch.testing.assert_close(columns[MASK], expected[MASK])


def test_padding_has_the_lowest_bounds_and_no_factors(readout):
    columns = readout(torch.randn(2, 5, 6), torch.randn(2, 3, 5, 4), MASK)
    assert (columns[~MASK][:, :2] == torch.finfo(torch.float32).min).all()
    assert not columns[~MASK][:, 2:].any()


def test_pairs_add_little_at_the_start():
    torch.manual_seed(0)
    columns = JointReadout(1000, SHAPE, rank=8)(
        torch.randn(8, 50, 1000), torch.zeros(8, 3, 50, 4), torch.ones(8, 50) > 0
    )
    of_start, of_end = columns[..., 2:].chunk(2, dim=-1)
    products = torch.einsum("bir,bjr->bij", of_start, of_end)
    assert products.std().item() == pytest.approx(0.1**2 * 2 * 8**0.5, rel=0.1)  # Glorot: 2 for each of both factors
    assert columns[..., :2].std().item() == pytest.approx(2**0.5, rel=0.1)


def test_a_joint_head_is_larger_by_its_factors_and_the_say_of_the_layers():
    with torch.device("meta"):
        plain, joint = (
            count_parameters(build_head(HeadConfig.model_validate(name), StackShape(25, 1024))).trainable
            for name in ("adapter_386_shared_skip", "adapter_386_shared_skip_joint")
        )
    assert joint - plain == 16 * (25 * 386 + 1024) + 16 + 25 + 1024 + 1


def test_the_rank_of_a_joint_readout_is_an_option():
    config = HeadConfig.model_validate({"head": "last_linear", "name": "x", "readout": "joint", "rank": 3})
    head = build_head(config, SHAPE)
    assert score_columns(head) == head.readout.linear.out_features == 2 + 2 * 3
    assert score_columns(build_head(HeadConfig.model_validate("last_linear"), SHAPE)) == 2


def test_the_mix_of_a_joint_readout_is_not_taken_for_the_poolers():
    head = build_head(HeadConfig.model_validate("adapter_386_shared_skip_joint"), SHAPE)
    assert layer_weights(head) is None
    pooled = build_head(HeadConfig.model_validate({"head": "learned_pooling", "name": "x", "readout": "joint"}), SHAPE)
    assert layer_weights(pooled) == [round(each, 6) for each in pooled.pooler.weights.softmax(dim=0).tolist()]


@pytest.mark.parametrize(
    ("name", "objective", "told"),
    [
        (
            "adapter_386_shared_skip_joint",
            Objective(KINDS["class"], 2),
            "joint readout.* kind span, and this .* kind class",
        ),
        ("cacnn_simple", Objective(KINDS["tags"], 2), "of the kind span, and this one is of the kind tags"),
        ("ap_glue", SPANS, "answerable, class, labels, number, choice, and this one is of the kind span"),
        ("bilstm_sum_all", Objective(KINDS["class"], 2), "of the kind span, tags, and this one is of the kind class"),
    ],
)
def test_a_head_that_cannot_score_what_a_task_needs_is_refused(name, objective, told):
    with pytest.raises(SettingsError, match=told):
        build_head(HeadConfig.model_validate(name), SHAPE, objective)
