"""What a model is to give for each window, and what is minimised then."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from bertvision.kinds.kind import Kind, Per
from bertvision.kinds.spans import SQUAD2
from bertvision.shapes import Labels, Positions, SpanLogits
from bertvision.training.config import SpanLoss
from bertvision.windows.batches import WindowBatch, labels_of
from bertvision.windows.window import IGNORED, Window

# The longest spans that a joint readout is normalised over: as long as answers may be by default.
MAX_LENGTH = 30
PairScores = Float[Tensor, "batch token length"]  # a band: row by start, column by length - 1; decoders use it too
Bounds = Float[Tensor, "batch token"]
Teach = Callable[[WindowBatch], Tensor]  # gives a teacher's logits of a batch
Weights = Float[Tensor, " batch"] | None  # each row's share in a step's loss; None: all rows of a batch count alike


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


def row_mean(losses: Float[Tensor, "*head batch"], weights: Weights) -> Float[Tensor, "*head"]:
    """Return the mean over the rows, or their weighted sum: rows that only fill a batch have no weight."""
    return losses.mean(dim=-1) if weights is None else (losses * weights).sum(dim=-1)


def span_loss(logits: SpanLogits, starts: Positions, ends: Positions, how: SpanLoss, weights: Weights = None) -> Tensor:
    """Return the cross-entropy of start and end, summed (2020 paper) or averaged (2021 code), mean over the windows.

    A joint readout has the cross-entropy of the pair. Without its bilinear term and with all pairs that is the sum of
    the other two, so that it counts as their sum does.
    """
    if logits.shape[-1] > 2:
        return row_mean(_joint_losses(logits.float(), starts, ends), weights) * (1.0 if how == "sum" else 0.5)
    return span_losses(logits[None], starts, ends, how, weights)[0]


def span_losses(
    logits: Float[Tensor, "head batch token 2"],
    starts: Positions,
    ends: Positions,
    how: SpanLoss,
    weights: Weights = None,
) -> Float[Tensor, " head"]:
    """Return the same for many heads at once."""
    heads, batch, tokens, _ = logits.shape
    by_head = logits.float().permute(3, 0, 1, 2).reshape(2 * heads * batch, tokens)
    targets = torch.stack([starts, ends])[:, None].expand(2, heads, batch).flatten()
    losses = F.cross_entropy(by_head, targets, reduction="none").view(2, heads, batch)
    total = row_mean(losses, weights).sum(dim=0)
    return total if how == "sum" else total / 2


def class_losses(
    logits: Float[Tensor, "head batch class"], labels: Int[Tensor, " batch"], weights: Weights = None
) -> Float[Tensor, " head"]:
    """Return the cross-entropy of the right classes for many heads at once, mean over the rows."""
    heads, batch, classes = logits.shape
    losses = F.cross_entropy(logits.float().view(heads * batch, classes), labels.repeat(heads), reduction="none")
    return row_mean(losses.view(heads, batch), weights)


def label_losses(
    logits: Float[Tensor, "head batch label"], labels: Float[Tensor, "batch label"], weights: Weights = None
) -> Float[Tensor, " head"]:
    """Return the cross-entropy of each label's yes or no, mean over the labels and the rows."""
    losses = F.binary_cross_entropy_with_logits(logits.float(), labels.expand(logits.shape), reduction="none")
    return row_mean(losses.mean(dim=2), weights)


def number_losses(
    logits: Float[Tensor, "head batch 1"], numbers: Float[Tensor, " batch"], weights: Weights = None
) -> Float[Tensor, " head"]:
    """Return the squared distance from the right number, mean over the rows."""
    return row_mean((logits[..., 0].float() - numbers).square(), weights)


def choice_losses(
    logits: Float[Tensor, "head batch 1"], labels: Int[Tensor, " batch"], group: int, weights: Weights = None
) -> Float[Tensor, " head"]:
    """Return the cross-entropy of the right one among the windows of each group, mean over the groups."""
    of_groups = None if weights is None else weights[::group] * group
    return class_losses(logits.reshape(len(logits), -1, group), labels[::group], of_groups)


def cosine_loss(
    first: Float[Tensor, "pair hidden"],
    second: Float[Tensor, "pair hidden"],
    wanted: Float[Tensor, " pair"],
    weights: Weights = None,
) -> Tensor:
    """Return the squared distance of pairs' cosines from those wanted, mean over the pairs."""
    cosines = F.cosine_similarity(first.float(), second.float(), dim=-1)
    return row_mean((cosines - wanted).square(), weights)


def tag_losses(
    logits: Float[Tensor, "head batch token tag"], labels: Int[Tensor, "batch token"], weights: Weights = None
) -> Float[Tensor, " head"]:
    """Return the cross-entropy of the right tags, mean over the tokens that have one; 0 where none has.

    Rows that fill a batch have no tags; of the others all tokens count alike, as much as their rows do together.
    """
    heads, batch, tokens, tags = logits.shape
    flat = logits.float().reshape(heads * batch * tokens, tags)
    losses = F.cross_entropy(flat, labels.flatten().repeat(heads), ignore_index=IGNORED, reduction="none")
    mean = losses.view(heads, batch * tokens).sum(dim=1) / (labels != IGNORED).sum().clamp(min=1)
    return mean if weights is None else mean * weights.sum()


def _joint_losses(logits: SpanLogits, starts: Positions, ends: Positions) -> Float[Tensor, " batch"]:
    """Return the cross-entropy over the spans of up to MAX_LENGTH tokens and (0, 0), which stands for no answer."""
    band = pair_scores(logits[..., 0], logits[..., 1], MAX_LENGTH) + bilinear_scores(logits[..., 2:], MAX_LENGTH)
    band[:, 0, 1:] = -torch.inf  # the first token is no part of any answer
    rows = torch.arange(len(logits), device=logits.device)
    first, last = logits[rows, starts], logits[rows, ends]
    rank = (logits.shape[-1] - 2) // 2
    right = first[:, 0] + last[:, 1] + (first[:, 2 : 2 + rank] * last[:, 2 + rank :]).sum(dim=1)
    # A longer answer is one more pair: what is not among the choices would have an infinite loss.
    is_longer = ends - starts >= MAX_LENGTH
    choices = torch.cat([band.flatten(start_dim=1), right.masked_fill(~is_longer, -torch.inf)[:, None]], dim=1)
    return choices.logsumexp(dim=1) - right


def pair_scores(starts: Bounds, ends: Bounds, max_length: int) -> PairScores:
    """Add up the start and end logits of all spans of at most so many tokens; -inf beyond the row."""
    return starts[..., None] + F.pad(ends, (0, max_length - 1), value=-torch.inf).unfold(1, max_length, 1)


def bilinear_scores(factors: SpanLogits, max_length: int) -> PairScores:
    """Multiply u of the start by v of the end for the same spans: what a joint readout adds to their score.

    Term by term in float32, not as a matrix product, which a GPU may round to 10 bits.
    """
    of_start, of_end = factors.chunk(2, dim=-1)
    reach = F.pad(of_end, (0, 0, 0, max_length - 1)).unfold(1, max_length, 1)  # [batch, token, rank, length]
    return (of_start[..., None] * reach).sum(dim=2)


def taught_loss(
    kind: Kind,
    logits: Float[Tensor, "batch ..."],
    taught: Float[Tensor, "batch ..."],
    temperature: float,
    how: SpanLoss,
    weights: Weights = None,
) -> Tensor:
    """Return the cross-entropy of a teacher's probabilities (of tokens, or of classes), mean over the windows.

    Times the squared temperature, so that gradients keep their size. `how` joins start and end as `span_loss` does.
    """
    is_of_tokens = kind.softmax == "tokens"
    over = 1 if is_of_tokens else -1
    wanted = (taught.float() / temperature).softmax(dim=over)
    each = F.log_softmax(logits.float() / temperature, dim=over) * wanted
    total = -row_mean(each.flatten(start_dim=1).sum(dim=1), weights) * temperature**2
    return total / 2 if is_of_tokens and how == "mean" else total
