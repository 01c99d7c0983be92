import pytest
import torch

from bertvision.heads.poolers.mixes import AveragePooling, LearnedPooling

SEEN = (torch.randn(2, 3, 5, 8), torch.ones(2, 5).bool(), torch.zeros(2, 5).long())


def test_learned_pooling_with_equal_weights_is_average_pooling():
    learned = LearnedPooling(layers=3, hidden=8)
    learned.weights.data.zero_()
    torch.testing.assert_close(learned(*SEEN), AveragePooling(8)(*SEEN))


def test_learned_pooling_starts_near_equal_weights_with_scale_one():
    torch.manual_seed(0)
    pooler = LearnedPooling(layers=2000, hidden=4)
    assert pooler.weights.std().item() == pytest.approx(0.05, rel=0.1)  # SPEC 2.1
    assert pooler.scale.item() == 1.0


def test_the_mean_of_first_and_last_reads_two_layers_only():
    states = SEEN[0]
    torch.testing.assert_close(AveragePooling(8, first_and_last=True)(*SEEN), (states[:, 0] + states[:, 2]) / 2)
