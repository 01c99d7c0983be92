"""Features -> logits, one readout per kind of task.

Of spans there is a second one, which scores every pair of start and end, with a say of all layers in whether there is
an answer, and a control that trains one or two numbers. Of every kind there is a recurrent one: what BERT's paper puts
on frozen features (Devlin et al. 2019, table 7), and on an encoder that reads from left to right (table 5).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertvision.shapes import ClassLogits, LayerStates, SpanLogits, StackShape, TagLogits, TokenFeatures, TokenMask

RowFeatures = Float[Tensor, "batch place feature"]  # of every token, or one row for all of them
# Factors start at a tenth of Glorot's size: with rank 8 and features near one, a pair's product is then 0.06 or so.
FACTOR_START = 0.1
# Adam moves a weight by about its rate in a step. Null odds lie tens apart, and 700 steps at 1e-3 would reach 0.7.
OFFSET_UNIT = 30.0
BILSTM_WIDTH = 384  # of each direction: 768 together, as in the paper


class SpanReadout(nn.Module):
    """Score every token as an answer's start and end."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.columns = 2
        self.linear = glorot_linear(features, 2)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> SpanLogits:
        """Return start and end logits; padding gets the lowest number, so that it is never chosen and costs no loss."""
        return hide_padding(in_float32(self.linear, features), mask)


class TagReadout(nn.Module):
    """Score every token as each tag."""

    def __init__(self, features: int, tags: int) -> None:
        super().__init__()
        self.columns = tags
        self.linear = glorot_linear(features, tags)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> TagLogits:
        """Return a logit per tag; padding has some too, which no loss and no prediction looks at."""
        return in_float32(self.linear, features)


class ClassReadout(nn.Module):
    """Score every row from the features of its one state, or of its first token: classes, labels, or one number."""

    def __init__(self, features: int, classes: int, unit: float = 1.0) -> None:
        super().__init__()
        self.columns, self.unit = classes, unit
        self.linear = glorot_linear(features, classes)

    def forward(self, features: RowFeatures, states: LayerStates, mask: TokenMask) -> ClassLogits:
        """Return a logit per class."""
        return self.unit * in_float32(self.linear, features[:, 0])


def glorot_linear(features: int, outputs: int) -> nn.Linear:
    """Build the papers' output layer: Glorot-uniform, bias 0."""
    linear = nn.Linear(features, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def in_float32(linear: nn.Linear, features: Tensor) -> Tensor:
    """Apply an output layer in float32 even under autocast.

    bf16 has eight bits, which is 0.03 at a logit of 6, too coarse for thresholds.
    """
    with torch.autocast(features.device.type, enabled=False):
        logits: Tensor = linear(features.float())
    return logits


def hide_padding(logits: Float[Tensor, "*head batch token score"], mask: TokenMask) -> Tensor:
    """Set padding to the lowest number, in one head's logits or in those of many."""
    return logits.masked_fill(~mask[..., None], torch.finfo(logits.dtype).min)


class JointReadout(nn.Module):
    """Score a span (i, j) as start_i + end_j + u_i . v_j, and "no answer" by the first token's states of all layers.

    The columns are start, end, u and v; `training.pair_scores` adds them up. No answer is the pair (0, 0), so what
    the layers say of it joins the start of token 0.
    """

    def __init__(self, features: int, shape: StackShape, rank: int) -> None:
        super().__init__()
        self.columns = 2 + 2 * rank
        self.linear = glorot_linear(features, self.columns)
        with torch.no_grad():
            self.linear.weight[2:] *= FACTOR_START
        self.layer_weights = nn.Parameter(torch.zeros(shape.layers))
        self.no_answer = glorot_linear(shape.hidden, 1)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> SpanLogits:
        """Return start, end, u and v; padding has the lowest start and end, and factors of 0."""
        columns = in_float32(self.linear, features)
        shares = self.layer_weights.softmax(dim=0)
        first = (shares[:, None] * states[:, :, 0].float()).sum(dim=1)
        columns[:, 0, 0] += in_float32(self.no_answer, first)[:, 0]
        bounds, factors = columns[..., :2], columns[..., 2:]
        return torch.cat([hide_padding(bounds, mask), factors.masked_fill(~mask[..., None], 0.0)], dim=-1)


class NullOffsetReadout(nn.Module):
    """Score spans as another output layer does, which stays as it is, and learn how much "no answer" is worth.

    What is trained is one number, which is added to the start and the end of the first token, and with `scaled` the
    logarithm of a factor on all logits. `take` brings the output layer.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, features: int, *, scaled: bool = False) -> None:
        super().__init__()
        self.columns = 2
        start = glorot_linear(features, 2)
        self.register_buffer("weight", start.weight.detach().clone())
        self.register_buffer("bias", start.bias.detach().clone())
        self.offset = nn.Parameter(torch.zeros(()))
        self.log_scale = nn.Parameter(torch.zeros(())) if scaled else None

    def take(self, output: nn.Linear) -> None:
        """Score spans as this layer does from now on."""
        self.weight.copy_(output.weight.detach())
        self.bias.copy_(output.bias.detach())

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> SpanLogits:
        """Return start and end logits; padding gets the lowest number."""
        with torch.autocast(features.device.type, enabled=False):
            logits = nn.functional.linear(features.float(), self.weight, self.bias)
            logits = logits if self.log_scale is None else logits * self.log_scale.exp()
            is_first = (torch.arange(logits.shape[1], device=logits.device) == 0)[:, None]
            logits = logits + is_first * (OFFSET_UNIT * self.offset)
        return hide_padding(logits, mask)


class BiLstmReadout(nn.Module):
    """Read the tokens in both directions, twice, and score each as every tag, or as an answer's start and end."""

    def __init__(self, features: int, width: int, tags: int, *, spans: bool = False) -> None:
        super().__init__()
        self.columns, self._spans = tags, spans
        self.lstm = both_ways(features, width)
        self.linear = glorot_linear(2 * width, tags)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> TagLogits:
        """Return a logit per column; that of padding is the lowest number where spans are scored."""
        logits = in_float32(self.linear, read_both_ways(self.lstm, features, mask))
        return hide_padding(logits, mask) if self._spans else logits


class BiLstmRowReadout(nn.Module):
    """Read the tokens in both directions, twice, and score the row by what either reading ends with."""

    def __init__(self, features: int, width: int, classes: int, unit: float = 1.0) -> None:
        super().__init__()
        self.columns, self.unit = classes, unit
        self.lstm = both_ways(features, width)
        self.linear = glorot_linear(2 * width, classes)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> ClassLogits:
        """Return a logit per class."""
        read, width = read_both_ways(self.lstm, features, mask), self.lstm.hidden_size
        last = mask.sum(dim=1) - 1
        forth = read[torch.arange(len(read), device=read.device), last, :width]
        return self.unit * in_float32(self.linear, torch.cat([forth, read[:, 0, width:]], dim=-1))


def both_ways(features: int, width: int) -> nn.LSTM:
    """Build two layers that read in both directions."""
    return nn.LSTM(features, width, num_layers=2, bidirectional=True, batch_first=True)


def read_both_ways(lstm: nn.LSTM, features: TokenFeatures, mask: TokenMask) -> Float[Tensor, "batch token read"]:
    """Read in float32; rows are packed, so that reading backwards begins at their last real token."""
    with torch.autocast(features.device.type, enabled=False):
        lengths = mask.sum(dim=1).cpu()
        rows = pack_padded_sequence(features.float(), lengths, batch_first=True, enforce_sorted=False)
        read, _ = pad_packed_sequence(lstm(rows)[0], batch_first=True, total_length=mask.shape[1])
    return read
