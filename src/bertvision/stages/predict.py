"""The last stage: answers to dev for every row of a fraction, their scores, and one record per row."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertvision.encoder.load import Encoder
from bertvision.experiment import EnsembleConfig
from bertvision.files import whole_folder
from bertvision.heads.head import Head, count_parameters, layer_weights
from bertvision.metrics.squad import Scores, score_predictions
from bertvision.predictions.ensemble import combine_logits
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import Logits, TokenGrid, grid_of, save_logits
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
from bertvision.stages.answers import answer_questions, span_logits
from bertvision.stages.finetune import finetune_seconds
from bertvision.stages.heads import TrainedHead, frozen_encoder, load_heads
from bertvision.stages.line import Line, is_checkpoint
from bertvision.stages.model_folder import load_head, read_model_config

ENCODER = "encoder"


@dataclass(frozen=True)
class Row:
    """One line of the results: the encoder's own output layer, a head, or an ensemble of rows."""

    name: str
    kind: RowKind
    parameters: Parameters
    head: Head | None = None  # None for an ensemble
    ensemble: EnsembleConfig | None = None
    trained: TrainedHead | None = None


def predict(line: Line, seed: int, fraction: float | None) -> list[RunRecord]:
    """Answer dev with every row of a fraction that has no record yet, and record what came out."""
    made = _finished_records(line, seed, fraction)
    if made is not None:
        return made
    encoder, weights = frozen_encoder(line, seed, fraction)
    rows = _rows(line, seed, fraction, encoder)
    questions = line.task.dev.questions
    grid = grid_of(line.dev, [question.id for question in questions])
    heads = {row.name: row.head for row in rows if row.head is not None}
    started = time.perf_counter()
    logits = span_logits(encoder, heads, line.dev, grid, line.compute, line.progress)
    seconds = time.perf_counter() - started
    records = []
    for place, row in enumerate(rows):
        if row.ensemble is not None:
            logits[row.name] = combine_logits(grid, [logits[name] for name in row.ensemble.of], row.ensemble.how)
        scores = _write_answers(line, seed, fraction, row.name, grid, logits[row.name])
        record = _record(line, seed, fraction, row, place, scores, seconds, weights)
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
        rows.append(Row(name, trained.config.kind, parameters, trained.head, trained=trained))
    return rows + _ensembles(line.experiment.ensembles, rows, size)


def _ensembles(configs: Sequence[EnsembleConfig], rows: Sequence[Row], size: int) -> list[Row]:
    by_name = {row.name: row for row in rows}
    ensembles = []
    for config in configs:
        if all(name in by_name for name in config.of):  # a head may have diverged
            members = [by_name[name].parameters for name in config.of]
            total, trainable = sum(each.total for each in members), sum(each.trainable for each in members)
            parameters = Parameters(total=total, trainable=trainable, encoder=size)
            ensembles.append(Row(config.name, "ensemble", parameters, ensemble=config))
    return ensembles


def _output_layer(line: Line, seed: int, fraction: float | None) -> Head | None:
    if fraction is None and not is_checkpoint(line.experiment.encoder):
        return None
    place = Path(line.experiment.encoder) if fraction is None else line.folder(seed).encoder(fraction)
    return load_head(place, read_model_config(place))


def _write_answers(line: Line, seed: int, fraction: float | None, row: str, grid: TokenGrid, logits: Logits) -> Scores:
    questions, config = line.task.dev.questions, line.experiment.answers
    answers = answer_questions(grid, logits, questions, config, has_null=line.task.has_null)
    with whole_folder(line.folder(seed).predictions(fraction, row)) as beside:
        write_predictions(beside, answers)
        save_logits(beside / "logits.safetensors", grid, logits)
    return score_predictions(questions, answers, config.null_threshold)


def _record(
    line: Line,
    seed: int,
    fraction: float | None,
    row: Row,
    place: int,
    scores: Scores,
    seconds: float,
    weights: str,
) -> RunRecord:
    config, heads = line.experiment, line.experiment.heads
    trained = max((each.seconds for each in load_heads(line, seed, fraction).values()), default=0.0)
    epochs = {**row.trained.epochs, heads.reported: scores} if row.trained else {}
    return RunRecord(
        experiment=config.name,
        task=config.task,
        row=row.name,
        kind=row.kind,
        place=place,
        fraction=fraction,
        seed=seed,
        scores=scores,
        epochs=[epochs[epoch] for epoch in sorted(epochs)],
        parameters=row.parameters,
        seconds=Seconds(
            finetune=finetune_seconds(line, seed, fraction),
            heads=None if row.kind == "encoder" else row.trained.seconds if row.trained else trained,
            predict=round(seconds, 3),
        ),
        layer_weights=layer_weights(row.head) if row.head is not None else None,
        schedule_horizon=config.finetune.horizon,
        notes=_notes(line, seed, fraction),
        data=line.data(),
        encoder_fingerprint=weights,
        config=config.model_dump(mode="json"),
        provenance=provenance(line.compute.name, line.compute.precision),
    )


def _notes(line: Line, seed: int, fraction: float | None) -> list[str]:
    trained = load_heads(line, seed, fraction)
    left_out = [head.name for head in line.experiment.heads.train if head.name not in trained]
    return [f"head {name} diverged and was left out" for name in left_out]


def _finished_records(line: Line, seed: int, fraction: float | None) -> list[RunRecord] | None:
    """Give the records of a fraction where all are there and were made by this very experiment."""
    config, folder = line.experiment.model_dump(mode="json"), line.folder(seed)
    names = [] if _output_layer(line, seed, fraction) is None else [ENCODER]
    names += load_heads(line, seed, fraction)
    names += [each.name for each in line.experiment.ensembles if all(name in names for name in each.of)]
    paths = [record_path(folder.records, name, fraction, seed) for name in names]
    if not all(path.exists() for path in paths):
        return None
    records = [read_record(path) for path in paths]
    same = all(first_difference(record.config, config) is None for record in records)
    kept = all((folder.predictions(fraction, name) / "predictions.json").exists() for name in names)
    return records if same and kept else None
