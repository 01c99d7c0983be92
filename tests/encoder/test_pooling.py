"""Pooled states, against arithmetic on each row by itself."""

import numpy as np
import pytest
import torch

from bertvision.data.example import TextRow
from bertvision.encoder.encode import compare, encode, encode_output, encode_pooled, pool, shape_of_states, split_pairs
from bertvision.tasks import KINDS
from bertvision.training.objective import Objective
from bertvision.windows.batches import collate
from bertvision.windows.cut import cut_rows

ROWS = Objective(KINDS["class"], 2)
TEXTS = [("who built the weir?", "hannah coyle"), ("the stone", "the river was by the stone weir in 1887")]


def rows_of(encoder, texts):
    rows = [TextRow(str(place), each, 0) for place, each in enumerate(texts)]
    return collate(cut_rows(rows, encoder.tokenizer, 32, "class"), np.arange(len(rows)), 0)


@pytest.fixture
def pairs(encoder):
    return rows_of(encoder, TEXTS)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "first_mean_max"])
def test_a_pooled_state_is_that_of_the_real_tokens_of_every_layer(pooling, encoder, pairs):
    with torch.no_grad():
        states, pooled = encode(encoder, pairs), encode_pooled(encoder, pairs, pooling)
    for row in range(2):
        real = states[row, :, pairs.mask[row]].numpy()
        parts = {"first": real[:, 0], "mean": real.mean(axis=1), "max": real.max(axis=1)}
        one = {**parts, "last": real[:, -1]}
        expected = np.concatenate(
            [one[name] for name in (parts if pooling == "first_mean_max" else (pooling,))], axis=-1
        )
        np.testing.assert_allclose(pooled[row, :, 0].numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "first_mean_max"])
def test_what_padding_holds_changes_no_pooled_state(pooling):
    states, mask = torch.randn(2, 3, 5, 4), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    changed = states.clone()
    changed[1, :, 3:] = 1e4
    assert torch.equal(pool(states, mask, pooling), pool(changed, mask, pooling))


def test_both_texts_of_a_pair_become_rows_as_if_each_stood_alone(encoder, pairs):
    for place, part in enumerate(split_pairs(pairs)):
        alone = rows_of(encoder, [(texts[place],) for texts in TEXTS])
        assert torch.equal(part.mask, alone.mask)
        assert torch.equal(part.ids * part.mask, alone.ids * alone.mask)
        assert not part.segments.any()


def test_compared_states_hold_both_texts_their_distance_and_a_product_whose_mean_is_the_cosine(encoder, pairs):
    with torch.no_grad():
        compared = encode_pooled(encoder, pairs, "pair_difference")[:, :, 0]
        alone = [rows_of(encoder, [(texts[place],) for texts in TEXTS]) for place in (0, 1)]
        one, other = (encode_pooled(encoder, each, "mean")[:, :, 0] for each in alone)
    u, v, distance, product = compared.chunk(4, dim=-1)
    cosine = torch.nn.functional.cosine_similarity(one, other, dim=-1)
    torch.testing.assert_close(product.mean(dim=-1), cosine, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(distance, (u - v).abs(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(u.norm(dim=-1), torch.full((2, 3), 32**0.5), rtol=1e-4, atol=1e-4)


def test_a_pair_is_never_pooled_into_one_where_it_is_to_be_compared():
    with pytest.raises(ValueError, match="two passes"):
        pool(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, dtype=torch.bool), "pair_difference")
    same = torch.ones(1, 1, 1, 4)
    assert torch.equal(compare(same, same)[..., 8:12], torch.zeros(1, 1, 1, 4))


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max", "first_mean_max", "pair_difference"])
def test_the_shape_of_pooled_states_is_known_before_they_are_made(pooling, encoder, pairs):
    for layers in (None, (0, 2)):
        states = encode_pooled(encoder, pairs, pooling, layers=layers)
        assert shape_of_states(encoder, layers, pooling=pooling) == (states.shape[1], states.shape[3])


@pytest.mark.parametrize("pooling", ["mean", "max", "first_mean_max", "pair_difference"])
def test_an_output_layer_reads_the_last_pooled_state(pooling, encoder, pairs):
    with torch.no_grad():
        last, states = encode_output(encoder, pairs, ROWS, pooling), encode_pooled(encoder, pairs, pooling)
    torch.testing.assert_close(last, states[:, -1:], rtol=1e-4, atol=1e-5)
