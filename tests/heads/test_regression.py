"""Regressions, against normal equations and against what holds where a convex loss is lowest."""

import numpy as np
import pytest
import torch

from bertvision.encoder.encode import StateBatch
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import layer_contributions
from bertvision.heads.regression import PENALTIES, fit_regression
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import Objective, start_of
from bertvision.windows.batches import WindowBatch

CLASSES, NUMBERS = Objective(KINDS["class"], 3), Objective(KINDS["number"], 1)
LAYERS, HIDDEN = 2, 4


def batches_of(states, labels, size=7):
    """Cut rows into batches whose order is not that of the rows."""
    order = torch.from_numpy(np.random.default_rng(3).permutation(len(states)))
    found = []
    for rows in order.split(size):
        one = torch.zeros(len(rows), 1, dtype=torch.int64)
        windows = WindowBatch(one, one == 0, one, one[:, 0], one[:, 0], labels[rows], rows.numpy())
        found.append(StateBatch(states[rows], windows))
    return found


def make(objective, name="regression", pooling="mean"):
    shape = StackShape(LAYERS, HIDDEN * (4 if pooling == "pair_difference" else 1))
    return build_head(HeadConfig.model_validate(name), shape, objective, pooling)


def logits_of(head, states):
    one = torch.zeros(len(states), 1, dtype=torch.int64)
    with torch.no_grad():
        return head(states, one == 0, one)


def draw(rows, seed=0, hidden=HIDDEN):
    random = torch.Generator().manual_seed(seed)
    return 3 + 2 * torch.randn(rows, LAYERS, 1, hidden, generator=random)


@pytest.mark.parametrize(("name", "first"), [("regression", 0), ("last_regression", HIDDEN)])
def test_numbers_have_the_weights_of_a_ridge_regression_on_standardised_states(name, first):
    states = draw(40)
    numbers = 500 + 30 * states[:, 0, 0, 1] - 50 * states[:, 1, 0, 2] + 20 * draw(40, seed=1)[:, 0, 0, 0]
    head = make(NUMBERS, name)
    penalty = fit_regression(head, batches_of(states, numbers), NUMBERS, seed=1).penalty
    features, y = states.flatten(1).numpy()[:, first:].astype(np.float64), numbers.numpy().astype(np.float64)
    z = (features - features.mean(0)) / features.std(0) / features.shape[1] ** 0.5
    gram = 2 * z.T @ z / len(z) + penalty * np.eye(z.shape[1])  # of mean((y - z w)^2) / spread^2 + penalty / 2 w w
    weights = np.linalg.solve(gram, 2 * z.T @ ((y - y.mean()) / y.std()) / len(z))
    expected = y.mean() + y.std() * z @ weights
    np.testing.assert_allclose(logits_of(head, states)[:, 0].numpy(), expected, rtol=1e-3)  # L-BFGS stops near it
    assert penalty in PENALTIES


def test_classes_are_fitted_until_the_gradient_is_zero():
    states = draw(60)
    labels = (states[:, 1, 0, :3] + draw(60, seed=2)[:, 0, 0, :3]).argmax(dim=1)
    head = make(CLASSES)
    penalty = fit_regression(head, batches_of(states, labels), CLASSES, seed=1).penalty
    features = states.flatten(1)
    z = (features - features.mean(0)) / features.std(0, correction=0) / features.shape[1] ** 0.5
    weight = head.readout.linear.weight.detach() * features.std(0, correction=0) * features.shape[1] ** 0.5
    errors = logits_of(head, states).softmax(dim=1) - torch.nn.functional.one_hot(labels, 3)
    # One digit below the tolerance of the gradient, 1e-4, for rounding in float32.
    torch.testing.assert_close(errors.T @ z / 60 + penalty * weight, torch.zeros(3, 8), rtol=0, atol=1e-3)
    torch.testing.assert_close(errors.mean(dim=0), torch.zeros(3), rtol=0, atol=1e-3)


@pytest.mark.parametrize(("kind", "columns", "group"), [("labels", 2, 1), ("choice", 1, 4), ("answerable", 2, 1)])
def test_other_kinds_of_rows_are_learned_too(kind, columns, group):
    objective, states = Objective(KINDS[kind], columns, group), draw(80)
    signal = states[:, 0, 0, :2]
    if kind == "labels":
        labels = (signal > 3).float()
    elif kind == "choice":
        labels = signal[:, 0].view(-1, group).argmax(dim=1).repeat_interleave(group)
    else:
        labels = (signal[:, 0] > 3).long()
    head = make(objective)
    fit_regression(head, batches_of(states, labels, size=8 if group == 1 else 80), objective, seed=1)
    logits = logits_of(head, states)
    if kind == "choice":
        right = logits.view(-1, group).argmax(dim=1) == labels[::group]
    else:
        right = (logits > 0) == labels.bool() if kind == "labels" else logits.argmax(dim=1) == labels
    assert right.float().mean() > 0.8


def test_a_regression_on_compared_texts_starts_from_the_cosine_even_with_six_rows():
    states, other = draw(6, hidden=4 * HIDDEN), draw(50, seed=5, hidden=4 * HIDDEN)
    cosine = lambda rows: rows[:, -1, 0, 3 * HIDDEN :].mean(dim=1)  # noqa: E731
    head = make(NUMBERS, "last_regression", "pair_difference")
    fit_regression(head, batches_of(states, 5 * cosine(states)), NUMBERS, seed=1)
    found = np.corrcoef(logits_of(head, other)[:, 0].numpy(), cosine(other).numpy())[0, 1]
    assert found > 0.99


def test_one_row_or_one_class_gives_what_always_occurs():
    for rows in (1, 9):
        head, labels = make(CLASSES), torch.ones(rows, dtype=torch.int64)
        fit_regression(head, batches_of(draw(rows), labels), CLASSES, seed=1)
        assert (logits_of(head, draw(5, seed=4)).argmax(dim=1) == 1).all()


def test_its_logits_are_the_sum_of_what_each_layer_adds():
    states, labels = draw(30), torch.arange(30) % 3
    one = torch.zeros(30, 1, dtype=torch.int64)
    for name in ("regression", "last_regression"):
        head = make(CLASSES, name)
        fit_regression(head, batches_of(states, labels), CLASSES, seed=1)
        with torch.no_grad():
            parts = layer_contributions(head, states, one == 0, one).parts
        torch.testing.assert_close(parts.sum(dim=1)[:, 0], logits_of(head, states), rtol=1e-4, atol=1e-4)


def test_logits_start_at_the_mean_or_at_how_often_each_class_occurs():
    bias, spread = start_of(NUMBERS, torch.tensor([1.0, 2.0, 6.0]))
    assert (bias.item(), spread) == (3.0, pytest.approx(np.std([1, 2, 6])))
    torch.testing.assert_close(start_of(CLASSES, torch.tensor([0, 0, 1]))[0].exp(), torch.tensor([3, 2, 1]) / 6)
    shares, _ = start_of(Objective(KINDS["labels"], 2), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    torch.testing.assert_close(shares.sigmoid(), torch.tensor([0.75, 0.25]))
    assert start_of(Objective(KINDS["choice"], 1, 4), torch.tensor([3, 3]))[0].tolist() == [0]


def test_rows_are_judged_by_fits_that_have_not_seen_them():
    states = draw(60)
    labels = (states[:, 1, 0, :3] - 3).argmax(dim=1)
    wrong = labels.clone()
    wrong[[7, 30]] = (labels[[7, 30]] + 1) % 3
    unseen = fit_regression(make(CLASSES), batches_of(states, wrong), CLASSES, seed=1).unseen
    assert unseen.windows.tolist() == list(range(60))
    said = unseen.logits.argmax(dim=1)
    assert said[[7, 30]].tolist() == labels[[7, 30]].tolist()
    assert (said == labels).float().mean() > 0.7


def test_copies_are_fitted_to_shares_of_the_rows_each_drawn_three_times():
    states = draw(64)
    numbers = states[:, 0, 0, 1] + 0.1 * draw(64, seed=1)[:, 0, 0, 0]
    head = make(NUMBERS)
    fit = fit_regression(head, batches_of(states, numbers), NUMBERS, seed=1, shares=(0.03, 0.25, 0.5))
    assert {rows: len(heads) for rows, heads in fit.fewer.items()} == {16: 3, 32: 3}  # of 2 rows nothing is learned
    other = draw(400, seed=9)
    errors = [float((logits_of(each, other)[:, 0] - other[:, 0, 0, 1]).std()) for each in (*fit.fewer[16], head)]
    assert max(errors[:-1]) > errors[-1]
    assert len(set(errors)) == 4


def test_of_choices_whole_groups_are_judged():
    objective, states = Objective(KINDS["choice"], 1, 4), draw(80)
    labels = states[:, 0, 0, 0].view(-1, 4).argmax(dim=1).repeat_interleave(4)
    fit = fit_regression(make(objective), batches_of(states, labels, size=80), objective, seed=1, shares=(0.5,))
    assert fit.unseen.windows.tolist() == list(range(80))
    assert (fit.unseen.logits.view(-1, 4).argmax(dim=1) == labels[::4]).float().mean() > 0.7
    assert list(fit.fewer) == [40]
