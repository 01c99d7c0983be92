"""The figures of a report: what each is called, shows and needs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bertvision.records import RunRecord, fraction_name
from bertvision.report.figures import f1_by_parameters, finetuning_curve, largest_fraction, layer_weights
from bertvision.report.rows import Row, table_rows


class Picture(NamedTuple):
    """A figure with its words."""

    name: str  # of its file
    title: str
    draw: Callable[[Sequence[RunRecord]], str | None]
    caption: str
    describe: Callable[[Sequence[RunRecord]], str]  # for those who cannot see it
    missing: str  # what to do where its records are missing; ends with the command
    command: str = "bertvision run EXPERIMENT.yaml"


def describe_weights(records: Sequence[RunRecord]) -> str:
    """Say which layer each head weighs most, at the largest fraction."""
    rows = largest_fraction([row for row in table_rows(records) if row.layer_weights])
    heaviest = "; ".join(f"{row.name}: layer {_heaviest_layer(row)}" for row in rows)
    fraction = fraction_name(rows[0].fraction) if rows else ""
    return f"Line charts of a weight for each layer, by head. Heaviest layer at fraction {fraction}: {heaviest}."


def _heaviest_layer(row: Row) -> str:
    weights = [weight.mean for weight in row.layer_weights or ()]
    return f"{weights.index(max(weights))} (weight {max(weights):.2f})"


GALLERY = (
    Picture(
        name="finetuning_curve",
        title="Scores by how long the encoder was tuned",
        draw=finetuning_curve,
        caption="Each line is one model on the same encoder, stopped at several fractions of an epoch (0: used as "
        "given). Solid lines are the encoder's own output layer (stars) and the heads, dashed lines controls, dotted "
        "lines ensembles; bars show one standard deviation where there are several seeds.",
        describe=lambda records: (
            "Line charts of the table's F1 and span F1 against the fraction, with a line for each model."
        ),
        missing="The fine-tuning curve needs scored records of two or more fractions. "
        "List the fractions in the experiment's file and run",
    ),
    Picture(
        name="layer_weights",
        title="What each head learned to read",
        draw=layer_weights,
        caption="The share of each layer in the mix that a head learned, by fraction of fine-tuning. "
        "Layer 0 is the embedding output; the dashed line is where all layers would count alike.",
        describe=describe_weights,
        missing="The layer weights need a head that weighs the layers, such as learned_pooling. "
        "Add one to heads.train in the experiment's file and run",
    ),
    Picture(
        name="f1_by_parameters",
        title="F1 by number of trained parameters",
        draw=f1_by_parameters,
        caption="Models at the largest fraction. Circles are heads, squares controls, triangles ensembles and the star "
        "the encoder, which counts all of its own parameters, as ensembles with it do; every other model counts what "
        "it adds.",
        describe=lambda records: "Scatter chart of the table's F1 against its parameters, for the largest fraction.",
        missing="The chart of F1 by parameters needs records with an F1. Score a run with",
    ),
)
