"""The rows of one fraction: the encoder with its output layer, the heads on it, and ensembles of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bertvision.encoder.load import Encoder
from bertvision.experiment import EnsembleConfig
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import Head, count_parameters
from bertvision.model_folder import read_model_config
from bertvision.records import Parameters, ResultKind, TrainingPoint, fraction_name
from bertvision.scoring.squad import Scores
from bertvision.stages.context import RunContext
from bertvision.stages.finetune import TRAINING, TuningReport, read_tuning
from bertvision.stages.heads import TrainedHead, encoder_folder, load_heads, output_layer_of
from bertvision.stages.notes import Told

ENCODER, MAJORITY = "encoder", "majority"


@dataclass(frozen=True)
class ResultModel:
    """One line of the results: the encoder's own output layer, a head, or an ensemble of rows."""

    name: str
    kind: ResultKind
    parameters: Parameters
    head: Head | None = None  # None for an ensemble
    config: HeadConfig | None = None  # of that head
    ship_parameters: int = 0  # what differs from the encoder that training started from
    members: EnsembleConfig | None = None
    seconds: float | None = None  # of the pass that trained it
    epochs: dict[int, Scores] = field(default_factory=dict)  # scores after epochs other than the reported one
    states: str = "live"  # where its training took states from
    points: Sequence[TrainingPoint] = ()  # the course of its training
    best: int | None = None  # where the best weights are kept: the encoder's step, a head's epoch
    steps: str | None = None  # how fine-tuning took its steps
    told: Told = Told()  # what a regression tells beside its scores
    head_fraction: float | None = None  # that its head was trained at, where it is another one than this


BASELINE = ResultModel(MAJORITY, "baseline", Parameters(total=0, trainable=0, encoder=0))


def list_models(context: RunContext, encoder: Encoder) -> list[ResultModel]:
    """List the encoder, heads and ensembles that can be scored; an encoder as given has no output layer of its own."""
    size, inside = encoder.num_parameters, 0
    rows = [BASELINE] if context.task.kind.has_baseline else []
    if (output := output_layer_of(context)) is not None:
        place, own = encoder_folder(context), count_parameters(output)
        tuning = read_tuning(place) if (place / TRAINING).exists() else TuningReport()
        learned = size + own.total if tuning.trained is None else tuning.trained
        inside = learned - own.trainable if context.fraction is not None else 0
        parameters = Parameters(total=size + own.total, trainable=learned, encoder=size)
        config = read_model_config(place).head
        row = ResultModel(ENCODER, "encoder", parameters, output, config, inside + own.total)
        rows.append(replace(row, points=tuning.points, best=tuning.best, steps=tuning.steps))
    for name, trained in load_heads(context).items():
        row = replace(_head_row(name, trained, size, inside), epochs=trained.epochs, states=trained.states)
        rows.append(replace(row, points=trained.points, best=trained.best, told=trained.told))
    rows += _ensembles(context.experiment.ensembles, rows, size, inside)
    return rows + _transferred(context, size, inside)


def _transferred(context: RunContext, size: int, inside: int) -> list[ResultModel]:
    """List heads that were trained on an earlier fraction's states, to be asked with those of this one."""
    rows = []
    for fraction in earlier_fractions(context):
        for name, trained in load_heads(context.at(context.seed, fraction)).items():
            row = _head_row(transferred_name(name, fraction), trained, size, inside)
            rows.append(replace(row, head_fraction=fraction))
    return rows


def _head_row(name: str, trained: TrainedHead, size: int, inside: int) -> ResultModel:
    count = count_parameters(trained.head)
    parameters = Parameters(total=count.total, trainable=count.trainable, encoder=size)
    ship = inside + count.total
    return ResultModel(
        name, trained.config.kind, parameters, trained.head, trained.config, ship, seconds=trained.seconds
    )


def earlier_fractions(context: RunContext) -> list[float]:
    """Return the fractions whose heads are also asked with this one's states (`transfer`)."""
    here = context.fraction
    return [each for each in context.experiment.transfer or () if here is not None and each < here]


def transferred_name(head: str, fraction: float) -> str:
    """Return the row of a head that was trained on an earlier fraction's states."""
    return f"{head}-of-{fraction_name(fraction)}"


def _ensembles(
    configs: Sequence[EnsembleConfig], rows: Sequence[ResultModel], size: int, inside: int
) -> list[ResultModel]:
    by_name = {row.name: row for row in rows}
    ensembles = []
    for config in configs:
        if all(name in by_name for name in config.models):  # a head may have diverged
            members = [by_name[name] for name in config.models]
            total = sum(row.parameters.total for row in members)
            trainable = sum(row.parameters.trainable for row in members)
            parameters = Parameters(total=total, trainable=trainable, encoder=size)
            seconds = max(row.seconds or 0.0 for row in members)
            ship = inside + sum(row.ship_parameters - inside for row in members)
            row = ResultModel(
                config.name, "ensemble", parameters, ship_parameters=ship, members=config, seconds=seconds
            )
            ensembles.append(row)
    return ensembles
