import pytest
import torch

from bertvision.heads.build import build_head
from bertvision.heads.catalog import CATALOG
from bertvision.heads.config import HeadConfig
from bertvision.heads.grouped import can_be_grouped, grouped_logits
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective

SHAPE = StackShape(layers=4, hidden=16)
GROUPED = [
    *("learned_pooling", "average_pooling", "first_last_mean", "last_linear", "ap_squad"),
    *(
        f"adapter_{width}_{sharing}{skip}"
        for width in (64, 386)
        for sharing in ("shared", "unshared")
        for skip in ("", "_skip")
    ),
]


def make_heads(names, objective=SPANS):
    torch.manual_seed(0)
    heads = [build_head(HeadConfig.model_validate(name), SHAPE, objective) for name in names]
    for parameter in (parameter for head in heads for parameter in head.parameters()):
        parameter.data.normal_()  # biases too
    return heads


def make_seen(tokens=7):
    torch.manual_seed(1)
    states = torch.randn(4, 3, tokens, 16).transpose(0, 1)  # as the encoder gives them
    return states, torch.ones(3, tokens).bool(), torch.zeros(3, tokens).long()


def test_pooling_heads_and_adapters_can_be_grouped_and_heads_with_more_inside_cannot():
    found = [
        name for name in CATALOG if can_be_grouped(make_heads([name], Objective(KINDS[CATALOG[name].kinds[0]], 2))[0])
    ]
    assert sorted(found) == sorted(GROUPED)


@pytest.mark.parametrize(
    "objective", [SPANS, Objective(KINDS["tags"], 5), Objective(KINDS["class"], 3), Objective(KINDS["number"], 1)]
)
def test_grouped_heads_give_the_logits_and_gradients_they_give_alone(objective):
    tokens = 7 if objective.per == "token" else 1
    grouped, alone = make_heads(GROUPED, objective), make_heads(GROUPED, objective)
    seen = make_seen(tokens)
    together = grouped_logits(grouped, seen[0])
    for place, head in enumerate(alone):
        own = head(*seen)
        weights = torch.linspace(-1, 1, own.numel()).view(own.shape)
        (own * weights).sum().backward()
        (together[place].view(own.shape) * weights).sum().backward(retain_graph=True)
        # The same sums in another order: torch's plain kernels (ATEN_CPU_CAPABILITY=default) were seen 1.3e-4 apart.
        torch.testing.assert_close(together[place].view(own.shape), own, rtol=1e-4, atol=6e-4)
        for one, other in zip(grouped[place].parameters(), head.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_heads_on_a_slice_of_a_batch_read_that_slice():
    heads, (states, _, _) = make_heads(GROUPED), make_seen()
    torch.testing.assert_close(grouped_logits(heads, states[1:]), grouped_logits(heads, states)[:, 1:])


@pytest.mark.parametrize("factor", [float("nan"), 1e38])
@pytest.mark.parametrize("spoiled", range(len(GROUPED)))
def test_a_head_that_overflows_changes_no_other_head(spoiled, factor):
    """Weights of 1e38 make features that are infinite, and infinity times zero is no number."""
    sound, broken = make_heads(GROUPED), make_heads(GROUPED)
    for parameter in broken[spoiled].parameters():
        parameter.data *= factor
    states = make_seen()[0]
    expected, found = grouped_logits(sound, states), grouped_logits(broken, states)
    expected.logsumexp(dim=2).sum().backward()
    found.logsumexp(dim=2).sum().backward()
    assert not found[spoiled].isfinite().all()
    for place, (one, other) in enumerate(zip(sound, broken, strict=True)):
        if place != spoiled:
            assert torch.equal(found[place], expected[place])
            pairs = zip(one.parameters(), other.parameters(), strict=True)
            assert all(torch.equal(mine.grad, theirs.grad) for mine, theirs in pairs)
