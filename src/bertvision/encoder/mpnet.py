"""MPNet's attention by torch's fused kernel; transformers computes it step by step, with every pair of tokens kept."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from bertvision.shapes import TokenFeatures

HIDDEN = torch.finfo(torch.bfloat16).min  # finite in every number format, so that a row of padding alone is no NaN


class FusedAttention(MPNetSelfAttention):
    """The same weights and the same numbers."""

    def forward(
        self,
        hidden_states: TokenFeatures,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,  # noqa: FBT001, FBT002 (transformers' signature)
        **others: Any,  # noqa: ANN401
    ) -> tuple[Tensor, ...]:
        """Return the attention's output; its weights are computed by transformers' own code where they are wanted."""
        if output_attentions:
            outputs: tuple[Tensor, ...] = super().forward(  # type: ignore[no-untyped-call]
                hidden_states, attention_mask, position_bias, True, **others
            )
            return outputs
        heads = (*hidden_states.shape[:-1], self.num_attention_heads, self.attention_head_size)
        query, key, value = (each(hidden_states).view(heads).transpose(1, 2) for each in (self.q, self.k, self.v))
        biases = [bias for bias in (position_bias, attention_mask) if bias is not None]
        mask = sum(biases[1:], start=biases[0]).to(query.dtype) if biases else None
        dropout = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return (self.o(mixed.transpose(1, 2).flatten(start_dim=2)),)


class OneBias(MPNetEncoder):
    """Adds the bias of relative positions to all rows of a batch without copying it for each, on the device itself."""

    def compute_position_bias(self, x: TokenFeatures, position_ids: None = None, num_buckets: int = 32) -> Tensor:
        """Return the bias of every pair of positions for every head."""
        assert position_ids is None
        positions = torch.arange(x.shape[1], device=x.device)
        distances = positions[None] - positions[:, None]
        buckets = self.relative_position_bucket(distances, num_buckets=num_buckets)  # type: ignore[no-untyped-call]
        bias: Tensor = self.relative_attention_bias(buckets)
        return bias.permute(2, 0, 1)[None].contiguous()  # the fused kernel takes no other layout


def fuse_attention(model: PreTrainedModel) -> None:
    """Let an MPNet compute its attention by the fused kernel; other encoders stay as they are."""
    model.register_forward_pre_hook(_make_mask, with_kwargs=True)
    for module in model.modules():
        if type(module) is MPNetSelfAttention:
            module.__class__ = FusedAttention
        elif type(module) is MPNetEncoder:
            module.__class__ = OneBias


def _make_mask(
    _model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn a mask of tokens into what is added to scores: transformers' own way copies a number to the device first."""
    mask = keywords.get("attention_mask")
    if mask is None or mask.ndim != 2:
        return arguments, keywords
    added = torch.zeros(mask.shape, device=mask.device).masked_fill(mask == 0, HIDDEN)
    return arguments, {**keywords, "attention_mask": added[:, None, None]}
