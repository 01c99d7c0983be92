import pytest
import torch

from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective

CHOICES = Objective(KINDS["choice"], 1, group=2)
NAMES = [
    "learned_pooling",
    "average_pooling",
    "adapter_64_shared",
    "adapter_64_unshared_skip",
    "two_adapters_386",
    "cnn_1xn_no_dropout",
    "ladder",
    "mix4",
    "layer_attention",
    "read",
    "last_linear",
]
READOUT, LAST_OF_LADDER = "readout.linear.bias", "pooler.layers.2.mlp_out.bias"


@pytest.fixture
def seen():
    """States of four windows of twelve tokens, three layers and width 64."""
    torch.manual_seed(0)
    return torch.randn(4, 3, 12, 64), torch.ones(4, 12, dtype=torch.bool), torch.zeros(4, 12, dtype=torch.long)


def make_head(name, objective):
    torch.manual_seed(1)
    head = build_head(HeadConfig.model_validate(name), StackShape(3, 64), objective).eval()
    with torch.no_grad():
        for weight in head.parameters():  # as after some training: many start at zero
            weight.add_(0.1 * torch.randn_like(weight))
    return head


@torch.no_grad()
def probabilities(head, seen):
    """Probabilities of a window's starts and ends, or of two endings."""
    logits = head(*seen)
    return logits.softmax(dim=1) if logits.ndim == 3 else logits.view(2, 2).softmax(dim=1)


def unseen_by_the_softmax(head, seen):
    """The weights whose change by a half, or so, leaves all probabilities as they are."""
    before, unseen = probabilities(head, seen), set()
    for name, weight in head.named_parameters():
        kept = weight.data.clone()
        weight.data += 0.5 * torch.randn_like(weight)
        if (probabilities(head, seen) - before).abs().max() < 1e-6:  # rounding of float32 alone
            unseen.add(name)
        weight.data = kept
    return unseen


@pytest.mark.parametrize("objective", [SPANS, CHOICES], ids=["span", "choice"])
@pytest.mark.parametrize("name", NAMES)
def test_exactly_the_weights_that_a_softmax_does_not_see_are_left_alone(name, objective, seen):
    head = make_head(name, objective)
    names = {weight: name for name, weight in head.named_parameters()}
    still = {names[weight] for weight, _ in head.still_weights(objective.kind)}
    assert still == unseen_by_the_softmax(head, seen) == ({READOUT, LAST_OF_LADDER} if name == "ladder" else {READOUT})


def test_of_a_joint_readout_start_and_end_alone_are_left_alone(seen):
    head = make_head("adapter_386_shared_skip_joint", SPANS)
    ((weight, part),) = head.still_weights(SPANS.kind)
    assert weight is head.readout.linear.bias
    assert torch.arange(18)[part].tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["answerable", "class", "labels", "number", "tags"])
def test_of_other_kinds_every_weight_learns(kind):
    assert make_head("last_linear", Objective(KINDS[kind], 3)).still_weights(KINDS[kind]) == []
