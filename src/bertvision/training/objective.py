"""What a model is to give for each window, and what is minimised then."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from bertvision.kinds.facts import Per
from bertvision.kinds.kind import Kind
from bertvision.kinds.spans import SQUAD2
from bertvision.shapes import Labels
from bertvision.training.config import SpanLoss
from bertvision.training.losses import (
    choice_losses,
    class_losses,
    label_losses,
    number_losses,
    span_loss,
    span_losses,
    tag_losses,
)
from bertvision.windows.batches import WindowBatch, labels_of
from bertvision.windows.window import Window


class Objective(NamedTuple):
    """A task's kind, with the number of logits per token or window, and of windows that are judged together."""

    kind: Kind
    columns: int
    group: int = 1  # the endings of a choice
    is_masked: bool = False  # tokens that can be no answer have no part in the loss of spans
    unit: float = 1.0  # in which numbers are learned (`unit_of`)

    @property
    def per(self) -> Per:
        """Whether logits are of tokens or of rows."""
        return self.kind.per

    def asks_as(self, other: "Objective") -> bool:
        """Return whether both ask for the same logits, however they learn them."""
        return (self.kind, self.columns, self.group) == (other.kind, other.columns, other.group)


SPANS = Objective(SQUAD2, 2)  # start and end


def objective_of(kind: Kind, labels: Sequence[str]) -> Objective:
    """Return what a task asks for; `labels` names its classes, labels, endings or tags."""
    return Objective(kind, kind.columns(labels), kind.group(labels))


def start_of(objective: Objective, labels: Labels) -> tuple[Tensor, float]:
    """Return the logits that fit best without looking at any text, and the spread of numbers (1 for other labels).

    That is the mean, or the logarithm of how often each class occurs, counting every class once more.
    """
    match objective.kind.name:
        case "answerable" | "class":
            counts = torch.bincount(labels, minlength=objective.columns) + 1.0
            return (counts / counts.sum()).log(), 1.0
        case "labels":
            return ((labels.sum(dim=0) + 1) / (len(labels) + 2)).logit(), 1.0
        case "number":
            # In float32 the mean of a constant is rounded, and leaves a spread.
            return labels.mean()[None], float(labels.double().std(correction=0)) or 1.0
        case _:  # tokens or windows compete: what is added to all of them changes nothing
            return torch.zeros(objective.columns), 1.0


def unit_of(objective: Objective, windows: Sequence[Window]) -> float:
    """Return the power of two below the spread of numbers; 1 for other labels.

    Adam moves a weight by about its rate in a step, whatever the labels' unit: prices in thousands are never reached,
    and thousandths overshot. A power of two, because multiplying by one rounds nothing.
    """
    if objective.kind.name != "number":
        return 1.0
    _, spread = start_of(objective, labels_of(windows))
    return math.ldexp(1.0, math.frexp(spread)[1] - 1)


def losses_of(
    objective: Objective, logits: Float[Tensor, "head batch ..."], batch: WindowBatch, how: SpanLoss
) -> Float[Tensor, " head"]:
    """Return the loss of each of many heads: logits per token [head, batch, token, column], or [head, batch, column].

    `how` start and end are joined is for spans alone.
    """
    match objective.kind.name:
        case "span":
            return span_losses(_candidates(objective, logits, batch), batch.starts, batch.ends, how, batch.weights)
        case "answerable" | "class":
            return class_losses(logits, batch.labels, batch.weights)
        case "labels":
            return label_losses(logits, batch.labels, batch.weights)
        case "number":
            return number_losses(logits, batch.labels, batch.weights) / objective.unit**2
        case "choice":
            return choice_losses(logits, batch.labels, objective.group, batch.weights)
        case "tags":
            return tag_losses(logits, batch.labels, batch.weights)
        case other:
            raise ValueError(f"no loss for the kind {other!r}; add its case here")


def loss_of(objective: Objective, logits: Float[Tensor, "batch ..."], batch: WindowBatch, how: SpanLoss) -> Tensor:
    """Return the loss of one model; that of spans may have a joint readout's columns."""
    if objective.kind.name == "span":
        return span_loss(_candidates(objective, logits, batch), batch.starts, batch.ends, how, batch.weights)
    return losses_of(objective, logits[None], batch, how)[0]


def _candidates(
    objective: Objective, logits: Float[Tensor, "*head batch token column"], batch: WindowBatch
) -> Float[Tensor, "*head batch token column"]:
    """Hide the starts and ends of tokens that can be no answer, where the objective says so (XLNet's `p_mask`).

    Without it, separators that have the first token's state share its probability of "no answer" (docs/results.md).
    """
    if not objective.is_masked:
        return logits
    is_last = batch.mask & ~F.pad(batch.mask, (0, 1))[:, 1:]  # the separator behind the context
    can_answer = batch.mask & (batch.segments == 1) & ~is_last
    can_answer[:, 0] = True  # stands for "no answer"
    bounds = logits[..., :2].masked_fill(~can_answer[..., None], torch.finfo(logits.dtype).min)
    return torch.cat([bounds, logits[..., 2:]], dim=-1)
