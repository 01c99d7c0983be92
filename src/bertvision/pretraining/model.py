"""BERT with what pre-training predicts, batches of rows for it, and its losses."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertLMHeadModel, PreTrainedModel

from bertvision.encoder.folder import build_encoder
from bertvision.encoder.load import load_encoder, quiet_transformers
from bertvision.encoder.packed import run_on_tokens
from bertvision.encoder.tuning.blocks import INSERTED
from bertvision.errors import EncoderError, SettingsError, told_as
from bertvision.pretraining.config import ObjectiveName, PretrainConfig, StageConfig
from bertvision.pretraining.corpus import Vocabulary
from bertvision.pretraining.masking import PredictedTokens
from bertvision.pretraining.rows import TextRows
from bertvision.settings import validate
from bertvision.shapes import Segments, TokenIds, TokenMask
from bertvision.training.device import Compute
from bertvision.training.loop import seed_for
from bertvision.windows.packing import BatchShape, Packing, filled, moved, pack_tokens, places_in

# transformers' classes: with both predictions and a pooler; with that of words alone, and of the next word.
CLASSES: dict[ObjectiveName, type[PreTrainedModel]] = {
    "mlm_nsp": BertForPreTraining,
    "mlm": BertForMaskedLM,
    "ltr": BertLMHeadModel,
}
PREDICTIONS_AT_ONCE = 16_384  # whose scores of all words are in memory together: 2 GB in float32


class PretrainingModel(nn.Module):
    """The encoder and the layers that predict from it; scores of words are products with their embeddings.

    Every weight is here once, so that it can be saved; `whole` is the same as transformers has it.
    """

    def __init__(self, whole: PreTrainedModel) -> None:
        super().__init__()
        layers: Any = whole.cls
        self.bert: Any = whole.bert
        self.transform: Any = layers.predictions.transform
        self.bias: nn.Parameter = layers.predictions.bias
        self.follows: Any = getattr(layers, "seq_relationship", None)  # None: next sentences are not predicted
        self._whole = [whole]  # in a list: no part of the weights a second time

    @property
    def whole(self) -> PreTrainedModel:
        """Return transformers' model of the same weights."""
        return self._whole[0]

    def word_losses(self, states: Float[Tensor, "place hidden"], labels: Int[Tensor, " place"]) -> Tensor:
        """Return the loss of every prediction of a word; scores are made anew for gradients where they are many."""
        size = PREDICTIONS_AT_ONCE
        parts = [(states[at : at + size], labels[at : at + size]) for at in range(0, len(states), size)]
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._word_losses(*part) for part in parts])
        again: Callable[..., Any] = checkpoint
        each = [again(self._word_losses, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
        return torch.cat(each)

    def _word_losses(self, states: Tensor, labels: Tensor) -> Tensor:
        scores = F.linear(self.transform(states), self.bert.embeddings.word_embeddings.weight, self.bias)
        return F.cross_entropy(scores.float(), labels, reduction="none")

    def next_scores(self, states: Float[Tensor, "row hidden"]) -> Float[Tensor, "row 2"]:
        """Score rows, by the states of their first tokens, as pairs that follow each other or do not."""
        scores: Tensor = self.follows(self.bert.pooler(states[:, None]))
        return scores.float()


class PaddedTokens(NamedTuple):
    """Rows side by side, padded to the longest."""

    ids: TokenIds
    mask: TokenMask
    segments: Segments


class PretrainingBatch(NamedTuple):
    """Rows, what is predicted from their tokens, and what each prediction counts in the loss of a step."""

    inputs: Packing | PaddedTokens
    places: Int[Tensor, " place"]  # among all tokens: the states that predict words
    labels: Int[Tensor, " place"]
    weights: Float[Tensor, " place"]
    firsts: Int[Tensor, " row"]  # the places of rows' first tokens
    follows: Int[Tensor, " row"]
    row_weights: Float[Tensor, " row"]
    width: int  # no row is longer
    lengths: tuple[int, ...]  # of the rows, with those that other processes have of the same batch
    num_predicted: int  # of them

    @property
    def size(self) -> int:
        """Count the rows."""
        return len(self.lengths)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Name the shape that all steps of a stage have; None: it may come once."""
        if isinstance(self.inputs, PaddedTokens):
            return None
        return (*self.inputs.shape, len(self.places), len(self.firsts), self.width)

    def share_of(self, num_examples: int) -> float:
        """Return 1: the weights hold the batch's share in the loss of a step already."""
        return 1.0

    def tensors(self) -> list[Tensor]:
        """List all tensors."""
        return [*self.inputs, *self[1:7]]

    def weightless(self) -> "PretrainingBatch":
        """Return the same rows, which count nothing in the loss."""
        zeros = torch.zeros_like
        return self._replace(weights=zeros(self.weights), row_weights=zeros(self.row_weights))

    def clone(self) -> "PretrainingBatch":
        """Return a copy in memory of its own."""
        return self._each(Tensor.clone)

    def to(self, device: torch.device) -> "PretrainingBatch":
        """Move the tensors to a device without making the host wait."""
        return self._each(lambda tensor: moved(tensor, device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "PretrainingBatch":
        places, labels, weights, firsts, follows, row_weights = map(change, self[1:7])
        return self._replace(
            inputs=type(self.inputs)(*map(change, self.inputs)),
            places=places,
            labels=labels,
            weights=weights,
            firsts=firsts,
            follows=follows,
            row_weights=row_weights,
        )


class BatchRoom(NamedTuple):
    """What every batch of a stage has room for; the numbers of a shape that a GPU replays."""

    tokens: int
    width: int
    rows: int
    predicted: int


def room_for(config: PretrainConfig, stage: StageConfig, parts: int = 1) -> BatchRoom:
    """Return the room of a stage's batches: for twice as many rows as would fill it, and for their predictions.

    Of batches that several processes share, it is that of each part: `deal` makes none longer by more than a row.
    """
    tokens = max(stage.batch_tokens // config.accumulate, stage.length)
    rows = 2 * math.ceil(tokens / stage.length)
    if parts > 1:
        tokens, rows = math.ceil(tokens / parts) + stage.length, math.ceil(rows / parts)
    predicted = tokens if config.objective == "ltr" else math.ceil(config.masking.fraction * tokens) + rows
    return BatchRoom(tokens, stage.length, rows, predicted)


def with_size_of_encoder(config: PretrainConfig) -> PretrainConfig:
    """Return the settings with the size and vocabulary of the encoder that they go on from, if any."""
    if config.encoder is None:
        return config
    encoder = load_encoder(config.encoder).model
    about: Any = encoder.config
    if about.model_type != "bert":
        raise SettingsError(
            f"encoder: {config.encoder!r} is of the kind {about.model_type}; give one of BERT's kind, such as `default`"
        )
    if any(INSERTED.search(name) for name, _ in encoder.named_parameters()):
        raise SettingsError(
            f"encoder: {config.encoder!r} has adapters, LoRA or parasites in it, which would be lost; give one without"
        )
    size = {
        "layers": about.num_hidden_layers,
        "hidden": about.hidden_size,
        "heads": about.num_attention_heads,
        "feed_forward": about.intermediate_size,
        "positions": about.max_position_embeddings,
    }
    settings = {**config.model_dump(), "size": size, "vocabulary": {"encoder": config.encoder}}
    return validate(PretrainConfig, settings, f"encoder {config.encoder}")


def build_model(config: PretrainConfig, vocabulary: Vocabulary) -> PretrainingModel:
    """Build the encoder: one of the size that is asked for, or the one to go on from; what it lacks is random."""
    size, kind = config.size, CLASSES[config.objective]
    more: dict[str, Any] = {
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "is_decoder": config.objective == "ltr",  # no token sees those behind it, in fine-tuning neither
        "use_cache": False,
    }
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(config.seed, "pretraining", "weights"))
        if config.encoder is not None:
            return PretrainingModel(_load(config.encoder, kind, more))
        about = BertConfig(
            vocab_size=vocabulary.size,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.feed_forward or 4 * size.hidden,
            max_position_embeddings=size.positions,
            pad_token_id=vocabulary.id_of("[PAD]"),
            **more,
        )
        return PretrainingModel(kind(about))


def _load(name: str, kind: type[PreTrainedModel], changes: Mapping[str, Any]) -> PreTrainedModel:
    """Load an encoder with the layers that predict from it, where its checkpoint has them."""
    encoder: Any = load_encoder(name).model  # as changes and adapters of its folder leave it
    with told_as(EncoderError, f"encoder {name!r}: its layers that predict cannot be loaded"):
        whole, _ = build_encoder(Path(encoder.config.name_or_path), kind, changes)
    whole.base_model.load_state_dict(encoder.state_dict(), strict=False)  # either may lack the pooler
    return whole


def make_batch(
    rows: TextRows, predicted: PredictedTokens, room: BatchRoom, pad_id: int, in_step: tuple[int, int], *, packed: bool
) -> PretrainingBatch:
    """Turn rows into tensors, packed and filled up to the room, or padded; a step has so many predictions and rows."""
    lengths = tuple(rows.lengths.tolist())
    shape = BatchShape(room.rows, room.width, room.tokens)
    width = room.width if packed else int(rows.lengths.max())
    places = np.arange(len(rows.ids)) if packed else places_in(rows.lengths, width)
    inputs = (
        pack_tokens(predicted.ids, rows.segments, rows.lengths, shape, pad_id)
        if packed
        else _pad(rows, predicted.ids, places, width, pad_id)
    )
    # A part of a batch may have more whole words than its room, or none where all of its own were left out.
    num_places = max(len(predicted.places), room.predicted if packed else 1)
    num_rows = room.rows if packed else len(lengths)
    return PretrainingBatch(
        inputs,
        places=filled(places[predicted.places], num_places, 0),
        labels=filled(predicted.labels, num_places, 0),
        weights=_weights(len(predicted.places), num_places, in_step[0]),
        firsts=filled(places[rows.starts], num_rows, 0),
        follows=filled(rows.follows, num_rows, 0),
        row_weights=_weights(len(lengths), num_rows, in_step[1]),
        width=width,
        lengths=lengths,
        num_predicted=len(predicted.places),
    )


def _pad(rows: TextRows, ids: Any, places: Any, width: int, pad_id: int) -> PaddedTokens:  # noqa: ANN401 (arrays)
    shape = (len(rows.lengths), width)
    padded, segments = np.full(shape, pad_id, np.int64), np.zeros(shape, np.int64)
    mask = np.zeros(shape, np.bool_)
    for whole, values in ((padded, ids), (segments, rows.segments), (mask, True)):
        whole.reshape(-1)[places] = values
    return PaddedTokens(*map(torch.from_numpy, (padded, mask, segments)))


def _weights(count: int, size: int, of: int) -> Tensor:
    weights = torch.zeros(size)
    weights[:count] = 1 / max(1, of)
    return weights


class Losses(NamedTuple):
    """What a batch adds to the losses of a step, and how many of its pairs are told rightly."""

    words: Tensor
    pairs: Tensor | None
    right: Tensor | None


def losses_of(model: PretrainingModel, batch: PretrainingBatch, compute: Compute) -> Losses:
    """Return the mean loss over a step's predictions of words and, where pairs are told apart, over its rows."""
    with compute.autocast():
        states = _token_states(model, batch)
        words = (model.word_losses(states.index_select(0, batch.places), batch.labels) * batch.weights).sum()
        if model.follows is None:
            return Losses(words, None, None)
        scores = model.next_scores(states.index_select(0, batch.firsts))
    pairs = (F.cross_entropy(scores, batch.follows, reduction="none") * batch.row_weights).sum()
    right = ((scores.argmax(dim=1) == batch.follows) * batch.row_weights).sum()
    return Losses(words, pairs, right)


def total_loss(model: PretrainingModel, batch: PretrainingBatch, compute: Compute) -> Float[Tensor, " 1"]:
    """Return what a step minimises: the mean over words plus the mean over pairs."""
    losses = losses_of(model, batch, compute)
    return (losses.words if losses.pairs is None else losses.words + losses.pairs)[None]


def _token_states(model: PretrainingModel, batch: PretrainingBatch) -> Float[Tensor, "token hidden"]:
    inputs = batch.inputs
    if isinstance(inputs, Packing):
        output = run_on_tokens(model.bert, inputs, batch.width, segments=True, hidden_states=False)
    else:
        output = model.bert(input_ids=inputs.ids, attention_mask=inputs.mask.long(), token_type_ids=inputs.segments)
    states: Tensor = output.last_hidden_state
    return states.flatten(0, 1)


def flops_of(model: PretrainingModel, batch: PretrainingBatch) -> float:
    """Return the operations of a step on a batch: forward, and twice as many backward; padding is not counted.

    A weight multiplies and adds once for each token; attention does so with every pair of a row's tokens, twice.
    """
    config: Any = model.bert.config
    layers, hidden, words = int(config.num_hidden_layers), int(config.hidden_size), int(config.vocab_size)
    blocks: int = sum(weight.numel() for weight in model.bert.encoder.parameters())
    pairs = layers * hidden * sum(length**2 for length in batch.lengths)
    scores = hidden * (hidden + words) * batch.num_predicted
    return 6.0 * (blocks * sum(batch.lengths) + scores) + 12.0 * pairs * (0.5 if config.is_decoder else 1)
