"""A corpus -> the batches of every step; each is drawn from the seed and its place, so that any can be made again."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bertvision.pretraining.config import PretrainConfig
from bertvision.pretraining.corpus import Corpus, Vocabulary
from bertvision.pretraining.masking import PredictedTokens, mask_tokens, predict_next
from bertvision.pretraining.model import BatchRoom, PretrainingBatch, make_batch, room_for
from bertvision.pretraining.rows import Chunks, TextRows, check_chunks, cut_documents, make_rows, plan_batches
from bertvision.windows.padding import Rows
from bertvision.windows.step_plan import WHOLE, Part, deal

HELD_OUT_SEED = 0  # of what is masked in held-out documents: the same in every evaluation of every pre-training


class Position(NamedTuple):
    """Where a pre-training stands: what comes next."""

    step: int = 0  # taken so far
    stage: int = 0
    taken: int = 0  # of this stage
    epoch: int = 0  # of this stage
    batch: int = 0  # of this epoch


class Epoch(NamedTuple):
    """The rows of an epoch, and which of them make up each batch."""

    chunks: Chunks
    batches: Sequence[Rows]


class StepSource:
    """Makes the batches of a pre-training's steps."""

    def __init__(
        self,
        config: PretrainConfig,
        corpus: Corpus,
        vocabulary: Vocabulary,
        *,
        packed: bool,
        is_trained_on: bool = True,
        part: Part = WHOLE,
    ) -> None:
        """Take a corpus; one that is measured on may be a single document, in which other sentences are then found.

        Of several processes each has its `part` of every batch, which all of them draw as one alone would.
        """
        self._config, self._corpus, self._vocabulary, self._packed = config, corpus, vocabulary, packed
        self._part = part
        self._pad_id = vocabulary.id_of("[PAD]")
        check_chunks(self._plan(config.seed, 0, 0).chunks, pairs=config.pairs and is_trained_on)

    def steps_from(self, position: Position) -> Iterator[tuple[Position, list[PretrainingBatch]]]:
        """Return, step after step, where the pre-training stands after it, and its batches."""
        stages, accumulate = self._config.stages, self._config.accumulate
        while position.stage < len(stages):
            epoch = self._plan(self._config.seed, position.stage, position.epoch)
            while position.batch < len(epoch.batches) and position.taken < stages[position.stage].steps:
                made = self._make(self._config.seed, position, epoch, accumulate)
                position = position._replace(
                    step=position.step + 1, taken=position.taken + 1, batch=position.batch + accumulate
                )
                yield position, made
            if position.taken < stages[position.stage].steps:
                position = position._replace(epoch=position.epoch + 1, batch=0)
            else:
                position = Position(position.step, position.stage + 1)

    def held_out(self, stage: int, tokens: int) -> list[PretrainingBatch]:
        """Return batches of about so many tokens, as a stage has them, whose losses add up to their mean."""
        epoch = self._plan(HELD_OUT_SEED, stage, 0)
        room = room_for(self._config, self._config.stages[stage])
        most = max(1, tokens // room.tokens)
        return self._make(HELD_OUT_SEED, Position(stage=stage), epoch, most)

    def _plan(self, seed: int, stage: int, epoch: int) -> Epoch:
        config, random = self._config, np.random.default_rng([seed, stage, epoch])
        room = room_for(config, config.stages[stage])
        width = room.width - config.special
        chunks = cut_documents(self._corpus, width, config.short_fraction, random, pairs=config.pairs)
        return Epoch(chunks, plan_batches(chunks, config.special, room.tokens, room.rows, random))

    def _make(self, seed: int, position: Position, epoch: Epoch, count: int) -> list[PretrainingBatch]:
        """Make the next batches of an epoch, as parts of one step."""
        stage = self._config.stages[position.stage]
        room, own_room = room_for(self._config, stage), room_for(self._config, stage, self._part.count)
        numbers = range(position.batch, min(position.batch + count, len(epoch.batches)))
        found = [
            self._draw([seed, position.stage, position.epoch, 1 + number], epoch, number, room) for number in numbers
        ]
        in_step = sum(len(each.places) for _, each in found), sum(len(rows.lengths) for rows, _ in found)
        return [self._own(*each, own_room, in_step) for each in found]

    def _own(
        self, rows: TextRows, predicted: PredictedTokens, room: BatchRoom, in_step: tuple[int, int]
    ) -> PretrainingBatch:
        """Make a batch of this process's part of the rows; where it has none, of a row that counts nothing."""
        chosen, share = deal(np.arange(len(rows.lengths)), rows.lengths, np.ones_like(rows.lengths), self._part)
        own = (rows, predicted) if share is None else (rows.part(chosen), predicted.part(rows.places_of(chosen)))
        batch = make_batch(*own, room, self._pad_id, in_step, packed=self._packed)
        batch = batch.weightless() if share == 0 else batch
        return batch._replace(lengths=tuple(rows.lengths.tolist()), num_predicted=len(predicted.places))

    def _draw(self, seeds: list[int], epoch: Epoch, number: int, room: BatchRoom) -> tuple[TextRows, PredictedTokens]:
        config, random = self._config, np.random.default_rng(seeds)
        rows = make_rows(
            self._corpus, epoch.chunks, epoch.batches[number], self._vocabulary, random, pairs=config.pairs
        )
        if config.objective == "ltr":
            return rows, predict_next(rows)
        return rows, mask_tokens(rows, config.masking, self._vocabulary, random, most=room.predicted)
