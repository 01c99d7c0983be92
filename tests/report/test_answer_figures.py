import pytest

from bertvision.records import Curves
from bertvision.report.answer_figures import (
    predicted_by_true,
    question_types,
    reliability,
    risk_coverage,
    threshold_curve,
)
from bertvision.report.drawing import PALETTE, house_look


def axes_of(figure, records):
    with house_look():
        return figure(records).axes


def points(line):
    return [tuple(point) for point in line.get_xydata().tolist()]


@pytest.mark.parametrize("figure", [question_types, threshold_curve, reliability, risk_coverage, predicted_by_true])
def test_records_without_curves_and_types_make_no_figure(figure, make_record):
    assert figure([make_record()]) is None
    assert figure([make_record(curves=Curves())]) is None


def test_question_types_have_a_pair_of_bars_per_model_at_the_largest_fraction(make_record):
    records = [
        make_record(model=row, fraction=fraction, scores={"HasAns_f1": has, "NoAns_f1": 30.0})
        for row, fraction, has in (("a", 0.5, 50.0), ("a", 1.0, 60.0), ("b", 1.0, 70.0))
    ]
    (axis,) = axes_of(question_types, records)
    assert [bar.get_width() for bar in axis.patches] == [60.0, 30.0, 70.0, 30.0]
    assert [text.get_text() for text in axis.texts] == ["a", "b"]


def test_a_threshold_curve_shows_f1_and_marks_0_tuned_and_best(make_record):
    curves = Curves(threshold=[(-2.0, 40.0, 51.0), (1.0, 41.0, 48.0)])
    scores = {"tuned_threshold": -1.5, "tuned_f1": 50.0, "best_f1_thresh": -2.0, "best_f1": 51.0}
    (axis,) = axes_of(threshold_curve, [make_record(curves=curves, scores=scores)])
    curve, tuned, best, zero = axis.lines
    assert points(curve) == [(-2, 51), (1, 48)]
    assert (points(tuned), points(best)) == ([(-1.5, 50)], [(-2, 51)])
    assert list(zero.get_xdata()) == [0, 0]


def test_where_always_abstaining_is_best_the_mark_stands_where_the_curve_begins(make_record):
    curves = Curves(threshold=[(-2.0, 40.0, 49.0), (1.0, 41.0, 48.0)])
    scores = {"best_f1_thresh": 0.0, "best_f1": 50.0, "NoAns_total": 5, "total": 10}
    (axis,) = axes_of(threshold_curve, [make_record(curves=curves, scores=scores)])
    assert points(axis.lines[1]) == [(-2, 50)]


def test_a_threshold_that_was_not_tuned_is_not_marked(make_record):
    curves = Curves(threshold=[(-2.0, 40.0, 51.0), (1.0, 41.0, 48.0)])
    (axis,) = axes_of(threshold_curve, [make_record(curves=curves, scores={"f1": 48.0})])
    assert len(axis.lines) == 2  # the curve and 0


def test_reliability_has_a_panel_before_and_after_and_leaves_out_empty_bins(make_record):
    bins = {"before": [(0.1, 0.0, 0), (0.9, 0.6, 5)], "after": [(0.7, 0.6, 5)]}
    before, after = axes_of(reliability, [make_record(curves=Curves(reliability=bins))])
    assert [points(line) for line in before.lines] == [[(0.9, 0.6)], [(0, 0), (1, 1)]]
    assert [points(line) for line in after.lines] == [[(0.7, 0.6)], [(0, 0), (1, 1)]]


def test_risk_is_drawn_over_coverage_of_the_first_seed(make_record):
    risks = {2: [(0.5, 0.3), (1.0, 0.5)], 1: [(0.5, 0.1), (1.0, 0.4)]}
    records = [make_record(seed=seed, curves=Curves(risk_coverage=risk)) for seed, risk in risks.items()]
    (axis,) = axes_of(risk_coverage, records)
    assert [points(line) for line in axis.lines] == [risks[1]]


def test_more_models_than_colours_leave_the_encoder_and_the_best(make_record):
    curves = Curves(risk_coverage=[(1.0, 0.5)])
    heads = [make_record(model=f"h{score}", scores={"f1": 50.0 + score}, curves=curves) for score in range(9)]
    encoder = make_record(model="encoder", kind="encoder", scores={"f1": 10.0}, curves=curves)
    with house_look():
        figure = risk_coverage([encoder, *heads])
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["encoder", *(f"h{score}" for score in range(9 - len(PALETTE), 9))]


def test_predicted_numbers_are_drawn_over_true_ones_of_the_best_model(make_record):
    records = [
        make_record(task="regression", model="a", scores={"pearson": 60.0}, scatter=[(9.0, 9.0)]),
        make_record(task="regression", model="b", scores={"pearson": 70.0}, scatter=[(1.0, 2.0), (3.0, 2.5)]),
    ]
    (axis,) = axes_of(predicted_by_true, records)
    assert [points(line) for line in axis.lines] == [[(1, 2), (3, 2.5)], [(1, 1), (3, 3)]]


def test_numbers_in_thousands_are_short_on_both_axes(make_record):
    points = [(100_000.0, 120_000.0), (500_000.0, 480_000.0)]
    with house_look():
        figure = predicted_by_true([make_record(task="regression", scores={"pearson": 60.0}, scatter=points)])
        figure.draw_without_rendering()
    (axis,) = figure.axes
    for each in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert "300k" in [label.get_text() for label in each]
