"""Contrastive tuning: which pairs there are, what is minimised, and what it makes of an encoder."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bertvision.encoder.contrastive import contrast_windows, contrastive_losses
from bertvision.encoder.encode import encode_pooled, freeze, split_pairs
from bertvision.encoder.finetune import finetune_encoder
from bertvision.encoder.finetune_plan import FinetuneConfig
from bertvision.encoder.load import load_encoder
from bertvision.errors import DataError, SettingsError
from bertvision.settings import validate
from bertvision.training.objective import cosine_loss
from bertvision.windows.batches import collate, collate_to
from bertvision.windows.packing import BatchShape


def pairs_of(windows):
    """Return the examples of each pair, with the cosine that is wanted."""
    assert [each.label for each in windows[::2]] == [each.label for each in windows[1::2]]
    return [(one.example, two.example, one.label) for one, two in zip(windows[::2], windows[1::2], strict=True)]


def test_half_of_the_pairs_are_alike_and_none_comes_again_before_all_have_come(make_task):
    windows, _ = make_task("class")  # six rows, two of each of three classes
    found = pairs_of(contrast_windows(windows, "rows", 60, seed=1))
    assert len(found) == 60
    assert all((one // 2 == two // 2) == (wanted == 1.0) for one, two, wanted in found)
    counts = Counter((min(one, two), max(one, two)) for one, two, _ in found)
    alike = {pair: count for pair, count in counts.items() if pair[0] // 2 == pair[1] // 2}
    different = {pair: count for pair, count in counts.items() if pair not in alike}
    # Six rows with themselves and three with the other of their class are 9; 6 * 4 / 2 = 12 have different classes.
    assert (len(alike), len(different)) == (9, 12)
    assert set(alike.values()) == {3, 4}  # 30 / 9
    assert set(different.values()) == {2, 3}  # 30 / 12


def test_the_seed_decides_which_pairs_there_are(make_task):
    windows, _ = make_task("class")
    one, again, other = (pairs_of(contrast_windows(windows, "rows", 8, seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_of_many_rows_some_pairs_are_drawn(make_task):
    windows, _ = make_task("class")
    many = [replace(windows[place % 6], example=place, label=place % 100) for place in range(2000)]
    found = pairs_of(contrast_windows(many, "rows", 400, seed=1))
    assert Counter(wanted for _, _, wanted in found) == {1.0: 200, 0.0: 200}
    assert all((one % 100 == two % 100) == (wanted == 1.0) for one, two, wanted in found)


def test_rows_with_several_labels_are_alike_where_they_share_one(make_task):
    windows, _ = make_task("labels")
    labels = np.array([window.label for window in windows])
    found = pairs_of(contrast_windows(windows, "rows", 40, seed=1))
    assert all((labels[one] @ labels[two] > 0) == (wanted == 1.0) for one, two, wanted in found)


def test_numbers_of_pairs_of_texts_become_cosines_from_0_to_1(make_task):
    windows, _ = make_task("number")  # 0, 0.5, ..., 2.5
    found = contrast_windows(windows, "texts", 13, seed=1)
    assert [each.label for each in found] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1] * 2)
    assert [each.example for each in found] == [0, 1, 2, 3, 4, 5] * 2
    assert len(contrast_windows(windows, "texts", 2, seed=1)) == 6  # every row at least once


@pytest.mark.parametrize(("kind", "contrast"), [("class", "rows"), ("number", "texts")])
def test_rows_that_are_all_alike_are_refused(kind, contrast, make_task):
    windows = [replace(window, label=type(window.label)(1)) for window in make_task(kind)[0]]
    with pytest.raises(DataError, match=r"finetune\.objective: task"):
        contrast_windows(windows, contrast, 8, seed=1)


def test_the_loss_is_the_squared_distance_from_the_cosine_that_is_wanted():
    first, second = torch.tensor([[1.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 2.0], [4.0, 3.0]])
    wanted, weights = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])
    assert cosine_loss(first, second, wanted).item() == pytest.approx(((0 - 1) ** 2 + (24 / 25) ** 2) / 2)
    assert cosine_loss(first, second, wanted, weights).item() == pytest.approx(1.0)


@pytest.mark.parametrize(("kind", "contrast"), [("class", "rows"), ("number", "texts")])
def test_rows_that_fill_a_batch_up_have_no_part_in_the_loss(kind, contrast, make_task, encoder, cpu):
    windows = contrast_windows(make_task(kind)[0], contrast, 4, seed=1)
    rows, pad = np.arange(4), encoder.tokenizer.pad_token_id
    losses_of = contrastive_losses(freeze(encoder, cpu), cpu, contrast)
    plain = losses_of(collate(windows, rows, pad))
    filled = losses_of(collate_to(windows, rows, pad, BatchShape(8, 24, None), num_examples=4))
    torch.testing.assert_close(plain, filled, rtol=1e-4, atol=1e-6)  # padding changes what float32 adds up to


def tune(folder, windows, contrast, cpu, **more):
    encoder = load_encoder(str(folder))
    settings = {"fractions": [0.5, 1], "batch": {"windows": 8}, "lr": 1e-3, "dropout": 0, "objective": "contrastive"}
    config = validate(FinetuneConfig, {**settings, **more.pop("settings", {})}, "test")
    tuned = finetune_encoder(encoder, nn.Identity(), windows, config, seed=1, compute=cpu, contrast=contrast, **more)
    return encoder, tuned


def test_rows_of_one_class_come_close_and_others_go_apart(make_task, encoder_folder, cpu):
    windows, _ = make_task("class")
    encoder, tuned = tune(encoder_folder, contrast_windows(windows, "rows", 400, seed=1), "rows", cpu)
    assert [checkpoint.fraction for checkpoint in tuned] == [0.5, 1]
    batch = collate(windows, np.arange(6), encoder.tokenizer.pad_token_id)
    with torch.no_grad():
        states = encode_pooled(freeze(encoder, cpu), batch, "mean", last_only=True)[:, 0, 0].numpy()
    lengths = np.linalg.norm(states, axis=1)
    cosines = states @ states.T / np.outer(lengths, lengths)
    alike = np.arange(6)[:, None] // 2 == np.arange(6) // 2
    assert cosines[alike].min() > 0.8
    assert cosines[~alike].mean() < 0.4
    assert cosines[~alike].max() < cosines[alike].min()


def test_cosines_of_texts_come_to_rank_as_their_numbers_do(make_task, encoder_folder, cpu):
    windows, _ = make_task("number")
    encoder, tuned = tune(encoder_folder, contrast_windows(windows, "texts", 600, seed=1), "texts", cpu)
    assert len(list(tuned)) == 2
    batch = collate(windows, np.arange(6), encoder.tokenizer.pad_token_id)
    with torch.no_grad():
        u, v = (
            encode_pooled(freeze(encoder, cpu), each, "mean", last_only=True)[:, 0, 0].numpy()
            for each in split_pairs(batch)
        )
    cosines = (u * v).sum(axis=1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert np.corrcoef(cosines, [window.label for window in windows])[0, 1] > 0.9


def test_a_tuning_that_was_cut_short_goes_on_to_the_same_weights(make_task, encoder_folder, cpu, tmp_path):
    windows = contrast_windows(make_task("class")[0], "rows", 40, seed=1)
    often = {"save_every": 1e-9}
    _, cut_short = tune(encoder_folder, windows, "rows", cpu, saved=tmp_path / "saved", settings=often)
    next(cut_short)
    cut_short.close()
    resumed, rest = tune(encoder_folder, windows, "rows", cpu, saved=tmp_path / "saved", settings=often)
    whole, all_of_it = tune(encoder_folder, windows, "rows", cpu)
    assert [len(list(each)) for each in (rest, all_of_it)] == [2, 2]
    others = whole.model.state_dict()
    assert all(torch.equal(tensor, others[name]) for name, tensor in resumed.model.state_dict().items())


@pytest.mark.parametrize("own", [{"head": "last_linear"}, {"teacher": {"model": "x"}}])
def test_what_has_no_part_in_it_is_refused(own):
    with pytest.raises(SettingsError, match=f"`{next(iter(own))}` has no part in `objective: contrastive`"):
        validate(FinetuneConfig, {"objective": "contrastive", **own}, "test")
