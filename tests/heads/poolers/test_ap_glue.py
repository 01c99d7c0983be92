import math

import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import count_parameters
from bertvision.heads.poolers.adapter import PositionalAdapter
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import Objective

BASE, LARGE = StackShape(13, 768), StackShape(25, 1024)
SHAPE = StackShape(layers=3, hidden=4)


def make_input(tokens, lengths):
    torch.manual_seed(0)
    mask = torch.arange(tokens) < torch.tensor(lengths)[:, None]
    return torch.randn(len(lengths), *SHAPE[:1], tokens, SHAPE.hidden), mask, torch.zeros(len(lengths), tokens).long()


@pytest.mark.parametrize(
    ("shape", "length", "width", "classes", "count"),
    [
        (BASE, 128, 128, 2, 524_418),
        (LARGE, 128, 128, 2, 950_402),
        (BASE, 128, 128, 3, 737_411),  # MNLI
        (BASE, 250, 250, 2, 1_817_252),  # RTE
        (LARGE, 250, 250, 2, 3_381_252),
        (BASE, 128, 128, 1, 311_425),  # STS-B
        (BASE, 121, 32, 2, 125_282),  # QNLI, tuned, and three more
        (BASE, 250, 8, 2, 58_154),
        (BASE, 128, 32, 2, 131_106),
        (BASE, 128, 16, 2, 65_554),
    ],
)
def test_the_head_has_the_published_number_of_parameters(shape, length, width, classes, count):
    pooler = {"kind": "ap_glue", "length": length, "width": width}  # SPEC 8.4
    with torch.device("meta"):
        head = build_head(
            HeadConfig.model_validate({"name": "x", "pooler": pooler}), shape, Objective(KINDS["class"], classes)
        )
    assert count_parameters(head) == (count, count)


def test_features_stand_by_token_then_by_width_then_by_layer():
    pooler = PositionalAdapter(SHAPE, width=2, length=7)
    states, mask, segments = make_input(5, [5, 3])
    features = pooler(states, mask, segments)
    assert features.shape == (2, 1, 7 * 2 * 3)
    token, feature, layer = 2, 1, 0
    before = (states[1, layer, token] @ pooler.down.weight[feature] + pooler.down.bias[feature]).item()
    exact = before * (1 + math.erf(before / math.sqrt(2))) / 2
    assert features[1, 0, (token * 2 + feature) * 3 + layer].item() == pytest.approx(exact, abs=1e-6)
    assert features[1, 0, : 3 * 6].all()  # three tokens
    assert not features[1, 0, 3 * 6 :].any()  # padding, of the batch and of the head


def test_a_longer_row_is_refused_and_longer_padding_is_not():
    pooler = PositionalAdapter(SHAPE, width=2, length=4)
    states, mask, segments = make_input(6, [4, 2])
    torch.testing.assert_close(pooler(states, mask, segments), pooler(states[:, :, :4], mask[:, :4], segments[:, :4]))
    with pytest.raises(SettingsError, match="a row of 5 tokens is longer than the 4 .* give its pooler a length of 5"):
        pooler(*make_input(6, [5, 2]))
