from dataclasses import replace

import numpy as np
import pytest
import torch

from bertvision.tasks import KINDS
from bertvision.training import losses
from bertvision.training.objective import SPANS, Objective, loss_of, losses_of, unit_of
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
        (SPANS, lambda logits, batch: losses.span_losses(logits, batch.starts, batch.ends, "mean")),
        (Objective(KINDS["answerable"], 2), lambda logits, batch: losses.class_losses(logits, batch.labels)),
        (Objective(KINDS["class"], 3), lambda logits, batch: losses.class_losses(logits, batch.labels)),
        (Objective(KINDS["labels"], 3), lambda logits, batch: losses.label_losses(logits, batch.labels)),
        (Objective(KINDS["number"], 1), lambda logits, batch: losses.number_losses(logits, batch.labels)),
        (Objective(KINDS["choice"], 1, group=2), lambda logits, batch: losses.choice_losses(logits, batch.labels, 2)),
        (Objective(KINDS["tags"], 3), lambda logits, batch: losses.tag_losses(logits, batch.labels)),
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
    found = losses.taught_loss(KINDS["span"], own, taught, 2.0, "sum", weights)
    plain = losses.taught_loss(KINDS["span"], own[:2], taught[:2], 2.0, "sum")
    torch.testing.assert_close(found, plain * 0.5)


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
