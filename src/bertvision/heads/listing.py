"""The catalog with sizes, for an encoder or for a shape."""

from itertools import groupby
from typing import NamedTuple

from bertvision.heads.build import count_head
from bertvision.heads.catalog import CATALOG, Entry, reads_one_state
from bertvision.heads.config import HeadConfig
from bertvision.kinds.classes import CLASSES
from bertvision.kinds.tags import TAGS
from bertvision.shapes import StackShape
from bertvision.tables import Cell, Column, Number, Table
from bertvision.training.objective import SPANS, Objective

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
    return Sizes(title, [_size(name, shape, of_first_token, whole) for name in CATALOG])


def _size(name: str, shape: StackShape, of_first_token: StackShape, whole: int) -> HeadSize:
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
