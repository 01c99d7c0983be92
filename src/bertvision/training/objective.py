"""What a model is to give for each window, and what is minimised then."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

from bertvision.features.batches import WindowBatch
from bertvision.tasks.task import Kind
from bertvision.training.losses import (
    SpanLoss,
    choice_losses,
    class_losses,
    label_losses,
    number_losses,
    span_loss,
    span_losses,
    tag_losses,
)

Per = Literal["token", "row"]


class Objective(NamedTuple):
    """A task's kind, with the number of logits per token or window, and of windows that are judged together."""

    kind: Kind
    columns: int
    group: int = 1  # the endings of a choice

    @property
    def per(self) -> Per:
        """Tell whether logits are of tokens or of rows."""
        return per_of(self.kind)


SPANS = Objective("span", 2)  # start and end


def objective_of(kind: Kind, labels: Sequence[str]) -> Objective:
    """Tell what a task asks for; `labels` names its classes, labels, endings or tags."""
    match kind:
        case "span":
            return SPANS
        case "number":
            return Objective(kind, 1)
        case "choice":
            return Objective(kind, 1, group=len(labels))
        case _:
            return Objective(kind, len(labels))


def per_of(kind: Kind) -> Per:
    """Tell whether a kind of task has logits for each token or for each row."""
    return "token" if kind in ("span", "tags") else "row"


def losses_of(
    objective: Objective, logits: Float[Tensor, "head batch ..."], batch: WindowBatch, how: SpanLoss
) -> Float[Tensor, " head"]:
    """Give the loss of each of many heads: logits per token [head, batch, token, column], or [head, batch, column].

    `how` start and end are joined is for spans alone.
    """
    match objective.kind:
        case "span":
            return span_losses(logits, batch.starts, batch.ends, how)
        case "answerable" | "class":
            return class_losses(logits, batch.labels)
        case "labels":
            return label_losses(logits, batch.labels)
        case "number":
            return number_losses(logits, batch.labels)
        case "choice":
            return choice_losses(logits, batch.labels, objective.group)
        case "tags":
            return tag_losses(logits, batch.labels)


def loss_of(objective: Objective, logits: Float[Tensor, "batch ..."], batch: WindowBatch, how: SpanLoss) -> Tensor:
    """Give the loss of one model; that of spans may have a joint readout's columns."""
    if objective.kind == "span":
        return span_loss(logits, batch.starts, batch.ends, how)
    return losses_of(objective, logits[None], batch, how)[0]
