"""A head's config -> the head that it describes; and the catalog with sizes, for an encoder or for a shape."""

from itertools import groupby
from typing import NamedTuple

import torch
from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.catalog import CATALOG, Entry, kinds_of, reads_one_state, serves
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Count, Head, count_parameters
from bertvision.heads.poolers.build import build_pooler, check_own
from bertvision.heads.poolers.config import AnyPooler, OwnPoolerConfig
from bertvision.heads.readouts import (
    BILSTM_WIDTH,
    BiLstmReadout,
    BiLstmRowReadout,
    ClassReadout,
    JointReadout,
    NullOffsetReadout,
    SpanReadout,
    TagReadout,
)
from bertvision.kinds.labels import CLASSES
from bertvision.kinds.tags import TAGS
from bertvision.model_config import Pooling
from bertvision.shapes import StackShape
from bertvision.tables import Cell, Column, Number, Table
from bertvision.training.objective import SPANS, Objective


def pooling_of(config: HeadConfig, objective: Objective, pooling: Pooling = "first") -> Pooling | None:
    """Return the `pooling` of a head that reads one state per layer (`encode_pooled`); None: it reads all tokens."""
    return pooling if objective.per == "row" and reads_one_state(config.pooler, config.readout) else None


def build_head(config: HeadConfig, shape: StackShape, objective: Objective = SPANS, pooling: Pooling = "first") -> Head:
    """Turn a config into a head that gives what an objective asks for; `pooling` is that of one state per layer."""
    if not serves(config.pooler, config.readout, objective.kind):
        kinds = kinds_of(config.pooler, config.readout)
        raise SettingsError(
            f"head {config.name!r} ({config.pooler.kind}, {config.readout} readout) is for tasks of the kind "
            f"{', '.join(kinds) or '(none)'}, and this one is of the kind {objective.kind}; choose another head"
        )
    chosen = _own_places(config, shape)
    own = shape if chosen is None else StackShape(len(chosen), shape.hidden)
    pooler, features = build_pooler(_sized(config, shape, objective), own)
    head = Head(pooler, _build_readout(config, own, features, objective), config.dropout, chosen)
    head.pooling = pooling_of(config, objective, pooling)
    if isinstance(config.pooler, OwnPoolerConfig):
        check_own(pooler, own, features, tokens=3 if head.pooling is None else 1)
    return head


def count_head(config: HeadConfig, shape: StackShape, objective: Objective = SPANS) -> Count:
    """Count a head's parameters without making it."""
    with torch.device("meta"):  # shapes without memory
        return count_parameters(build_head(config, shape, objective))


def _own_places(config: HeadConfig, shape: StackShape) -> tuple[int, ...] | None:
    """Return which of the states that a head is given it reads, from 0 on; None: all."""
    if config.layers is None:
        return None
    if odd := [layer for layer in config.layers if not -shape.layers <= layer < shape.layers]:
        raise SettingsError(
            f"head {config.name!r}: layers names {odd[0]}, and there are the states 0 to {shape.layers - 1}; "
            "leave it out"
        )
    return tuple(layer % shape.layers for layer in config.layers)


def _build_readout(config: HeadConfig, shape: StackShape, features: int, objective: Objective) -> nn.Module:
    width = config.readout_width or BILSTM_WIDTH
    if objective.per == "row":
        columns, unit = objective.columns, objective.unit
        if config.readout == "bilstm":
            return BiLstmRowReadout(features, width, columns, unit)
        return ClassReadout(features, columns, unit)
    over_tokens = objective.kind.softmax == "tokens"
    match config.readout:
        case "joint":
            return JointReadout(features, shape, config.rank)
        case "bilstm":
            return BiLstmReadout(features, width, objective.columns, spans=over_tokens)
        case "null_offset" | "null_offset_scale":
            return NullOffsetReadout(features, scaled=config.readout == "null_offset_scale")
        case "linear":
            return SpanReadout(features) if over_tokens else TagReadout(features, objective.columns)


def _sized(config: HeadConfig, shape: StackShape, objective: Objective) -> AnyPooler:
    """Return the pooler's config with the width whose size comes nearest to the head that sets the budget."""
    if config.same_size_as is None:
        return config.pooler
    budget = _size(HeadConfig.model_validate(config.same_size_as), shape, objective)

    def sized(width: int) -> HeadConfig:
        pooler = config.pooler.model_copy(update={"width": width})
        return config.model_copy(update={"pooler": pooler, "same_size_as": None})

    below, above = 1, 2
    while _size(sized(above), shape, objective) < budget:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if _size(sized(middle), shape, objective) < budget else (below, middle)
    return min(
        (sized(width) for width in (below, above)), key=lambda each: abs(_size(each, shape, objective) - budget)
    ).pooler


def _size(config: HeadConfig, shape: StackShape, objective: Objective) -> int:
    return count_head(config, shape, objective).trainable


BERT_LARGE = StackShape(25, 1024)
# bert-large-uncased with its pooler: the denominator of every percentage in the papers.
BERT_LARGE_PARAMETERS = 335_141_888


class HeadSize(NamedTuple):
    """One head of the catalog at a shape."""

    name: str
    kind: str
    origin: str  # the papers, a reconstruction, ...
    scores: str  # spans, tags (of tokens), rows, or several of these
    kinds: tuple[str, ...]  # of tasks that it serves
    total: int  # running statistics included
    trainable: int
    percent_of_encoder: float  # total, as the papers have it
    about: str


class Sizes(NamedTuple):
    """The catalog at a shape."""

    title: str
    heads: list[HeadSize]

    def as_table(self) -> Table:
        """Lay out the sizes, under headings of where heads come from."""
        rows: list[tuple[Cell, ...]] = []
        for origin, heads in groupby(self.heads, key=lambda head: head.origin):
            rows += [(origin,), *map(_cells, heads)]
        return Table("", ("head", Column("scores", "left"), "trained", "total", "%"), tuple(rows))


def list_heads(encoder: str | None = None) -> Sizes:
    """Count every head's parameters for an encoder, or at BERT-large's shape."""
    shape = BERT_LARGE
    of_first_token = StackShape(shape.layers + 1, shape.hidden)  # the pooled state is one more
    whole = BERT_LARGE_PARAMETERS
    title = f"BERT-large: {shape.layers} states of {shape.hidden}, {whole:,} parameters"
    if encoder is not None:
        from bertvision.encoder.encode import shape_of_states  # transformers, which a shape does without
        from bertvision.encoder.load import load_encoder

        loaded = load_encoder(encoder)
        shape, of_first_token, whole = loaded.shape, shape_of_states(loaded, pooling="first"), loaded.num_parameters
        title = f"{encoder}: {shape.layers} states of {shape.hidden}, {whole:,} parameters"
    return Sizes(title, [_head_size(name, shape, of_first_token, whole) for name in CATALOG])


def _head_size(name: str, shape: StackShape, of_first_token: StackShape, whole: int) -> HeadSize:
    entry = CATALOG[name]
    objective = _counted(entry)
    # Most heads for rows read one state per layer; the first token's begin with the pooled one.
    reads_first = objective.per == "row" and reads_one_state(entry.pooler, entry.readout)
    count = count_head(HeadConfig.model_validate(name), of_first_token if reads_first else shape, objective)
    share = 100 * count.total / whole
    scores, total, trainable = _scores(entry.kinds), count.total, count.trainable
    return HeadSize(name, entry.kind, entry.origin, scores, entry.kinds, total, trainable, share, entry.about)


def _cells(head: HeadSize) -> tuple[Cell, ...]:
    return (
        head.name,
        head.scores,
        Number(head.trainable, ","),
        Number(head.total, ","),
        Number(head.percent_of_encoder, ".3f"),
    )


def _counted(entry: Entry) -> Objective:
    """Return what a head is counted for: spans, or else CoNLL's nine tags (as BERT's BiLSTM), or else two classes."""
    if SPANS.kind.name in entry.kinds and entry.readout != "bilstm":
        return SPANS
    return Objective(TAGS, 9) if TAGS.name in entry.kinds else Objective(CLASSES, 2)


def _scores(kinds: tuple[str, ...]) -> str:
    """Name what a head scores; all kinds of rows have the same readout."""
    named: dict[str, str] = {"span": "spans", "tags": "tags", "class": "rows"}
    return ", ".join(name for each, name in named.items() if each in kinds)
