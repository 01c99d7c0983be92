"""A recurrent readout for tags: what BERT's paper puts on frozen features (Devlin et al. 2019, table 7)."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bertvision.heads.readouts import glorot_linear
from bertvision.shapes import LayerStates, TagLogits, TokenFeatures, TokenMask

DEFAULT_WIDTH = 384  # of each direction: 768 together, as in the paper


class BiLstmReadout(nn.Module):
    """Read the tokens in both directions, twice, and score each as every tag."""

    def __init__(self, features: int, width: int, tags: int) -> None:
        super().__init__()
        self.columns = tags
        self.lstm = nn.LSTM(features, width, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = glorot_linear(2 * width, tags)

    def forward(self, features: TokenFeatures, states: LayerStates, mask: TokenMask) -> TagLogits:
        """Give a logit per tag; rows are packed, so that reading backwards begins at their last real token."""
        with torch.autocast(features.device.type, enabled=False):
            lengths = mask.sum(dim=1).cpu()
            rows = pack_padded_sequence(features.float(), lengths, batch_first=True, enforce_sorted=False)
            read, _ = pad_packed_sequence(self.lstm(rows)[0], batch_first=True, total_length=mask.shape[1])
            logits: TagLogits = self.linear(read)
        return logits
