import math

import pytest
import torch

from bertvision.training.losses import span_loss


@pytest.mark.parametrize(("how", "expected"), [("sum", 2 * math.log(4)), ("mean", math.log(4))])
def test_the_loss_of_even_logits_is_the_logarithm_of_the_choices(how, expected):
    logits, places = torch.zeros(3, 4, 2), torch.tensor([0, 1, 3])
    assert span_loss(logits, places, places, how).item() == pytest.approx(expected)


def test_padding_costs_no_loss():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 2)
    padded = torch.cat([logits, torch.full((2, 4, 2), torch.finfo(torch.float32).min)], dim=1)
    starts, ends = torch.tensor([0, 1]), torch.tensor([2, 1])
    torch.testing.assert_close(span_loss(padded, starts, ends, "sum"), span_loss(logits, starts, ends, "sum"))
