"""The last stage: answers to dev for every row of a fraction, their scores, and one record per row."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertvision.data.split import write_held_out
from bertvision.encoder.encode import has_pooler
from bertvision.encoder.load import Encoder
from bertvision.errors import FolderError
from bertvision.evaluate.calibrate import reader_answers_of, reader_scores
from bertvision.files import whole_folder
from bertvision.heads.config import is_regression
from bertvision.heads.head import layer_weights, weighted_states
from bertvision.heads.logits import logits_of
from bertvision.kinds.kind import Answering
from bertvision.manifest import is_hashed, write_manifest
from bertvision.predictions.files import PREDICTIONS
from bertvision.predictions.logits import Logits
from bertvision.records import (
    Curves,
    Efficiency,
    Inference,
    RunRecord,
    Seconds,
    TrainingPoint,
    provenance,
    read_record,
    record_path,
    write_mistakes,
    write_record,
)
from bertvision.run_folder import SETTINGS_FINGERPRINT
from bertvision.scoring.calibration import Decision, held_out_decision, score_calibration
from bertvision.scoring.confidence import Answers
from bertvision.scoring.squad import Scores
from bertvision.settings import first_difference
from bertvision.stages.candidates import (
    ENCODER,
    MAJORITY,
    ResultModel,
    earlier_fractions,
    list_models,
    transferred_name,
)
from bertvision.stages.context import RunContext
from bertvision.stages.finetune import tuning_of
from bertvision.stages.heads import frozen_encoder, load_heads, output_layer_of
from bertvision.stages.measure import measure_inference
from bertvision.stages.notes import describe, draw_of, few_held_out, intervals_of, mistakes_of, same_answer
from bertvision.training.history import thinned


class SplitLogits(NamedTuple):
    """A split, and what every row makes of it."""

    answering: Answering
    logits: dict[str, Logits]  # by row

    def answer(self, row: ResultModel, folder: Path) -> Any:  # noqa: ANN401 (what the kind of task calls an answer)
        """Write a row's answers, and give them."""
        answers = self.answering.answer(self.logits[row.name])
        self.answering.write(folder, answers, self.logits[row.name])
        write_manifest(folder)
        return answers

    def score(self, row: ResultModel, answers: Any) -> Scores:  # noqa: ANN401 (what `answer` gave)
        """Score a row's answers."""
        how = row.members.method if row.members is not None else None
        return self.answering.score(answers, self.logits[row.name], how)

    def reader_answers(self, row: ResultModel) -> Answers | None:
        """Return what the decoder `reader` could answer, where it is asked for."""
        return reader_answers_of(self.answering, self.logits[row.name])


class RowScores(NamedTuple):
    """What came out of one row."""

    scores: Scores
    curves: Curves | None = None
    note: str | None = None
    described: Mapping[str, Any] = {}  # further fields of its record
    to_pair: Any = None  # its answers as `Kind.pair` takes them; None of a baseline


class Pass(NamedTuple):
    """What all rows of one fraction and seed share."""

    context: RunContext
    weights: str  # fingerprint of the encoder
    has_pooler: bool
    seconds: float  # of the pass over dev
    notes: list[str]
    dev: SplitLogits
    held_out: SplitLogits | None
    also: dict[str, SplitLogits]
    inference: dict[str, Inference]  # by row, where it was measured


def predict(context: RunContext) -> list[RunRecord]:
    """Answer dev with every row of a fraction, unless all of them have their record, and record what came out."""
    if (made := context.processes.agreed(lambda: _finished_records(context))) is not None:
        return made if context.is_main else []
    encoder, weights = frozen_encoder(context)
    rows = list_models(context, encoder)
    started = time.perf_counter()
    dev = _ask(context, rows, encoder, context.dev)
    seconds = time.perf_counter() - started
    held_out = None
    if context.held_out is not None:
        held_out = _ask(context, rows, encoder, context.held_out)
    also = {name: _ask(context, rows, encoder, each) for name, each in context.also.items()}
    if not context.is_main:
        return []
    if context.held_out is not None:
        write_held_out(context.folder.held_out, context.held_out.split.examples)  # a file of them may have changed
    measured = _measured(context, rows, encoder)
    notes, pooled = _notes(context, rows), has_pooler(encoder)
    this = Pass(context, weights, pooled, seconds, notes, dev, held_out, also, measured)
    scored = {row.name: _score(this, row, place) for place, row in enumerate(rows)}
    behind, records = _behind(this, rows, scored), []
    for place, row in enumerate(rows):
        found = scored[row.name]
        if found.note is not None:
            context.progress.say(f"warning: {row.name}: {found.note}")
        record = _record(this, row, place, found).model_copy(update={"behind_best": behind.get(row.name)})
        write_record(context.folder.records, record)
        records.append(record)
    return records


def files_of(context: RunContext, record: RunRecord) -> list[Path]:
    """Return the files without which a record's result is not whole: itself, its answers, and its model."""
    folder, names = context.folder, [] if record.kind == "baseline" else [record.model]
    is_head = record.kind in ("head", "control") and record.head_fraction is None
    models = [folder.head(record.model)] if is_head else []
    models += [folder.encoder(context.fraction)] if context.fraction is not None else []
    own = record_path(folder.records, record.model, record.fraction, record.seed)
    return [own, *_answer_files(context, names), *(place / SETTINGS_FINGERPRINT for place in models)]


def _notes(context: RunContext, rows: Sequence[ResultModel]) -> list[str]:
    names = [row.name for row in rows]
    heads = [head.name for head in context.experiment.heads.train if head.name not in names]
    notes = [f"head {name} diverged and was left out" for name in heads]
    for ensemble in context.experiment.ensembles:
        if lacking := [name for name in ensemble.models if name not in names]:
            notes.append(f"ensemble {ensemble.name} was left out, because there is no row {lacking[0]}")
    return notes + few_held_out(context)


def _ask(context: RunContext, rows: Sequence[ResultModel], encoder: Encoder, answering: Answering) -> SplitLogits:
    """Run the encoder once for all rows, then combine rows to ensembles."""
    heads = {row.name: row.head for row in rows if row.head is not None}
    tokens, per = context.experiment.answers.batch_tokens, context.objective.per
    logits = logits_of(encoder, heads, answering.windows, per, context.compute, context.progress, tokens)
    for row in rows:
        if row.members is not None:
            members = [logits[name] for name in row.members.models]
            logits[row.name] = answering.combine(members, row.members.method, None)
    return SplitLogits(answering, logits)


def _measured(context: RunContext, rows: Sequence[ResultModel], encoder: Encoder) -> dict[str, Inference]:
    """Measure every row that is one model by itself, where the experiment asks for it."""
    if context.experiment.measure is None:
        return {}
    compute, tokens = context.compute, context.experiment.answers.batch_tokens
    return {
        row.name: measure_inference(encoder, row.config, row.head, context.dev.windows, compute, tokens)
        for row in rows
        if row.head is not None and row.config is not None
    }


def _efficiency(this: Pass, row: ResultModel) -> Efficiency | None:
    if row.kind == "baseline":
        return None
    costs = tuning_of(this.context).costs
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


def _score(this: Pass, row: ResultModel, place: int) -> RowScores:
    """Write a row's answers and score those to dev; what is tuned is tuned on the held-out ones."""
    context, folder = this.context, this.context.folder
    if row.kind == "baseline":
        return _baseline(context)
    with whole_folder(folder.predictions(row.name)) as beside:
        answers = this.dev.answer(row, beside)
        scores = this.dev.score(row, answers)
        note, described = same_answer(this.dev.answering, answers), describe(this.dev.answering, answers)
        write_mistakes(beside, mistakes_of(context, row.name, place, answers, row.told.suspects))
        for name, asked in this.also.items():
            also = asked.answer(row, beside / name)
            scores |= {f"{name}_{metric}": score for metric, score in asked.score(row, also).items()}
            bounds = intervals_of(asked.answering.golds, also)
            described["intervals"] |= {f"{name}_{metric}": each for metric, each in bounds.items()}
    to_pair = context.task.kind.to_pair(context.dev.golds, answers)
    held_out = None
    if this.held_out is not None:
        with whole_folder(folder.held_out_predictions(row.name)) as beside:
            held_out = (this.held_out.answering.split.examples, this.held_out.answer(row, beside))
        score = this.held_out.score(row, held_out[1]).get(context.metric)
        scores |= {} if score is None else {context.watched_score: score}  # to choose settings by
    scores |= _reader_scores(this, row)
    if not context.task.kind.has_null:
        return RowScores(scores, None, note, described, to_pair)
    dev = (this.dev.answering.split.examples, answers)
    calibrated, curves = score_calibration(dev, held_out, context.experiment.answers.null_threshold)
    return RowScores(scores | calibrated, curves, note, described, to_pair)


def _reader_scores(this: Pass, row: ResultModel) -> Scores:
    """Score the decoder `reader` as it is and as tuned on the held-out questions, where it is asked for."""
    dev = this.dev.reader_answers(row)
    if dev is None:
        return {}
    held_out = this.held_out.reader_answers(row) if this.held_out is not None else None
    tuned = None if held_out is None or not this.context.task.kind.has_null else held_out_decision(held_out)
    return reader_scores(dev, Decision(this.context.experiment.answers.null_threshold), tuned)


def _baseline(context: RunContext) -> RowScores:
    train, kind = context.task.train.examples, context.task.kind
    scores: Scores = {}
    intervals: dict[str, tuple[float, float]] = {}
    for start, asked in {"": context.dev, **{f"{name}_": each for name, each in context.also.items()}}.items():
        guesses = kind.guesses(asked.golds, train)
        scores |= {f"{start}{metric}": score for metric, score in kind.score(asked.golds, guesses).items()}
        bounds = intervals_of(asked.golds, guesses)
        intervals |= {f"{start}{metric}": each for metric, each in bounds.items()}
    return RowScores(scores, described={"intervals": intervals})


def _behind(
    this: Pass, rows: Sequence[ResultModel], scored: Mapping[str, RowScores]
) -> dict[str, tuple[float, float] | None]:
    """Return how far the best single model lies above every model, paired by the examples of dev."""
    metric, asked = this.context.metric, this.dev.answering
    able = [row for row in rows if row.kind != "baseline" and metric in scored[row.name].scores]
    single = [row.name for row in able if row.kind != "ensemble" and row.head_fraction is None]
    if not single:
        return {}
    best = scored[max(single, key=lambda name: scored[name].scores[metric])].to_pair
    draw = draw_of(len(asked.split.examples))
    kind, golds = asked.info.kind, asked.golds
    return {row.name: kind.lead(golds, best, scored[row.name].to_pair, metric, draw) for row in able}


def _record(this: Pass, row: ResultModel, place: int, found: RowScores) -> RunRecord:
    context, config = this.context, this.context.experiment
    epochs = {**row.epochs, row.best or config.heads.epochs: found.scores} if row.kind in ("head", "control") else {}
    return RunRecord(
        experiment=config.name,
        variant=config.variant,
        method=config.method,
        task=config.task,
        model=row.name,
        kind=row.kind,
        position=place,
        fraction=context.fraction,
        head_fraction=row.head_fraction,
        seed=context.seed,
        encoder_lr=None if context.fraction is None else config.finetune.lr,
        **_own_settings(this, row),
        scores=found.scores,
        extra_scores=this.context.extra_scores,
        fewer_rows=row.told.fewer_rows,
        **found.described,
        epoch_scores=[epochs[epoch] for epoch in sorted(epochs)],
        training=_course(this, row, found.scores),
        curves=found.curves,
        parameters=row.parameters,
        seconds=Seconds(
            finetune=round(tuning_of(context).costs.seconds, 3),
            heads=row.seconds,
            predict=round(this.seconds, 3),
        ),
        efficiency=_efficiency(this, row),
        layer_weights=layer_weights(row.head) if row.head is not None else None,
        weighted_states=weighted_states(row.head, has_pooler=this.has_pooler) if row.head is not None else None,
        states=row.states,
        step_mode=row.steps,
        schedule_horizon=config.finetune.horizon,
        notes=[*this.notes, *_choice(this, row), *([] if found.note is None else [found.note])],
        data=context.data(),
        encoder_fingerprint=this.weights,
        config=config.model_dump(mode="json"),
        provenance=provenance(context.compute.name, context.compute.precision),
    )


def _course(this: Pass, row: ResultModel, scores: Scores) -> list[TrainingPoint]:
    """Return the course of a row's training; weights that are those of its last step have the score of the row."""
    points = thinned(row.points)
    if points and points[-1].score is None and row.best is None:
        points[-1] = points[-1].model_copy(update={"score": scores.get(this.context.watched_score)})
    return points


def _choice(this: Pass, row: ResultModel) -> list[str]:
    """Say which weights a row has where the best ones were kept, and what they were chosen on."""
    if row.best is None or not row.points:
        return []
    is_encoder, last = row.kind == "encoder", row.points[-1]
    kept = f"step {row.best} of {last.step}" if is_encoder else f"epoch {row.best} of {round(last.epoch)}"
    if this.context.held_out is not None:
        return [f"its weights are those of {kept}, the best on the held-out {this.context.task.kind.nouns}"]
    return [
        f"its weights are those of {kept}, the best on dev: its scores there flatter it; set data.held_out to choose "
        "on other rows"
    ]


def _own_settings(this: Pass, row: ResultModel) -> dict[str, Any]:
    """Return what sets a head's training apart from that of others; nothing for other rows."""
    if row.config is None or row.kind not in ("head", "control"):
        return {}
    if is_regression(row.config):
        return {"variant_of": row.config.variant_of}
    lr = row.config.lr or this.context.experiment.heads.lr
    return {"variant_of": row.config.variant_of, "lr": lr, "weight_decay": row.config.weight_decay}


def _finished_records(context: RunContext) -> list[RunRecord] | None:
    """Return the records of a fraction where all are there, made by this very experiment on these very data."""
    # Who was shown the training changes no result.
    config, folder = {**context.experiment.model_dump(mode="json"), "report_to": None}, context.folder
    names = [] if output_layer_of(context) is None else [ENCODER]
    names += load_heads(context)
    names += [each.name for each in context.experiment.ensembles if all(name in names for name in each.models)]
    for fraction in earlier_fractions(context):
        names += [transferred_name(name, fraction) for name in load_heads(context.at(context.seed, fraction))]
    baseline = [MAJORITY] if context.task.kind.has_baseline else []
    paths = [record_path(folder.records, name, context.fraction, context.seed) for name in [*baseline, *names]]
    if not all(map(is_hashed, paths)) or not all(path.exists() for path in _answer_files(context, names)):
        return None
    records = [read_record(path) for path in paths]
    same = all(
        record.data == context.data() and first_difference({**record.config, "report_to": None}, config) is None
        for record in records
    )
    if not same:
        return None
    for record in records:
        if record.extra_scores != context.extra_scores:
            raise FolderError(
                f"{context.out}: its results have {_named(record.extra_scores)}, this run has "
                f"{_named(context.extra_scores)}; give the same extra_scores, or choose another folder"
            )
    return records


def _named(extra_scores: Sequence[str]) -> str:
    return f"the extra scores {', '.join(extra_scores)}" if extra_scores else "no extra scores"


def _answer_files(context: RunContext, names: Sequence[str]) -> list[Path]:
    """Return the files of answers that some rows have."""
    folder = context.folder
    places = [folder.predictions(name) for name in names]
    places += [place / part for place in places for part in context.also]
    if context.held_out is None:
        return [place / PREDICTIONS for place in places]
    places += [folder.held_out_predictions(name) for name in names]
    return [*(place / PREDICTIONS for place in places), folder.held_out]
