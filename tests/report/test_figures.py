import re
import warnings
from xml.etree import ElementTree

import matplotlib
import pytest

from bertvision.records import Parameters
from bertvision.report.figures import f1_by_parameters, finetuning_curve, largest_fraction, layer_weights
from bertvision.report.rows import table_rows
from bertvision.report.svg import INK, for_file, for_page

DRAWERS = [finetuning_curve, layer_weights, f1_by_parameters]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("draw", DRAWERS)
def test_a_figure_is_the_same_from_the_same_records(draw, records):
    assert draw(records) == draw(list(reversed(records)))


@pytest.mark.parametrize("draw", DRAWERS)
def test_all_text_takes_the_colour_of_the_page(draw, records):
    elements = list(ElementTree.fromstring(draw(records)).iter(f"{SVG}text"))
    assert elements
    assert all("fill: currentColor" in element.get("style") for element in elements)


@pytest.mark.parametrize("draw", DRAWERS)
def test_nothing_is_drawn_in_black_or_on_white(draw, records):
    svg = draw(records).lower()
    assert re.findall(r"#000000|#ffffff|\b(?:black|white)\b", svg) == []
    assert INK not in svg


@pytest.mark.parametrize("draw", DRAWERS)
def test_a_figure_says_neither_when_nor_with_which_version_it_was_drawn(draw, records):
    assert "<metadata" not in draw(records)
    assert matplotlib.__version__ not in draw(records)


@pytest.mark.parametrize("draw", DRAWERS)
def test_a_figure_neither_follows_nor_changes_the_users_settings(draw, records):
    with matplotlib.rc_context({"axes.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        drawn = draw(records)
        assert dict(matplotlib.rcParams) == before
    assert drawn == draw(records)


def test_the_curve_names_every_model_and_both_scores(records):
    names = {"encoder", "learned_pooling", "last_linear", "encoder+learned_pooling"}
    titles = {"F1", "F1 of the best span, answerable questions"}
    assert names | titles <= set(texts(finetuning_curve(records)))


def test_a_curve_without_span_scores_has_one_panel(make_record):
    svg = finetuning_curve([make_record(fraction=fraction, scores={"f1": 50.0}) for fraction in (None, 0.5)])
    assert svg.count('id="axes_') == 1


def test_one_fraction_makes_no_curve(make_record):
    assert finetuning_curve([make_record()]) is None
    assert finetuning_curve([make_record(), make_record(fraction=0.5, scores={})]) is None


def test_heads_without_layer_weights_make_no_figure_of_them(make_record):
    assert layer_weights([make_record(layer_weights=None)]) is None


def test_layer_weights_have_a_panel_per_head_and_a_label_per_fraction(make_record):
    svg = layer_weights(
        make_record(row=row, fraction=fraction, layer_weights=[0.5, 0.5])
        for row in ("one", "two")
        for fraction in (0.1, 1.0)
    )
    assert svg.count('id="axes_') == 2
    assert {"one", "two", "fraction 0.1", "fraction 1", "uniform"} <= set(texts(svg))


def test_records_without_f1_make_no_figure_of_it(make_record):
    assert f1_by_parameters([make_record(scores={})]) is None


def test_a_model_without_parameters_has_a_place_beside_the_others(make_record):
    free = make_record(row="free", parameters=Parameters(total=0, trainable=0, encoder=10))
    svg = f1_by_parameters([free, make_record()])
    assert {"1", "2", "1  free", "2  learned_pooling"} <= set(texts(svg))
    assert "nan" not in svg


def test_only_the_largest_fraction_is_kept(make_record):
    rows = table_rows(
        [make_record(fraction=fraction, row=row) for fraction, row in ((None, "a"), (0.5, "b"), (0.1, "c"))]
    )
    assert [row.name for row in largest_fraction(rows)] == ["b"]


@pytest.mark.parametrize("name", ["$x$ <b>&", "汉字", "_private"])
def test_any_name_is_drawn_as_it_is_written(make_record, name):
    assert f"1  {name}" in texts(f1_by_parameters([make_record(row=name)]))


def test_figures_warn_nobody(make_record):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        finetuning_curve([make_record(row="汉字", fraction=fraction) for fraction in (0.1, 1.0)])
    assert caught == []


def test_ids_on_a_page_belong_to_their_figure(records):
    svg = for_page(finetuning_curve(records), "mine", 'a "label" <b>')
    ids = re.findall(r'\bid="([^"]+)"', svg)
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)
    assert ids
    assert references
    assert all(name.startswith("mine-") for name in ids)
    assert {one or other for one, other in references} <= set(ids)
    assert ElementTree.fromstring(svg).get("aria-label") == 'a "label" <b>'


def test_a_file_of_its_own_chooses_its_ink_by_the_readers_theme(records):
    svg = for_file(finetuning_curve(records))
    assert "prefers-color-scheme:dark" in svg
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
