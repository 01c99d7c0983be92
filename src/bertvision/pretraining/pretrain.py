"""Text -> a new encoder: OUT/encoder, with checkpoints of steps on the way; a stopped one goes on where it was.

Each batch is drawn from the seed and its place, so that any can be made again.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from bertvision.encoder.finetune_plan import StepKind
from bertvision.encoder.load import Encoder, load_encoder, quiet_transformers
from bertvision.encoder.packed import compiled
from bertvision.encoder.tuning.freezing import still_weights
from bertvision.errors import TrainingError
from bertvision.files import locked, recover_all, whole_folder, write_text
from bertvision.manifest import write_manifest
from bertvision.pretraining.config import PretrainConfig
from bertvision.pretraining.corpus import Corpus, Prepared, Vocabulary, check_text, prepare_corpus
from bertvision.pretraining.masking import PredictedTokens, mask_tokens, predict_next
from bertvision.pretraining.model import (
    BatchRoom,
    PretrainingBatch,
    PretrainingModel,
    build_model,
    flops_of,
    losses_of,
    make_batch,
    room_for,
    total_loss,
    with_size_of_encoder,
)
from bertvision.pretraining.rows import Chunks, TextRows, check_chunks, cut_documents, make_rows, plan_batches
from bertvision.progress import SILENT, Progress
from bertvision.records import (
    HeldOutLoss,
    PretrainingRecord,
    TextSize,
    provenance,
    read_pretraining_record,
    write_pretraining,
)
from bertvision.run_folder import is_made, resumable, write_settings
from bertvision.settings import Settings
from bertvision.tables import counted
from bertvision.training.accounting import Costs, Meter
from bertvision.training.checkpoint import HeldSignals, fingerprint, load_progress, save_progress
from bertvision.training.device import Compute, StepGraphs, choose_compute
from bertvision.training.distributed import join_processes
from bertvision.training.history import History, TrainingLog, thinned
from bertvision.training.loop import Group, Learner, RandomStream, Step, diverged_among, seed_for, train_steps
from bertvision.training.optim import build_optimizer, build_schedule
from bertvision.windows.plan import WHOLE, Part, Rows, deal

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


ENCODER, STEPS, DATA, TRAINING = "encoder", "steps", "data", "training.jsonl"
LEARNER = "pretraining"


def pretrain(config: PretrainConfig, out: Path, progress: Progress = SILENT) -> PretrainingRecord:
    """Pre-train an encoder into OUT/encoder; what OUT already holds is kept, and a stopped pre-training goes on.

    Of several processes, which Accelerate or `bertvision pretrain --processes` starts, each has its part of every
    batch, and the main one writes.
    """
    config = with_size_of_encoder(config)
    compute = choose_compute(config.device, config.precision)
    processes = join_processes(compute.device)
    own, settings_fingerprint = progress if processes.is_main else SILENT, _settings_fingerprint(config)
    with locked(out) if processes.is_main else nullcontext():
        if not processes.agreed(lambda: _is_finished(config, out, settings_fingerprint)):
            _pretrain(config, out, settings_fingerprint, compute._replace(processes=processes), own)
            processes.wait()  # until all is written
        if lacking := [step for step in config.checkpoints if not (out / STEPS / str(step)).exists()]:
            own.say(f"step {lacking[0]:,} was over before `checkpoints` named it; choose another `out` to keep it")
        return read_pretraining_record(out)


def _settings_fingerprint(config: PretrainConfig) -> Settings:
    """Return what decides the weights: settings, and what lies under the name of an encoder to go on from."""
    settings = config.training_settings()
    return settings | (
        {} if config.encoder is None else {"initial_encoder": fingerprint(load_encoder(config.encoder).model)}
    )


def _is_finished(config: PretrainConfig, out: Path, settings_fingerprint: Settings) -> bool:
    recover_all(out, "")
    if not is_made(out / ENCODER, settings_fingerprint):
        return False
    check_text(config, _data_folder(config, out))
    return True


def _data_folder(config: PretrainConfig, out: Path) -> Path:
    return out / DATA if config.data.folder is None else Path(config.data.folder)


def _pretrain(
    config: PretrainConfig, out: Path, settings_fingerprint: Settings, compute: Compute, progress: Progress
) -> None:
    place, is_main = out / ENCODER, compute.processes.is_main
    prepared = prepare_corpus(config, _data_folder(config, out), progress, compute.processes)
    source = _source(config, prepared.train, prepared.vocabulary, compute)  # refuses what has no rows
    unfinished = {**settings_fingerprint, "device": compute.device.type}
    with resumable(out / "unfinished" / LEARNER, unfinished, [place], is_main=is_main) as saved:
        compute.processes.wait()  # until the main one has looked at what is saved
        training = _Pretraining(config, settings_fingerprint, prepared, source, compute, out, saved, progress)
        training.run()
        if is_main:
            record = training.record()
            write_pretraining(out, record)
            _write_encoder(place, training.model, prepared, config, record.loss, settings_fingerprint)


def _source(
    config: PretrainConfig, corpus: Corpus, vocabulary: Vocabulary, compute: Compute, *, is_trained_on: bool = True
) -> StepSource:
    packed, part = packs_rows(config, compute), compute.processes.part
    return StepSource(config, corpus, vocabulary, packed=packed, is_trained_on=is_trained_on, part=part)


class _Speed(NamedTuple):
    """What was done until a moment of training."""

    tokens: int = 0
    operations: float = 0.0
    seconds: float = 0.0

    def since(self, before: "_Speed") -> "_Speed":
        return _Speed(self.tokens - before.tokens, self.operations - before.operations, self.seconds - before.seconds)


class _Pretraining:
    """A pre-training under way."""

    def __init__(
        self,
        config: PretrainConfig,
        settings_fingerprint: Settings,
        prepared: Prepared,
        source: StepSource,
        compute: Compute,
        out: Path,
        saved: Path,
        progress: Progress,
    ) -> None:
        """Begin, or go on from what is saved."""
        self._config, self._prepared, self._source, self._compute = config, prepared, source, compute
        self._settings_fingerprint, self._out, self._saved, self._progress = settings_fingerprint, out, saved, progress
        self._packed, self._is_main = packs_rows(config, compute), compute.processes.is_main
        self.model = build_model(config, prepared.vocabulary).to(compute.device)
        self._group = self._build_group()
        position = load_progress(saved, [self._group])
        self._position = Position(*position["position"]) if position else Position()
        self._done = _Speed(*position["done"]) if position else _Speed()
        self._meter = Meter(compute.device, Costs(**position["costs"]) if position else None)
        log = TrainingLog(out / TRAINING if self._is_main else None, config.seed)
        self._history = History([self._group], config.num_steps, self._epochs, log, (position or {}).get("history"))
        self._held_out: tuple[int, Sequence[PretrainingBatch]] = (-1, ())
        self._told = self._done._replace(seconds=position["costs"]["seconds"] if position else 0.0)
        self._last_saved = time.perf_counter()
        self._loss: HeldOutLoss | None = None

    def run(self) -> None:
        """Take all steps that are left; evaluate, keep checkpoints and save between them."""
        config, tokenizer = self._config, self._prepared.vocabulary.tokenizer
        encoder = Encoder(config.name, self.model.bert, tokenizer)
        left = config.num_steps - self._position.step
        kind: StepKind = "packed" if self._packed else "eager"
        with ExitStack() as stack:
            stack.enter_context(compiled(encoder, kind, left, self._compute, self._progress))
            bar = stack.enter_context(self._progress.bar("pretrain", config.num_steps))
            signals = stack.enter_context(HeldSignals(self._saved))
            bar.advance(self._position.step)
            self._meter.go()
            for step in train_steps([self._group], self._meter.timed(self._steps()), self._position.step + 1):
                self._history.add(step, step.number, self._meter.elapsed)
                bar.advance(1, lambda: f"loss {next(iter(step.losses.values()), math.nan):.2f}")  # noqa: B023 (asked at once)
                self._after(step, signals)
        self._check()
        self._loss = self._loss or self._measure()  # stopped after the last step, and gone on with

    def record(self) -> PretrainingRecord:
        """Return the record of the finished pre-training."""
        done, peak, held_out = self._done, self._compute.peak, self._prepared.held_out
        seconds = max(self._meter.stop().seconds, 1e-9)
        return PretrainingRecord(
            name=self._config.name,
            config=self._config.model_dump(mode="json"),
            parameters=sum(weight.numel() for weight in self.model.parameters()),
            train=_size(self._prepared.train),
            held_out=None if held_out is None else _size(held_out),
            steps=self._config.num_steps,
            tokens=done.tokens,
            seconds=round(seconds, 3),
            tokens_per_second=round(done.tokens / seconds, 1),
            operations=done.operations,
            peak_fraction=None if peak is None else round(done.operations / seconds / peak, 4),
            loss=self._loss,
            training=thinned(self._history.points[LEARNER]),
            provenance=provenance(self._compute.name, self._compute.precision),
        )

    def _steps(self) -> Iterator[list[PretrainingBatch]]:
        for position, batches in self._source.steps_from(self._position):
            tokens = sum(sum(batch.lengths) for batch in batches)
            operations = sum(flops_of(self.model, batch) for batch in batches)
            done = self._done
            self._position = position
            self._done = done._replace(tokens=done.tokens + tokens, operations=done.operations + operations)
            yield [batch.to(self._compute.device) for batch in batches]

    def _after(self, step: Step, signals: HeldSignals) -> None:
        """Do what is due after a step."""
        config, number = self._config, step.number
        if number % config.evaluate_every == 0 or number == config.num_steps:
            self._evaluate(number)
        if number in config.checkpoints:
            self._keep(self._out / STEPS / str(number), {**self._settings_fingerprint, "step": number})
        is_due = time.perf_counter() - self._last_saved > config.save_every and number < config.num_steps
        if self._is_main and (is_due or signals.came is not None):
            self._save()
            signals.act()
            self._last_saved = time.perf_counter()
            self._meter.go()

    def _keep(self, place: Path, settings_fingerprint: Settings) -> None:
        """Write the encoder as it is after a step, unless it is there already."""
        if self._is_main and not is_made(place, settings_fingerprint):
            self._check()
            self._meter.stop()
            _write_encoder(place, self.model, self._prepared, self._config, self._loss, settings_fingerprint)
            self._meter.go()

    def _save(self) -> None:
        self._check()
        position = {
            "position": list(self._position),
            "done": list(self._done),
            "costs": self._meter.stop()._asdict(),
            "history": self._history.state(),
        }
        save_progress(self._saved, [self._group], position)

    def _evaluate(self, number: int) -> None:
        """Measure the held-out loss, and say it with the speed since the last time."""
        self._check()
        now = self._done._replace(seconds=self._meter.stop().seconds)
        self._loss = self._measure()
        self._history.mark({LEARNER: None if self._loss is None else self._loss.words}, now.seconds)
        recent, self._told = now.since(self._told), now
        self._progress.say(f"step {number:,}: {self._tell(recent)}")
        self._meter.go()

    def _tell(self, recent: _Speed) -> str:
        seconds, loss, peak = max(recent.seconds, 1e-9), self._loss, self._compute.peak
        own = self._history.points[LEARNER][-1].loss
        told = [f"loss {own:.3f}"] if own is not None else []
        if loss is not None:
            told.append(f"held out {loss.words:.3f} (perplexity {loss.perplexity:,.1f})")
            told += [f"next sentences {loss.pairs_accuracy:.1%} right"] if loss.pairs_accuracy is not None else []
        told.append(f"{recent.tokens / seconds:,.0f} tokens/s")
        told += [f"{recent.operations / seconds / peak:.1%} of the peak"] if peak is not None else []
        return ", ".join(told)

    def _measure(self) -> HeldOutLoss | None:
        if self._prepared.held_out is None:
            return None
        stage = min(self._position.stage, len(self._config.stages) - 1)
        if self._held_out[0] != stage:
            held_out, vocabulary = self._prepared.held_out, self._prepared.vocabulary
            source = _source(self._config, held_out, vocabulary, self._compute, is_trained_on=False)
            self._held_out = stage, source.held_out(stage, self._config.evaluate_tokens)
        return held_out_loss(self.model, self._held_out[1], self._compute)

    def _check(self) -> None:
        if diverged_among([self._group]):
            raise TrainingError(
                f"pre-training diverged before step {self._position.step}; try a lower lr or more warmup"
            )

    def _epochs(self, step: int) -> float:
        """Return about how many times the text was read after a step."""
        tokens = 0
        for stage in self._config.stages:
            tokens += stage.batch_tokens * min(stage.steps, max(0, step))
            step -= stage.steps
        return tokens / len(self._prepared.train.ids)

    def _build_group(self) -> Group:
        config, device = self._config, self._compute.device
        graphs = StepGraphs(device) if self._compute.replays and self._packed else None
        optimizer = build_optimizer(self.model, config.lr, config.optim, capturable=graphs is not None)
        learner = Learner(
            name=LEARNER,
            model=self.model,
            optimizer=optimizer,
            schedule=build_schedule(optimizer, config.optim, config.num_steps),
            stream=RandomStream(seed_for(config.seed, LEARNER), device),
            max_grad_norm=config.optim.max_grad_norm,
            still=still_weights(self.model.bert, ignores_shifts=False),
        )
        losses_of = partial(total_loss, self.model, compute=self._compute)
        return Group([learner], losses_of, graphs, self._compute.processes)


def packs_rows(config: PretrainConfig, compute: Compute) -> bool:
    """Return whether rows are packed without padding: where that is asked for, or a GPU has the attention for it."""
    return config.step_mode == "packed" or (config.step_mode == "auto" and compute.has_packed_attention)


def held_out_loss(model: PretrainingModel, batches: Sequence[PretrainingBatch], compute: Compute) -> HeldOutLoss:
    """Return the mean losses over batches whose weights, with those of other processes, add up to 1."""
    model.eval()
    with torch.no_grad():
        found = [losses_of(model, batch.to(compute.device), compute) for batch in batches]
    values = [[0.0 if value is None else float(value) for value in each] for each in found]
    sums = torch.tensor(values, dtype=torch.float64).sum(dim=0)
    compute.processes.add_up([sums])
    words, pairs, right = sums.tolist()
    has_pairs = model.follows is not None
    return HeldOutLoss(
        words=words,
        perplexity=math.exp(min(words, 700)),
        pairs=pairs if has_pairs else None,
        pairs_accuracy=right if has_pairs else None,
    )


def _size(corpus: Corpus) -> TextSize:
    return TextSize(documents=corpus.num_documents, tokens=len(corpus.ids))


def _write_encoder(
    place: Path,
    model: PretrainingModel,
    prepared: Prepared,
    config: PretrainConfig,
    loss: HeldOutLoss | None,
    settings_fingerprint: Settings,
) -> None:
    """Write an encoder as Hugging Face's loaders expect it, whole or not at all."""
    tokenizer = prepared.vocabulary.tokenizer
    tokenizer.model_max_length = config.size.positions
    with whole_folder(place) as beside, quiet_transformers():
        model.whole.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        for path in beside.glob("*.safetensors"):  # safetensors writes files that nobody else may read
            path.chmod((beside / "config.json").stat().st_mode)
        write_text(beside / "README.md", _card(model, prepared, config, loss))
        write_manifest(beside)
        write_settings(beside, settings_fingerprint)


def _card(model: PretrainingModel, prepared: Prepared, config: PretrainConfig, loss: HeldOutLoss | None) -> str:
    size, train = config.size, prepared.train
    told = "not measured" if loss is None else f"{loss.words:.3f} a word (perplexity {loss.perplexity:,.1f})"
    lines = (
        f"size: {size.layers} layers x {size.hidden}, {size.heads} heads; vocabulary: {prepared.vocabulary.size:,}",
        f"objective: {config.objective}; transformers' class: {type(model.whole).__name__}",
        f"text: {counted(train.num_documents, 'document')}, {len(train.ids):,} tokens",
        f"steps planned: {config.num_steps:,}; rows of {', '.join(str(each.length) for each in config.stages)} tokens",
        f"held-out loss when this was written: {told}",
    )
    begun = "from random weights" if config.encoder is None else f"on from the weights of `{config.encoder}`"
    about = f"A BERT that `bertvision pretrain` trained {begun}."
    return f"# {config.name}\n\n{about}\n\n" + "".join(f"- {line}\n" for line in lines)
