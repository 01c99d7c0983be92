"""The last stage: answers to dev for every row of a fraction, their scores, and one record per row."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bertvision.encoder.load import Encoder
from bertvision.experiment import EnsembleConfig
from bertvision.files import whole_folder
from bertvision.heads.head import Head, count_parameters, layer_weights
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.ensemble import combine_logits
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import Logits, grid_of, save_logits
from bertvision.predictions.prediction import without_collecting
from bertvision.predictions.spans import decode_spans
from bertvision.predictions.texts import TextGrid, text_grid
from bertvision.records import (
    Parameters,
    RowKind,
    RunRecord,
    Seconds,
    provenance,
    read_record,
    record_path,
    write_record,
)
from bertvision.settings import first_difference
from bertvision.stages.finetune import finetune_seconds
from bertvision.stages.heads import frozen_encoder, load_heads
from bertvision.stages.line import Line, is_checkpoint
from bertvision.stages.model_folder import load_head, read_model_config
from bertvision.stages.paper_scores import paper_scores
from bertvision.stages.span_logits import span_logits

ENCODER = "encoder"


@dataclass(frozen=True)
class Row:
    """One line of the results: the encoder's own output layer, a head, or an ensemble of rows."""

    name: str
    kind: RowKind
    parameters: Parameters
    head: Head | None = None  # None for an ensemble
    members: EnsembleConfig | None = None
    seconds: float | None = None  # of the pass that trained it
    epochs: dict[int, Scores] = field(default_factory=dict)  # scores after epochs other than the reported one
    states: str = "live"  # where its training took states from


class Pass(NamedTuple):
    """What all rows of one fraction and seed share."""

    line: Line
    seed: int
    fraction: float | None
    weights: str  # fingerprint of the encoder
    seconds: float  # of the pass over dev
    notes: list[str]


def predict(line: Line, seed: int, fraction: float | None) -> list[RunRecord]:
    """Answer dev with every row of a fraction, unless all of them have their record, and record what came out."""
    if (made := _finished_records(line, seed, fraction)) is not None:
        return made
    encoder, weights = frozen_encoder(line, seed, fraction)
    rows = _rows(line, seed, fraction, encoder)
    grid = grid_of(line.dev, [question.id for question in line.task.dev.examples])
    heads = {row.name: row.head for row in rows if row.head is not None}
    started = time.perf_counter()
    tokens = line.experiment.answers.tokens
    logits = span_logits(encoder, heads, line.dev, grid, line.compute, line.progress, tokens)
    this = Pass(line, seed, fraction, weights, time.perf_counter() - started, _notes(line, rows))
    texts = text_grid(grid, [question.context for question in line.task.dev.examples])
    records = []
    for place, row in enumerate(rows):
        if row.members is not None:
            members = [logits[name] for name in row.members.of]
            logits[row.name] = combine_logits(grid, members, row.members.how, row.members.weights)
        with without_collecting():
            scores = _write_answers(this, row, texts, logits[row.name])
        record = _record(this, row, place, scores)
        write_record(line.folder(seed).records, record)
        records.append(record)
    return records


def _rows(line: Line, seed: int, fraction: float | None, encoder: Encoder) -> list[Row]:
    """List the encoder, heads and ensembles that can be scored; an encoder as given has no output layer of its own."""
    size = encoder.num_parameters
    rows = []
    if (output := _output_layer(line, seed, fraction)) is not None:
        whole = size + count_parameters(output).total
        rows.append(Row(ENCODER, "encoder", Parameters(total=whole, trainable=whole, encoder=size), output))
    for name, trained in load_heads(line, seed, fraction).items():
        count = count_parameters(trained.head)
        parameters = Parameters(total=count.total, trainable=count.trainable, encoder=size)
        rows.append(
            Row(
                name,
                trained.config.kind,
                parameters,
                trained.head,
                seconds=trained.seconds,
                epochs=trained.epochs,
                states=trained.states,
            )
        )
    return rows + _ensembles(line.experiment.ensembles, rows, size)


def _ensembles(configs: Sequence[EnsembleConfig], rows: Sequence[Row], size: int) -> list[Row]:
    by_name = {row.name: row for row in rows}
    ensembles = []
    for config in configs:
        if all(name in by_name for name in config.of):  # a head may have diverged
            members = [by_name[name] for name in config.of]
            total = sum(row.parameters.total for row in members)
            trainable = sum(row.parameters.trainable for row in members)
            parameters = Parameters(total=total, trainable=trainable, encoder=size)
            seconds = max(row.seconds or 0.0 for row in members)
            ensembles.append(Row(config.name, "ensemble", parameters, members=config, seconds=seconds))
    return ensembles


def _output_layer(line: Line, seed: int, fraction: float | None) -> Head | None:
    if fraction is None and not is_checkpoint(line.experiment.encoder):
        return None
    place = Path(line.experiment.encoder) if fraction is None else line.folder(seed).encoder(fraction)
    return load_head(place, read_model_config(place))


def _notes(line: Line, rows: Sequence[Row]) -> list[str]:
    names = [row.name for row in rows]
    heads = [head.name for head in line.experiment.heads.train if head.name not in names]
    notes = [f"head {name} diverged and was left out" for name in heads]
    for ensemble in line.experiment.ensembles:
        if lacking := [name for name in ensemble.of if name not in names]:
            notes.append(f"ensemble {ensemble.name} was left out, because there is no row {lacking[0]}")
    return notes


def _write_answers(this: Pass, row: Row, texts: TextGrid, logits: Logits) -> Scores:
    line, questions, config = this.line, this.line.task.dev.examples, this.line.experiment.answers
    answers = decode_spans(texts, logits, config, has_null=line.task.has_null)
    with whole_folder(line.folder(this.seed).predictions(this.fraction, row.name)) as beside:
        write_predictions(beside, answers)
        save_logits(beside / "logits.safetensors", texts.tokens, logits)
    is_max = row.members is not None and row.members.how == "max"
    paper = paper_scores(texts.tokens, logits, line.paper, are_log_probabilities=is_max)
    return score_predictions(questions, answers, config.null_threshold) | paper


def _record(this: Pass, row: Row, place: int, scores: Scores) -> RunRecord:
    line, config = this.line, this.line.experiment
    epochs = {**row.epochs, config.heads.reported: scores} if row.kind in ("head", "control") else {}
    return RunRecord(
        experiment=config.name,
        task=config.task,
        row=row.name,
        kind=row.kind,
        place=place,
        fraction=this.fraction,
        seed=this.seed,
        scores=scores,
        epochs=[epochs[epoch] for epoch in sorted(epochs)],
        parameters=row.parameters,
        seconds=Seconds(
            finetune=finetune_seconds(line, this.seed, this.fraction),
            heads=row.seconds,
            predict=round(this.seconds, 3),
        ),
        layer_weights=layer_weights(row.head) if row.head is not None else None,
        states=row.states,
        schedule_horizon=config.finetune.horizon,
        notes=this.notes,
        data=line.data(),
        encoder_fingerprint=this.weights,
        config=config.model_dump(mode="json"),
        provenance=provenance(line.compute.name, line.compute.precision),
    )


def _finished_records(line: Line, seed: int, fraction: float | None) -> list[RunRecord] | None:
    """Give the records of a fraction where all are there and were made by this very experiment on these very data."""
    config, folder = line.experiment.model_dump(mode="json"), line.folder(seed)
    names = [] if _output_layer(line, seed, fraction) is None else [ENCODER]
    names += load_heads(line, seed, fraction)
    names += [each.name for each in line.experiment.ensembles if all(name in names for name in each.of)]
    paths = [record_path(folder.records, name, fraction, seed) for name in names]
    answers = [folder.predictions(fraction, name) / "predictions.json" for name in names]
    if not all(path.exists() for path in [*paths, *answers]):
        return None
    records = [read_record(path) for path in paths]
    same = all(record.data == line.data() and first_difference(record.config, config) is None for record in records)
    return records if same else None
