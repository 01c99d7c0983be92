"""The figures of a report: what each is called, shows and needs.

Those of the main score, against parameters, training time and inference time, are drawn here.
"""

from collections.abc import Callable, Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from bertvision.records import ResultKind, RunRecord, state_name
from bertvision.report.answer_figures import (
    predicted_by_true,
    question_types,
    reliability,
    risk_coverage,
    threshold_curve,
)
from bertvision.report.drawing import (
    Series,
    Style,
    curves_of,
    draw_baselines,
    draw_curves,
    draw_series,
    few_models,
    fraction_label,
    main_measure,
    panels,
    row_styles,
    title_of,
    title_of_few,
)
from bertvision.report.learning_figures import finetuning_curve, layer_weights, less_data_curve, training_curve
from bertvision.report.measures import Measure
from bertvision.report.pictures import RUN, Picture
from bertvision.report.results import Result, full_results, largest_fraction, trained
from bertvision.tables import Statistic

KIND_MARKERS: dict[ResultKind, str] = {"encoder": "*", "head": "o", "control": "s", "ensemble": "^"}
FEW_POWERS = 100  # times as many weights as the smallest model: below it, one tick or two would have a number


def score_by_parameters(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against trainable parameters, for the largest fraction that has scores; None without."""
    every, measure = scored_results(records)
    rows = few_models(every)
    models = largest_fraction(trained(rows))
    if not models:
        return None
    styles = _point_styles(rows)
    legend = {f"{number}  {row.name}": styles[row.name] for number, row in enumerate(models, start=1)}
    figure, (axis,) = panels(1, {**legend, **_baselines(rows, styles)})
    for number, row in enumerate(models, start=1):
        _draw_point(axis, row.parameters, row.scores[measure.key], styles[row.name], str(number))
    draw_baselines(axis, rows, measure.key)
    scale_by_powers(axis, [row.parameters for row in models])
    title = f"{title_of(main_measure(rows))}, {fraction_label(models[0])}"
    axis.set_title(title_of_few(every, rows, title), loc="left")
    axis.set_xlabel("trainable parameters")
    axis.margins(0.12)
    return figure


def score_by_training(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of training; None without scores."""
    return _by_seconds(records, "seconds of training", lambda row: row.seconds)


def score_by_inference(records: Iterable[RunRecord]) -> Figure | None:
    """Draw the main score against the seconds of the pass over dev; None without scores."""
    return _by_seconds(records, "seconds of the pass over dev", lambda row: row.inference_seconds)


def scored_results(records: Iterable[RunRecord]) -> tuple[list[Result], Measure]:
    """Return the results that have the main score, and that score."""
    rows = full_results(records)
    measure = main_measure(rows)
    return [row for row in rows if measure.key in row.scores], measure


def scale_by_powers(axis: Axes, counts: Sequence[int]) -> None:
    """Let an axis of counts be logarithmic, with plain numbers at its ticks."""
    if all(counts):
        axis.set_xscale("log")
        if max(counts) < FEW_POWERS * min(counts):
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_formatter(NullFormatter())  # its own writes formulas, which are not parsed here
    else:  # a logarithm has no place for a model without weights of its own
        axis.set_xscale("symlog", linthresh=min((count for count in counts if count), default=1))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def _by_seconds(records: Iterable[RunRecord], label: str, seconds_of: Callable[[Result], float]) -> Figure | None:
    every, measure = scored_results(records)
    rows = few_models(every)
    if not trained(rows):
        return None
    figure, (axis,) = panels(1, row_styles(rows))
    draw_curves(axis, curves_of(rows, measure, seconds_of), rows, measure)
    axis.set_title(title_of_few(every, rows, title_of(main_measure(rows))), loc="left")
    axis.set_xlabel(label)
    axis.set_xlim(left=0)
    return figure


def _point_styles(rows: Sequence[Result]) -> dict[str, Style]:
    styles = row_styles(rows)
    points = {row.name: KIND_MARKERS[row.kind] for row in trained(rows)}
    return {
        name: style._replace(marker=points[name], line="") if name in points else style
        for name, style in styles.items()
    }


def _baselines(rows: Sequence[Result], styles: dict[str, Style]) -> dict[str, Style]:
    return {row.name: styles[row.name] for row in rows if row.kind == "baseline"}


def _draw_point(axis: Axes, parameters: int, score: Statistic, style: Style, label: str) -> None:
    draw_series(axis, Series(label, style, [float(parameters)], [score]))
    axis.annotate(label, (parameters, score.mean), textcoords="offset points", xytext=(6, 4), fontsize=10)


QUESTIONS = ("squad2",)  # tasks with questions that have no answer
BEST_OF = "The encoder and the six models with the highest F1 at most, at the largest fraction, of the first seed. "
AGAIN = "which these do not have. Make them again with"


def describe_weights(records: Sequence[RunRecord]) -> str:
    """Say which layer each head weighs most, at the largest fraction."""
    rows = largest_fraction([row for row in full_results(records) if row.layer_weights])
    heaviest = "; ".join(f"{row.name}: {_heaviest_state(row)}" for row in rows)
    fraction = rows[0].fraction_text if rows else ""
    return f"Line charts of a weight for each layer, by head. Heaviest layer at fraction {fraction}: {heaviest}."


def _heaviest_state(row: Result) -> str:
    weights = [weight.mean for weight in row.layer_weights or ()]
    return f"{state_name(row.weighted_states[weights.index(max(weights))])} (weight {max(weights):.2f})"


def _says(text: str) -> Callable[[Sequence[RunRecord]], str]:
    return lambda records: text


GALLERY = (
    Picture(
        name="less_data_curve",
        title="Scores by how much data a model was trained on",
        figure=less_data_curve,
        caption="Each line is one model at the largest fraction. On an encoder as given, a run fits its regressions to "
        "an eighth, a quarter and half of the rows as well (the mean of three draws, of the first seed). Other heads "
        "are shown where runs with several heads.data_fraction are reported together; the encoder saw as much in each.",
        describe=_says("Line chart of the table's main score against the amount of data, with a line per model."),
        missing="The less-data curve needs records of two or more shares of the heads' training data. Run the "
        "experiment for each into a folder of its own, then report the folder above them:",
        command=f"{RUN} --set heads.data_fraction=0.1 --out FOLDER/0.1",
    ),
    Picture(
        name="predicted_by_true",
        title="Predicted and true numbers",
        figure=predicted_by_true,
        caption="The best model's numbers for dev, of the first seed; at most 500 of them, evenly spread. Both are "
        "equal on the dashed line.",
        describe=_says(
            "Scatter chart of predicted against true numbers; the tables hold their correlation and errors."
        ),
        missing="",
        tasks=(),
    ),
    Picture(
        name="training_curve",
        title="How the models learned",
        figure=training_curve,
        caption="Loss, and where it was computed the score on held-out rows (without any: on dev), over the steps of "
        "training, at the largest fraction, of the first seed. A loss is the mean over the steps since the last point. "
        "Regressions take no steps.",
        describe=_says("Line charts of loss and score over the steps of training, with a line for each model."),
        missing="",
        tasks=(),
    ),
    Picture(
        name="finetuning_curve",
        title="Scores by how long the encoder was tuned",
        figure=finetuning_curve,
        caption="Each line is one model on the same encoder, stopped at several fractions of an epoch (0: used as "
        "given). Solid lines are the encoder's own output layer (stars) and the heads, dashed lines controls, dotted "
        "lines ensembles; bars show one standard deviation where there are several seeds.",
        describe=_says("Line charts of the table's scores against the fraction, with a line for each model."),
        missing="The fine-tuning curve needs scored records of two or more fractions. "
        "List the fractions in the experiment's file and run",
    ),
    Picture(
        name="question_types",
        title="F1 by type of question",
        figure=question_types,
        caption="Models at the largest fraction. One that rarely abstains is good at the first type and bad at the "
        "second.",
        describe=_says("Bar chart of each model's F1 on questions with an answer and on those without."),
        missing="The chart by type of question needs records with HasAns_f1 and NoAns_f1. Score a run with",
        tasks=QUESTIONS,
    ),
    Picture(
        name="layer_weights",
        title="What each head learned to read",
        figure=layer_weights,
        caption="The share of each layer in the mix that a head learned, by fraction of fine-tuning. "
        "Layer 0 is the embedding output; the dashed line is where all layers would count alike.",
        describe=describe_weights,
        missing="The layer weights need a head that weighs the layers, such as learned_pooling. "
        "Add one to heads.train in the experiment's file and run",
    ),
    Picture(
        name="score_by_parameters",
        title="Score by number of trained parameters",
        figure=score_by_parameters,
        caption="Models at the largest fraction. Circles are heads, squares controls, triangles ensembles and the star "
        "the encoder, which counts those of its own parameters that were trained, as ensembles with it do; every other "
        "model counts what it adds.",
        describe=_says("Scatter chart of the table's main score against its parameters, for the largest fraction."),
        missing="The chart of scores by parameters needs scored records. Score a run with",
    ),
    Picture(
        name="score_by_training",
        title="Score by time of training",
        figure=score_by_training,
        caption="Each line is one model at several fractions: the seconds of fine-tuning up to there and, for heads, "
        "of the one pass that trained all of them together.",
        describe=_says("Line chart of the table's main score against its seconds, with a line for each model."),
        missing="The chart of scores by training time needs scored records. Score a run with",
    ),
    Picture(
        name="score_by_inference",
        title="Score by time of inference",
        figure=score_by_inference,
        caption="Each line is one model at several fractions. Encoder and heads answer in one pass over the dev data, "
        "so that models of one fraction and run have the same seconds, unless each was measured alone.",
        describe=_says("Line chart of the table's main score against the seconds of the pass over the dev data."),
        missing="The chart of scores by inference time needs scored records. Score a run with",
    ),
    Picture(
        name="threshold_curve",
        title="F1 by threshold for “no answer”",
        figure=threshold_curve,
        caption=BEST_OF + "A question gets no answer where “no answer” scores higher than the best span by more than "
        "the threshold.",
        describe=_says("Line chart of F1 against the threshold; the tables hold the F1 at 0, tuned and best."),
        missing=f"The threshold curve needs records with scores at many thresholds, {AGAIN}",
        tasks=QUESTIONS,
    ),
    Picture(
        name="reliability",
        title="How often answers are right by how probable they are",
        figure=reliability,
        caption=BEST_OF + "A model whose probabilities mean what they say lies on the dashed line; below it the "
        "probabilities are too high. After calibration: with a temperature and threshold fitted on held-out training "
        "data, where the experiment holds some out (data.held_out).",
        describe=_says("Line charts of the share of right answers by probability, before and after calibration."),
        missing=f"The reliability diagram needs records with probabilities, {AGAIN}",
        tasks=QUESTIONS,
    ),
    Picture(
        name="risk_coverage",
        title="Errors by how many questions are answered",
        figure=risk_coverage,
        caption=BEST_OF + "From left to right less and less probable answers are given, and the share of wrong ones "
        "among them rises; the area under a line is the table's AURC.",
        describe=_says("Line chart of the share of wrong answers against the share of questions answered."),
        missing=f"The risk-coverage curve needs records with probabilities, {AGAIN}",
        tasks=QUESTIONS,
    ),
)
