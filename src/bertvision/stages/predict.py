"""The last stage: answers to dev for every row of a fraction, their scores, and one record per row."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bertvision.calibration.calibration import score_calibration
from bertvision.encoder.load import Encoder
from bertvision.experiment import EnsembleConfig
from bertvision.features.windows import Window
from bertvision.files import whole_folder
from bertvision.heads.head import Head, count_parameters, layer_weights
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.ensemble import combine_logits
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import Logits, grid_of, save_logits
from bertvision.predictions.prediction import Prediction, without_collecting
from bertvision.predictions.spans import decode_spans
from bertvision.predictions.texts import TextGrid, text_grid
from bertvision.records import (
    Curves,
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
from bertvision.stages.logits import token_logits
from bertvision.stages.model_folder import load_head, read_model_config
from bertvision.stages.paper_scores import paper_scores
from bertvision.tasks.held_out import write_squad
from bertvision.tasks.task import Question, Split

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


class Asked(NamedTuple):
    """Questions, and what every row makes of them."""

    questions: tuple[Question, ...]
    texts: TextGrid
    logits: dict[str, Logits]  # by row


class Pass(NamedTuple):
    """What all rows of one fraction and seed share."""

    line: Line
    seed: int
    fraction: float | None
    weights: str  # fingerprint of the encoder
    seconds: float  # of the pass over dev
    notes: list[str]
    dev: Asked
    held_out: Asked | None


def predict(line: Line, seed: int, fraction: float | None) -> list[RunRecord]:
    """Answer dev with every row of a fraction, unless all of them have their record, and record what came out."""
    if (made := _finished_records(line, seed, fraction)) is not None:
        return made
    encoder, weights = frozen_encoder(line, seed, fraction)
    rows = _rows(line, seed, fraction, encoder)
    started = time.perf_counter()
    dev = _ask(line, rows, encoder, line.task.dev, line.dev)
    seconds = time.perf_counter() - started
    held_out = None
    if line.held_out is not None:
        held_out = _ask(line, rows, encoder, *line.held_out)
        if not line.folder(seed).held_out.exists():
            write_squad(line.folder(seed).held_out, line.held_out.split.examples)
    this = Pass(line, seed, fraction, weights, seconds, _notes(line, rows), dev, held_out)
    records = []
    for place, row in enumerate(rows):
        with without_collecting():
            scores, curves = _score(this, row)
        record = _record(this, row, place, scores, curves)
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


def _ask(line: Line, rows: Sequence[Row], encoder: Encoder, split: Split[Question], windows: Sequence[Window]) -> Asked:
    """Run the encoder once for all rows, then combine rows to ensembles."""
    grid = grid_of(windows, [question.id for question in split.examples])
    heads = {row.name: row.head for row in rows if row.head is not None}
    tokens = line.experiment.answers.tokens
    logits = token_logits(encoder, heads, windows, line.compute, line.progress, tokens)
    for row in rows:
        if row.members is not None:
            members = [logits[name] for name in row.members.of]
            logits[row.name] = combine_logits(grid, members, row.members.how, row.members.weights)
    return Asked(split.examples, text_grid(grid, [question.context for question in split.examples]), logits)


def _score(this: Pass, row: Row) -> tuple[Scores, Curves | None]:
    """Write a row's answers and score those to dev; what is tuned is tuned on the held-out ones."""
    line, folder, config = this.line, this.line.folder(this.seed), this.line.experiment.answers
    answers = _write_answers(line, row, this.dev, folder.predictions(this.fraction, row.name))
    held_out = None
    if this.held_out is not None:
        place = folder.held_out_predictions(this.fraction, row.name)
        held_out = (this.held_out.questions, _write_answers(line, row, this.held_out, place))
    is_max = row.members is not None and row.members.how == "max"
    paper = paper_scores(this.dev.texts.tokens, this.dev.logits[row.name], line.paper, are_log_probabilities=is_max)
    official = score_predictions(this.dev.questions, answers, config.null_threshold) | paper
    if not line.task.has_null:
        return official, None
    calibrated, curves = score_calibration((this.dev.questions, answers), held_out, config.null_threshold)
    return official | calibrated, curves


def _write_answers(line: Line, row: Row, asked: Asked, place: Path) -> list[Prediction]:
    logits = asked.logits[row.name]
    answers = decode_spans(asked.texts, logits, line.experiment.answers, has_null=line.task.has_null)
    with whole_folder(place) as beside:
        write_predictions(beside, answers)
        save_logits(beside / "logits.safetensors", asked.texts.tokens, logits)
    return answers


def _record(this: Pass, row: Row, place: int, scores: Scores, curves: Curves | None) -> RunRecord:
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
        curves=curves,
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
    if line.held_out is not None:
        answers += [folder.held_out_predictions(fraction, name) / "predictions.json" for name in names]
        answers.append(folder.held_out)
    if not all(path.exists() for path in [*paths, *answers]):
        return None
    records = [read_record(path) for path in paths]
    same = all(record.data == line.data() and first_difference(record.config, config) is None for record in records)
    return records if same else None
