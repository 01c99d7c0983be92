"""The catalog with sizes, for an encoder or for a shape."""

from typing import NamedTuple

from bertvision.encoder.load import load_encoder
from bertvision.heads.catalog import CATALOG, HeadConfig, build_head
from bertvision.heads.head import count_parameters
from bertvision.shapes import StackShape

BERT_LARGE = StackShape(25, 1024)
# bert-large-uncased with its pooler: the denominator of every percentage in the papers.
BERT_LARGE_PARAMETERS = 335_141_888


class HeadSize(NamedTuple):
    """One head of the catalog at a shape."""

    name: str
    kind: str
    total: int
    trainable: int
    share: float | None  # percent of the encoder; None where only a shape is known
    about: str


class Sizes(NamedTuple):
    """The catalog at a shape."""

    title: str
    heads: list[HeadSize]


def list_heads(encoder: str | None, layers: int, hidden: int) -> Sizes:
    """Count every head's parameters for an encoder, or for a number of states and their width."""
    shape, whole, title = StackShape(layers, hidden), None, f"{layers} states of {hidden}"
    if encoder is not None:
        loaded = load_encoder(encoder)
        shape, whole = loaded.shape, loaded.num_parameters
        title = f"{encoder}: {shape.layers} states of {shape.hidden}, {whole:,} parameters"
    elif shape == BERT_LARGE:
        whole, title = BERT_LARGE_PARAMETERS, f"BERT-large: {title}, {BERT_LARGE_PARAMETERS:,} parameters"
    return Sizes(title, [_size(name, shape, whole) for name in CATALOG])


def _size(name: str, shape: StackShape, whole: int | None) -> HeadSize:
    entry = CATALOG[name]
    count = count_parameters(build_head(HeadConfig.model_validate(name), shape))
    share = None if whole is None else 100 * count.trainable / whole
    return HeadSize(name, entry.kind, count.total, count.trainable, share, entry.about)
