"""Encoder: a batch of windows -> all layers' hidden states."""

import torch
from torch import nn

from bertvision.encoder.load import Encoder
from bertvision.features.batches import WindowBatch
from bertvision.shapes import LayerStates
from bertvision.training.device import Compute


def encode(encoder: Encoder, batch: WindowBatch, *, last_only: bool = False) -> LayerStates:
    """Run the encoder and stack all layers' states (layer 0 is the embedding output), or give the last one alone."""
    types = {"token_type_ids": batch.segments} if encoder.takes_segments else {}
    output = encoder.model(
        input_ids=batch.ids, attention_mask=batch.mask.long(), output_hidden_states=not last_only, **types
    )
    last: torch.Tensor = output.last_hidden_state
    if last_only:
        return last.unsqueeze(1)
    # Some encoders end with a norm that their list of states does not show: the last state is the encoder's output.
    return torch.stack([*output.hidden_states[:-1], last], dim=1)


def freeze(encoder: Encoder, compute: Compute) -> Encoder:
    """Put an encoder on its device for good: no gradients, no dropout, weights in the device's number format."""
    encoder.model.requires_grad_(False).train(False)
    nn.Module.to(encoder.model, device=compute.device, dtype=compute.dtype)  # transformers' own `to` has no types
    return encoder
