import re

import numpy as np
import pytest

from bertvision.records import merge_variants
from bertvision.report.drawing import MOST_MODELS, draw, few_models, row_styles
from bertvision.report.results import results_of
from studies.cost_figures import apart, score_by_inference, score_by_parameters, score_by_training

FIGURES = (score_by_parameters, score_by_training, score_by_inference)


@pytest.fixture
def many(make_variant):
    """Thirty ways of tuning, of which all but two score nearly alike."""
    scores = [50.0, 60.0, *np.linspace(75, 76, 28)]
    records = [
        make_variant(f"way_{n}", f1=score, trainable=10 ** (2 + n % 6), fraction=fraction)
        for n, score in enumerate(scores)
        for fraction in (0.3, 1.0)
    ]
    return merge_variants(records)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_way_of_tuning_is_named_once(figure, many):
    texts = re.findall(r">\s*(way_\d+)\s*<", draw(figure, many).svg)
    assert sorted(texts) == sorted(f"way_{n}" for n in range(30))


def test_ways_of_tuning_are_compared_at_their_best_thresholds_where_all_have_them(make_variant):
    records = [make_variant(f"way_{n}", f1=50.0 + n) for n in range(20)]
    best = [record.model_copy(update={"scores": {**record.scores, "best_f1": 66.0}}) for record in records]
    titles = [
        draw(score_by_parameters, merge_variants(each)).svg.count("F1 best")
        for each in (best, [*best[:-1], records[-1]])
    ]
    assert titles == [1, 0]


def test_a_head_stands_at_all_weights_that_were_trained_for_it(make_variant):
    records = [make_variant("full", trainable=1999), make_variant("heads", model="ladder", trainable=10)]
    records.append(make_variant("top_0", trainable=20))
    (axis,) = score_by_parameters(merge_variants(records)).axes
    shipped = 8_000_000 // 4  # weights of four bytes that differ from where training started
    assert sorted(x for line in axis.lines for x in line.get_xdata()) == [20, 1999, shipped]
    assert axis.get_xlabel() == "trained parameters, those below a head included"


def test_the_axis_says_so_where_old_records_cannot_tell_what_was_trained_below_a_head(make_variant):
    records = [make_variant("full", trainable=1999), make_variant("top_0", trainable=20)]
    records.append(make_variant("heads", model="ladder", trainable=10).model_copy(update={"efficiency": None}))
    (axis,) = score_by_parameters(merge_variants(records)).axes
    assert axis.get_xlabel() == "trained parameters, those below a head left out"


@pytest.mark.parametrize("most", [4_000, 64_225, 10**8])
def test_the_ticks_of_parameters_are_plain_numbers_however_far_these_reach(make_variant, most):
    records = [make_variant("small", trainable=2310), make_variant("large", trainable=most)]
    figure = score_by_parameters(merge_variants(records))
    figure.draw_without_rendering()
    (axis,) = figure.axes
    ticks = [*axis.xaxis.get_major_ticks(), *axis.xaxis.get_minor_ticks()]
    first, last = axis.get_xlim()
    shown = [tick.label1.get_text() for tick in ticks if first <= tick.get_loc() <= last]
    assert [text for text in shown if not re.fullmatch(r"([\d.]+[kM]?)?", text)] == []
    assert 2 <= sum(map(bool, shown)) <= 8


def test_names_are_kept_apart_in_their_order_and_within_the_axes():
    heights = apart([0.95, 0.94, 0.93, 0.5, 0.01, 0.0], 0.1)
    assert heights == pytest.approx([0.95, 0.85, 0.75, 0.5, 0.1, 0.0])
    crowded = apart([0.2, 0.1, 0.1, 0.1], 0.3)
    assert crowded == pytest.approx([0.9, 0.6, 0.3, 0.0])
    assert apart([], 0.1) == []


def test_of_many_ways_of_tuning_a_curve_shows_the_best_and_each_looks_its_own(many):
    shown = few_models(results_of(many))
    names = {row.name for row in shown}
    assert names == {f"way_{n}" for n in range(30 - MOST_MODELS, 30)}
    assert len(set(row_styles(shown).values())) == MOST_MODELS
