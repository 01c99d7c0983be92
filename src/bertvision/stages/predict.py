"""The last stage: answers to dev for every row of a fraction, their scores, and one record per row."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.encoder.load import Encoder
from bertvision.evaluate.calibration import score_calibration
from bertvision.files import whole_folder
from bertvision.heads.head import layer_weights
from bertvision.kinds.kind import Answering
from bertvision.metrics.squad import Scores
from bertvision.predictions.logits import Logits
from bertvision.predictions.prediction import without_collecting
from bertvision.records import (
    Curves,
    Efficiency,
    Inference,
    RunRecord,
    Seconds,
    provenance,
    read_record,
    record_path,
    write_record,
)
from bertvision.settings import first_difference
from bertvision.stages.finetune import finetune_costs, finetune_seconds
from bertvision.stages.heads import frozen_encoder, load_heads
from bertvision.stages.line import Line
from bertvision.stages.logits import logits_of
from bertvision.stages.measure import measure_inference
from bertvision.stages.rows import ENCODER, MAJORITY, Row, list_rows, output_layer_of
from bertvision.tasks.held_out import write_squad
from bertvision.training.accounting import Costs


class Asked(NamedTuple):
    """A split, and what every row makes of it."""

    answering: Answering
    logits: dict[str, Logits]  # by row

    def answer(self, row: Row, folder: Path) -> Any:  # noqa: ANN401 (what the kind of task calls an answer)
        """Write a row's answers, and give them."""
        answers = self.answering.answer(self.logits[row.name])
        self.answering.write(folder, answers, self.logits[row.name])
        return answers

    def score(self, row: Row, answers: Any) -> Scores:  # noqa: ANN401 (what `answer` gave)
        """Score a row's answers."""
        how = row.members.how if row.members is not None else None
        return self.answering.score(answers, self.logits[row.name], how)


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
    also: dict[str, Asked]
    inference: dict[str, Inference]  # by row, where it was measured


def predict(line: Line, seed: int, fraction: float | None) -> list[RunRecord]:
    """Answer dev with every row of a fraction, unless all of them have their record, and record what came out."""
    if (made := _finished_records(line, seed, fraction)) is not None:
        return made
    encoder, weights = frozen_encoder(line, seed, fraction)
    rows = list_rows(line, seed, fraction, encoder)
    started = time.perf_counter()
    dev = _ask(line, rows, encoder, line.dev)
    seconds = time.perf_counter() - started
    held_out = None
    if line.held_out is not None:
        held_out = _ask(line, rows, encoder, line.held_out)
        if not line.folder(seed).held_out.exists():
            write_squad(line.folder(seed).held_out, line.held_out.split.examples)
    also = {name: _ask(line, rows, encoder, each) for name, each in line.also.items()}
    measured = _measured(line, rows, encoder)
    this = Pass(line, seed, fraction, weights, seconds, _notes(line, rows), dev, held_out, also, measured)
    records = []
    for place, row in enumerate(rows):
        with without_collecting():
            scores, curves = _score(this, row)
        record = _record(this, row, place, scores, curves)
        write_record(line.folder(seed).records, record)
        records.append(record)
    return records


def _notes(line: Line, rows: Sequence[Row]) -> list[str]:
    names = [row.name for row in rows]
    heads = [head.name for head in line.experiment.heads.train if head.name not in names]
    notes = [f"head {name} diverged and was left out" for name in heads]
    for ensemble in line.experiment.ensembles:
        if lacking := [name for name in ensemble.of if name not in names]:
            notes.append(f"ensemble {ensemble.name} was left out, because there is no row {lacking[0]}")
    return notes


def _ask(line: Line, rows: Sequence[Row], encoder: Encoder, answering: Answering) -> Asked:
    """Run the encoder once for all rows, then combine rows to ensembles."""
    heads = {row.name: row.head for row in rows if row.head is not None}
    tokens, per = line.experiment.answers.tokens, line.objective.per
    logits = logits_of(encoder, heads, answering.windows, per, line.compute, line.progress, tokens)
    for row in rows:
        if row.members is not None:
            members = [logits[name] for name in row.members.of]
            logits[row.name] = answering.combine(members, row.members.how, row.members.weights)
    return Asked(answering, logits)


def _measured(line: Line, rows: Sequence[Row], encoder: Encoder) -> dict[str, Inference]:
    """Measure every row that is one model by itself, where the experiment asks for it."""
    if line.experiment.measure is None:
        return {}
    compute, tokens = line.compute, line.experiment.answers.tokens
    return {
        row.name: measure_inference(encoder, row.config, row.head, line.dev.windows, compute, tokens)
        for row in rows
        if row.head is not None and row.config is not None
    }


def _efficiency(this: Pass, row: Row) -> Efficiency | None:
    costs: Costs | None = Costs()
    if this.fraction is not None:
        costs = finetune_costs(this.line.folder(this.seed).encoder(this.fraction))
    if costs is None or row.kind == "baseline":
        return None
    return Efficiency(
        encoder_seconds=round(costs.seconds - costs.data_seconds, 3),
        heads_seconds=row.seconds or 0.0,
        data_seconds=round(costs.data_seconds, 3),
        peak_process_bytes=costs.peak_process_bytes,
        peak_device_bytes=costs.peak_device_bytes,
        joules=costs.joules,
        ship_bytes=4 * row.ship_parameters,
        inference=this.inference.get(row.name),
    )


def _score(this: Pass, row: Row) -> tuple[Scores, Curves | None]:
    """Write a row's answers and score those to dev; what is tuned is tuned on the held-out ones."""
    line, folder = this.line, this.line.folder(this.seed)
    if row.kind == "baseline":
        return _baseline_scores(line), None
    with whole_folder(folder.predictions(this.fraction, row.name)) as beside:
        answers = this.dev.answer(row, beside)
        scores = this.dev.score(row, answers)
        for name, asked in this.also.items():
            more = asked.score(row, asked.answer(row, beside / name))
            scores |= {f"{name}_{metric}": score for metric, score in more.items()}
    held_out = None
    if this.held_out is not None:
        with whole_folder(folder.held_out_predictions(this.fraction, row.name)) as beside:
            held_out = (this.held_out.answering.split.examples, this.held_out.answer(row, beside))
        scores["held_out_f1"] = this.held_out.score(row, held_out[1])["f1"]  # to choose settings by
    if not line.task.kind.has_null:
        return scores, None
    dev = (this.dev.answering.split.examples, answers)
    calibrated, curves = score_calibration(dev, held_out, line.experiment.answers.null_threshold)
    return scores | calibrated, curves


def _baseline_scores(line: Line) -> Scores:
    train, kind = line.task.train.examples, line.task.kind
    scores = kind.guess_scores(line.dev.golds, train)
    for name, asked in line.also.items():
        more = kind.guess_scores(asked.golds, train)
        scores |= {f"{name}_{metric}": score for metric, score in more.items()}
    return scores


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
        efficiency=_efficiency(this, row),
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
    names = [] if output_layer_of(line, seed, fraction) is None else [ENCODER]
    names += load_heads(line, seed, fraction)
    names += [each.name for each in line.experiment.ensembles if all(name in names for name in each.of)]
    baseline = [MAJORITY] if line.task.kind.has_baseline else []
    paths = [record_path(folder.records, name, fraction, seed) for name in [*baseline, *names]]
    places = [folder.predictions(fraction, name) for name in names]
    places += [place / part for place in places for part in line.also]
    answers = [place / "predictions.json" for place in places]
    if line.held_out is not None:
        answers += [folder.held_out_predictions(fraction, name) / "predictions.json" for name in names]
        answers.append(folder.held_out)
    if not all(path.exists() for path in [*paths, *answers]):
        return None
    records = [read_record(path) for path in paths]
    same = all(record.data == line.data() and first_difference(record.config, config) is None for record in records)
    return records if same else None
