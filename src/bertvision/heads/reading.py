"""What one head sees of an encoder when no other head shares the pass."""

from functools import partial

from bertvision.encoder.encode import StateBatch, encode, read_states
from bertvision.encoder.finetune import Read
from bertvision.encoder.load import Encoder
from bertvision.heads.build import HeadConfig, reads_last_alone
from bertvision.heads.head import Head
from bertvision.windows.batches import WindowBatch


def reading_of(config: HeadConfig, head: Head) -> Read:
    """Give the cheapest way to run an encoder for a head: a head of the last state needs no other gathered."""
    return _read_last if sees_last(config, head) else partial(read_states, cls=head.cls)


def sees_last(config: HeadConfig, head: Head) -> bool:
    """Tell whether a head is given the encoder's output and no state from below it."""
    return reads_last_alone(config) and not head.cls and head.layers is None


def _read_last(encoder: Encoder, batch: WindowBatch) -> StateBatch:
    return StateBatch(encode(encoder, batch, last_only=True), batch)
