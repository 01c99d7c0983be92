"""The masker's shares are those that it is told, within what chance allows."""

import numpy as np
import pytest
from pydantic import ValidationError

from bertvision.pretraining.config import MaskingConfig
from bertvision.pretraining.masking import mask_tokens, predict_next
from bertvision.pretraining.rows import cut_documents, make_rows

ROUNDS = 40


@pytest.fixture
def rows(prepared):
    random = np.random.default_rng(3)
    chunks = cut_documents(prepared.train, 61, 0.1, random)
    return make_rows(prepared.train, chunks, np.arange(len(chunks.starts)), prepared.vocabulary, random, pairs=True)


def masked(rows, prepared, **settings):
    """Mask the same rows many times over."""
    config = MaskingConfig(**settings)
    return [mask_tokens(rows, config, prepared.vocabulary, np.random.default_rng([1, n])) for n in range(ROUNDS)]


def near(share, expected, count):
    """Whether a share of so many draws lies within four standard deviations of what is expected."""
    return abs(share - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1e-9) / count) + 1e-9


# The rows of table 8.
@pytest.mark.parametrize(
    ("mask", "same", "random"),
    [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.8, 0.0, 0.2), (0.8, 0.2, 0.0), (0.0, 0.2, 0.8), (0.0, 0.0, 1.0)],
)
def test_chosen_tokens_are_replaced_in_the_shares_of_table_8(mask, same, random, rows, prepared):
    vocabulary, seen, labels = prepared.vocabulary, [], []
    for found in masked(rows, prepared, mask=mask, unchanged=same, random=random):
        seen.append(found.ids[found.places])
        labels.append(found.labels)
        np.testing.assert_array_equal(found.labels, rows.ids[found.places])
        others = np.setdiff1d(np.arange(len(rows.ids)), found.places)
        np.testing.assert_array_equal(found.ids[others], rows.ids[others])
    seen, labels = np.concatenate(seen), np.concatenate(labels)
    is_mask, is_same = seen == vocabulary.id_of("[MASK]"), seen == labels
    chance = random / len(vocabulary.ordinary)  # a random token may be the same one
    assert len(seen) > 5000
    assert near(is_mask.mean(), mask, len(seen))
    assert near(is_same.mean(), same + chance, len(seen))
    assert near((~is_mask & ~is_same).mean(), random - chance, len(seen))


@pytest.mark.parametrize("share", [0.15, 0.3])
@pytest.mark.parametrize("whole_words", [False, True])
def test_a_share_of_every_row_is_chosen_and_special_tokens_never(share, whole_words, rows, prepared):
    texts = np.bincount(rows.numbers, weights=~rows.is_special)
    for found in masked(rows, prepared, fraction=share, whole_words=whole_words)[:10]:
        assert not rows.is_special[found.places].any()
        counts = np.bincount(rows.numbers[found.places], minlength=len(texts))
        assert counts.min() >= 1
        if whole_words:
            assert abs(counts.sum() / texts.sum() - share) < 0.05  # words that do not fit any more are left out
        else:
            np.testing.assert_array_equal(counts, np.maximum(1, np.round(share * texts)))


def test_every_token_is_chosen_as_often_as_any_other(rows, prepared):
    counts = np.zeros(len(rows.ids))
    for found in masked(rows, prepared):
        counts[found.places] += 1
    text = ~rows.is_special
    halves = np.arange(len(rows.ids)) - rows.starts[rows.numbers] < rows.lengths[rows.numbers] / 2
    first, second = (counts[text & half].mean() / ROUNDS for half in (halves, ~halves))
    assert abs(first - second) < 4 * np.sqrt(2 * 0.15 * 0.85 / (ROUNDS * text.sum() / 2))


def test_words_are_chosen_whole(rows, prepared):
    continues, checked = prepared.vocabulary.continues, 0
    for found in masked(rows, prepared, fraction=0.3, whole_words=True)[:5]:
        chosen = np.zeros(len(rows.ids), dtype=bool)
        chosen[found.places] = True
        for place in np.flatnonzero(continues[rows.ids]):
            if not rows.is_special[place - 1]:
                assert chosen[place] == chosen[place - 1]
                checked += chosen[place]
    assert checked > 50


def test_masks_are_drawn_anew_and_alike_from_one_seed(rows, prepared):
    one, other, *_ = masked(rows, prepared)
    again = masked(rows, prepared)[0]
    np.testing.assert_array_equal(one.ids, again.ids)
    assert one.places.tolist() != other.places.tolist()


def test_random_tokens_are_never_special_ones(rows, prepared):
    for found in masked(rows, prepared, mask=0.0, same=0.0, random=1.0):
        assert not np.isin(found.ids[found.places], prepared.vocabulary.tokenizer.all_special_ids).any()


def test_a_batch_without_room_has_fewer_predictions(rows, prepared):
    found = mask_tokens(rows, MaskingConfig(), prepared.vocabulary, np.random.default_rng(0), most=7)
    assert len(found.places) == len(found.labels) == 7
    assert (found.ids != rows.ids).sum() <= 7


def test_from_left_to_right_every_token_predicts_the_next(rows):
    found = predict_next(rows)
    np.testing.assert_array_equal(found.labels, rows.ids[found.places + 1])
    assert len(found.places) == (~rows.is_special).sum()
    assert not rows.is_special[found.places + 1].any()
    np.testing.assert_array_equal(found.ids, rows.ids)


def test_shares_add_up_to_one():
    with pytest.raises(ValidationError, match="add up to 0.9, not 1"):
        MaskingConfig(mask=0.8, unchanged=0.1, random=0.0)
