import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.poolers.layers import AveragePooling, ChosenLayers, LearnedPooling
from bertvision.shapes import StackShape

SEEN = (torch.randn(2, 3, 5, 8), torch.ones(2, 5).bool(), torch.zeros(2, 5).long())
STATES = torch.randn(2, 6, 5, 4, generator=torch.Generator().manual_seed(0))
MASK, SEGMENTS = torch.ones(2, 5).bool(), torch.zeros(2, 5).long()


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


def features(layers, states=STATES, **more):
    pooler = ChosenLayers(StackShape(states.shape[1], 4), layers, **more)
    found = pooler(states, MASK, SEGMENTS)
    assert found.shape[-1] == pooler.features
    return found


@pytest.mark.parametrize(
    ("layers", "chosen"), [("embeddings", [0]), ("second_to_last", [4]), ("last_four", [2, 3, 4, 5])]
)
def test_layers_are_counted_from_the_embedding_output_or_from_the_end(layers, chosen):
    assert torch.equal(features(layers), torch.cat([STATES[:, layer] for layer in chosen], dim=-1))


def test_of_few_layers_the_last_four_are_all():
    assert torch.equal(features("last_four", STATES[:, :2]), torch.cat([STATES[:, 0], STATES[:, 1]], dim=-1))


def test_a_mix_is_a_learned_sum_of_the_chosen_layers():
    pooler = ChosenLayers(StackShape(6, 4), "last_four", mixed=True)
    pooler.mix.weights.data = torch.tensor([0.0, 0.0, 0.0, 1.0])
    total = 3 + 2.718281828
    expected = (STATES[:, 2] + STATES[:, 3] + STATES[:, 4] + 2.718281828 * STATES[:, 5]) / total
    torch.testing.assert_close(pooler(STATES, MASK, SEGMENTS), expected)


def test_what_is_not_there_is_refused():
    with pytest.raises(SettingsError, match="no second_to_last among 1 state"):
        ChosenLayers(StackShape(1, 4), "second_to_last")
