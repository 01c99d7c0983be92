import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bertvision.tasks import KINDS
from bertvision.training.objective import (
    SPANS,
    Objective,
    choice_losses,
    class_losses,
    label_losses,
    loss_of,
    losses_of,
    number_losses,
    span_loss,
    span_losses,
    tag_losses,
    taught_loss,
    unit_of,
)
from bertvision.windows.batches import collate, collate_to
from bertvision.windows.packing import BatchShape
from bertvision.windows.window import Window

LABELS = {  # of four windows with five tokens each
    "span": [0] * 4,
    "answerable": [0, 1, 1, 0],
    "class": [2, 0, 1, 1],
    "labels": [(1, 0, 0), (0, 0, 0), (1, 1, 0), (0, 0, 1)],
    "number": [0.5, 2.0, 0.0, 1.5],
    "choice": [1, 1, 0, 0],
    "tags": [np.array([-100, 0, 2, -100, -100], dtype=np.int32)] * 4,
}


def make_windows(kind):
    ids, offsets = np.arange(5, dtype=np.int32), np.zeros((2, 2), dtype=np.int32)
    return [Window(0, ids, 2, offsets, 2, 3, label=label) for label in LABELS[kind.name]]


def make_batch(kind):
    return collate(make_windows(kind), np.arange(4), pad_id=0)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (SPANS, lambda logits, batch: span_losses(logits, batch.starts, batch.ends, "mean")),
        (Objective(KINDS["answerable"], 2), lambda logits, batch: class_losses(logits, batch.labels)),
        (Objective(KINDS["class"], 3), lambda logits, batch: class_losses(logits, batch.labels)),
        (Objective(KINDS["labels"], 3), lambda logits, batch: label_losses(logits, batch.labels)),
        (Objective(KINDS["number"], 1), lambda logits, batch: number_losses(logits, batch.labels)),
        (Objective(KINDS["choice"], 1, group=2), lambda logits, batch: choice_losses(logits, batch.labels, 2)),
        (Objective(KINDS["tags"], 3), lambda logits, batch: tag_losses(logits, batch.labels)),
    ],
    ids=lambda each: each.kind.name if isinstance(each, Objective) else "",
)
def test_every_kind_has_its_loss_for_many_heads_and_for_one(objective, expected):
    torch.manual_seed(0)
    batch, tokens = make_batch(objective.kind), (5,) if objective.per == "token" else ()
    logits = torch.randn(3, 4, *tokens, objective.columns)
    found = losses_of(objective, logits, batch, "mean")
    assert torch.equal(found, expected(logits, batch))
    alone = [loss_of(objective, each, batch, "mean") for each in logits]
    torch.testing.assert_close(torch.stack(alone), found)


@pytest.mark.parametrize("columns", [2, 6])  # of a plain and of a joint readout
def test_with_its_mask_the_loss_of_spans_is_over_the_first_token_and_the_context_alone(columns):
    torch.manual_seed(0)
    windows = [
        Window(0, np.arange(7, dtype=np.int32), 3, np.zeros((3, 2), dtype=np.int32), 4, 5),
        Window(0, np.arange(6, dtype=np.int32), 3, np.zeros((2, 2), dtype=np.int32)),  # no answer
    ]
    candidates = [[0, 3, 4, 5], [0, 3, 4]]  # without question, separators and padding
    batch, logits = collate(windows, np.arange(2), pad_id=0), torch.randn(2, 7, columns, requires_grad=True)
    found = loss_of(SPANS._replace(is_masked=True), logits, batch, "sum")
    (gradient,) = torch.autograd.grad(found, logits)
    for row, places in enumerate(candidates):
        others = [place for place in range(7) if place not in places]
        assert not gradient[row, others, :2].any()
        assert gradient[row, places, :2].all()
    if columns == 2:
        right = [[(2, 0), (3, 1)], [(0, 0), (0, 1)]]  # among the candidates: place, and start or end
        shares = [logits[row, places].log_softmax(dim=0) for row, places in enumerate(candidates)]
        expected = -sum(shares[row][place] for row, bounds in enumerate(right) for place in bounds) / 2
        torch.testing.assert_close(found, expected)


def test_spans_and_tags_are_of_tokens_and_all_else_is_of_rows():
    per = {kind: Objective(KINDS[kind], 2).per for kind in KINDS}
    assert {kind for kind, each in per.items() if each == "token"} == {"span", "tags"}
    assert set(per) == set(LABELS)


@pytest.mark.parametrize(
    "objective",
    [
        SPANS,
        *(
            Objective(KINDS[name], columns)
            for name, columns in [("class", 3), ("labels", 3), ("number", 1), ("tags", 3)]
        ),
        Objective(KINDS["choice"], 1, group=2),
        Objective(KINDS["span"], 6),  # a joint readout's
    ],
    ids=lambda each: f"{each.kind.name}{each.columns}",
)
def test_rows_that_fill_a_batch_count_for_nothing_and_the_others_by_their_share_in_the_step(objective):
    torch.manual_seed(0)
    windows, tokens = make_windows(objective.kind), (5,) if objective.per == "token" else ()
    logits = torch.randn(6, *tokens, objective.columns)
    plain = loss_of(objective, logits[:4], collate(windows, np.arange(4), pad_id=0), "sum")
    filled = collate_to(windows, np.arange(4), 0, BatchShape(rows=6, width=5), num_examples=10)
    torch.testing.assert_close(loss_of(objective, logits, filled, "sum"), plain * 0.4)


def test_a_teachers_loss_leaves_filling_rows_out_too():
    torch.manual_seed(0)
    own, taught, weights = torch.randn(3, 5, 2), torch.randn(3, 5, 2), torch.tensor([0.25, 0.25, 0])
    found = taught_loss(KINDS["span"], own, taught, 2.0, "sum", weights)
    plain = taught_loss(KINDS["span"], own[:2], taught[:2], 2.0, "sum")
    torch.testing.assert_close(found, plain * 0.5)


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


def all_pairs(lengths, max_length=30):
    """List the pairs that a joint readout is normalised over, row by row."""
    for length in lengths:
        spans = [(start, end) for start in range(1, length) for end in range(start, min(length, start + max_length))]
        yield [(0, 0), *spans]


def joint_loss_of(logits, lengths, starts, ends, rank):
    """Score every pair by a loop, and take the mean of the right ones' negative log shares."""
    losses = []
    for row, pairs in enumerate(all_pairs(lengths)):
        right = (starts[row], ends[row])
        scores = {
            (start, end): row_logits[start, 0]
            + row_logits[end, 1]
            + row_logits[start, 2 : 2 + rank] @ row_logits[end, 2 + rank :]
            for row_logits in [logits[row]]
            for start, end in {*pairs, right}
        }
        highest = max(scores.values())
        losses.append(highest + math.log(sum(math.exp(each - highest) for each in scores.values())) - scores[right])
    return sum(losses) / len(losses)


def joint_logits(lengths, rank, seed=0):
    """Draw logits, with padding as a joint readout fills it."""
    logits = np.random.default_rng(seed).normal(0, 1, (len(lengths), max(lengths), 2 + 2 * rank)).astype(np.float32)
    for row, length in enumerate(lengths):
        logits[row, length:, :2], logits[row, length:, 2:] = np.finfo(np.float32).min, 0
    return logits


@pytest.mark.parametrize(("how", "factor"), [("sum", 1), ("mean", 1 / 2)])
@pytest.mark.parametrize(
    ("starts", "ends"),
    [([0, 3, 1], [0, 5, 1]), ([44, 2, 2], [49, 6, 2]), ([5, 0, 0], [45, 0, 0])],  # one of 41 tokens
)
def test_the_loss_of_a_joint_readout_is_the_cross_entropy_over_all_pairs(starts, ends, how, factor):
    lengths, rank = [50, 7, 3], 2
    logits = joint_logits(lengths, rank)
    logits[range(3), starts, 0] += 3  # the model has learned something, so that the right pairs weigh
    logits[range(3), ends, 1] += 3
    found = span_loss(torch.from_numpy(logits), torch.tensor(starts), torch.tensor(ends), how)
    expected = joint_loss_of(logits.astype(np.float64), lengths, starts, ends, rank)
    assert found.item() == pytest.approx(factor * expected, rel=1e-5)


def test_the_loss_of_a_joint_readout_moves_real_tokens_alone():
    logits = torch.from_numpy(joint_logits([50, 7, 3], 2)).requires_grad_()
    span_loss(logits, torch.tensor([5, 3, 0]), torch.tensor([45, 5, 0]), "sum").backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[1, 7:].any()
    assert logits.grad[0, :50].all()


def test_without_its_products_a_joint_readout_counts_as_the_sum_of_start_and_end():
    logits = torch.zeros(1, 7, 6)
    logits[..., :2] = -1e4
    logits[0, 1:3, 0] = torch.tensor([0.3, -0.2])  # starts, each with both ends, so that their shares multiply
    logits[0, 5:7, 1] = torch.tensor([1.0, 0.4])
    expected = math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(0.6))
    for columns in (logits, logits[..., :2]):
        assert span_loss(columns, torch.tensor([1]), torch.tensor([6]), "sum").item() == pytest.approx(expected)


# Many heads at once, and other kinds of tasks


def log_softmax(logits):
    exact = logits.double().numpy()
    return exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))


@pytest.fixture
def draw():
    random = np.random.default_rng(0)
    return lambda *shape: torch.from_numpy(random.normal(0, 2, shape).astype(np.float32))


@pytest.mark.parametrize("how", ["sum", "mean"])
def test_many_heads_have_the_span_losses_they_have_alone(draw, how):
    logits, starts, ends = draw(3, 4, 5, 2), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 3, 4, 2])
    alone = [span_loss(each, starts, ends, how) for each in logits]
    torch.testing.assert_close(span_losses(logits, starts, ends, how), torch.stack(alone))


def test_the_loss_of_classes_is_the_mean_of_the_right_ones_negative_log_shares(draw):
    logits, labels = draw(2, 4, 3), torch.tensor([2, 0, 1, 1])
    expected = -log_softmax(logits)[:, np.arange(4), labels.numpy()].mean(axis=1)
    np.testing.assert_allclose(class_losses(logits, labels), expected, rtol=1e-5)


def test_the_loss_of_labels_is_the_mean_over_every_yes_and_no(draw):
    logits, labels = draw(2, 4, 3), torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).float()
    shares = 1 / (1 + np.exp(-logits.double().numpy()))
    right = np.where(labels.numpy() == 1, shares, 1 - shares)
    np.testing.assert_allclose(label_losses(logits, labels), -np.log(right).mean(axis=(1, 2)), rtol=1e-5)


def test_the_loss_of_numbers_is_the_mean_square_of_what_they_miss(draw):
    logits, numbers = draw(2, 4, 1), torch.tensor([0.5, 3.0, 5.0, -1.0])
    expected = ((logits[..., 0].double().numpy() - numbers.numpy()) ** 2).mean(axis=1)
    np.testing.assert_allclose(number_losses(logits, numbers), expected, rtol=1e-5)


def test_the_loss_of_choices_is_taken_within_each_group(draw):
    logits, labels = draw(2, 6, 1), torch.tensor([2, 2, 2, 0, 0, 0])
    shares = log_softmax(logits[..., 0].reshape(2, 2, 3))
    expected = -(shares[:, 0, 2] + shares[:, 1, 0]) / 2
    np.testing.assert_allclose(choice_losses(logits, labels, 3), expected, rtol=1e-5)


def test_the_loss_of_tags_is_the_mean_over_the_tokens_that_have_one(draw):
    logits, labels = draw(2, 2, 4, 5), torch.tensor([[-100, 3, -100, 0], [-100, 1, -100, -100]])
    shares = log_softmax(logits)
    expected = -(shares[:, 0, 1, 3] + shares[:, 0, 3, 0] + shares[:, 1, 1, 1]) / 3
    np.testing.assert_allclose(tag_losses(logits, labels), expected, rtol=1e-5)


def test_a_batch_without_any_tag_costs_nothing_and_moves_nothing(draw):
    logits = draw(1, 2, 4, 5).requires_grad_()
    loss = tag_losses(logits, torch.full((2, 4), -100))
    loss.sum().backward()
    assert loss.item() == 0.0
    assert not logits.grad.any()


@pytest.mark.parametrize(
    ("labels", "unit"),
    [
        ([-1.0, 1.0], 1.0),
        ([0.0, 5_000.0, 10_000.0], 2.0**11),  # a spread of 4082
        ([0.001, 0.002, 0.003], 2.0**-11),  # of 0.00082, above 0.00049
        ([0.1] * 7, 1.0),  # of a constant there is none, however its mean is rounded
        ([1_000.1] * 1_000, 1.0),
    ],
)
def test_numbers_are_learned_in_the_power_of_two_below_their_spread(labels, unit):
    windows = [replace(make_windows(KINDS["number"])[0], label=label) for label in labels]
    assert unit_of(Objective(KINDS["number"], 1), windows) == unit
