import pytest
import torch

from bertvision.heads.build import build_head
from bertvision.heads.catalog import CATALOG
from bertvision.heads.config import HeadConfig
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective

pytestmark = pytest.mark.gpu
CONVOLUTIONAL = ("cnn_1xn", "cnn_nxn", "inception", "modified_xception", "xception")
NAMES = [name for name, entry in CATALOG.items() if entry.pooler.kind in CONVOLUTIONAL]
SHAPE = StackShape(layers=13, hidden=384)


def make_head(name):
    torch.manual_seed(0)
    objective = SPANS if "span" in CATALOG[name].kinds else Objective(KINDS["class"], 2)
    return build_head(HeadConfig.model_validate(name), SHAPE, objective).to("cuda").train()


def make_seen(rows, tokens):
    torch.manual_seed(1)
    mask = torch.arange(tokens) < torch.tensor([[tokens - row % 7] for row in range(rows)])
    seen = (torch.randn(rows, SHAPE.layers, tokens, SHAPE.hidden), mask, torch.zeros(rows, tokens).long())
    return [each.to("cuda") for each in seen]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "tokens"), [(3, 20), (64, 256)])  # the second: the 16,384 tokens of a step
def test_a_head_learns_in_half_precision(name, rows, tokens):
    head, seen = make_head(name), make_seen(rows, tokens)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = head(*seen)
    real = logits[seen[1]] if logits.ndim == 3 else logits
    real.pow(2).mean().backward()
    assert logits.dtype == torch.float32
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in head.parameters())
    assert all(buffer.isfinite().all() for buffer in head.buffers())


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_half_precision_are_near_those_of_single_precision(name):
    head, seen = make_head(name).eval(), make_seen(3, 20)
    with torch.no_grad():
        single = head(*seen)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            half = head(*seen)
    real = (single > torch.finfo(single.dtype).min) & (half > torch.finfo(half.dtype).min)
    assert (half - single)[real].norm() <= 0.1 * single[real].norm()
