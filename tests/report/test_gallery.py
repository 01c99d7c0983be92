import re
import warnings
from xml.etree import ElementTree

import matplotlib
import pytest

from bertvision.records import Parameters, Seconds
from bertvision.report.drawing import INK, draw, house_look, to_svg
from bertvision.report.gallery import GALLERY, describe_weights
from bertvision.report.learning_figures import finetuning_curve, layer_weights, less_data_curve
from bertvision.report.pictures import for_file, for_page
from studies.cost_figures import score_by_inference, score_by_parameters, score_by_training

NAMES = [picture.name for picture in GALLERY]
FIGURES = {picture.name: picture.figure for picture in GALLERY}
SVG = "{http://www.w3.org/2000/svg}"


def svg_of(figure, records):
    with house_look():
        drawn = figure(records)
        return None if drawn is None else to_svg(drawn)


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_the_same_from_the_same_records(name, drawings, rich_records):
    assert drawings[name] == draw(FIGURES[name], list(reversed(rich_records)))


@pytest.mark.parametrize("name", NAMES)
def test_all_text_takes_the_colour_of_the_page(name, drawings):
    elements = list(ElementTree.fromstring(drawings[name].svg).iter(f"{SVG}text"))
    assert elements
    assert all("fill: currentColor" in element.get("style") for element in elements)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_in_black_or_on_white(name, drawings):
    svg = drawings[name].svg.lower()
    assert re.findall(r"#000000|#ffffff|\b(?:black|white)\b", svg) == []
    assert INK not in svg


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_neither_when_nor_with_which_version_it_was_drawn(name, drawings):
    assert "<metadata" not in drawings[name].svg
    assert matplotlib.__version__ not in drawings[name].svg


def test_a_figure_neither_follows_nor_changes_the_users_settings(drawings, rich_records):
    with matplotlib.rc_context({"axes.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        drawn = draw(finetuning_curve, rich_records)
        assert dict(matplotlib.rcParams) == before
    assert drawn == drawings["finetuning_curve"]


def test_the_curve_names_every_model_and_both_scores(records):
    names = {"encoder", "learned_pooling", "last_linear", "encoder+learned_pooling"}
    titles = {"F1 at 0", "F1 of the best span"}
    assert names | titles <= set(texts(svg_of(finetuning_curve, records)))


def test_a_curve_without_span_scores_has_one_panel(make_record):
    svg = svg_of(finetuning_curve, [make_record(fraction=fraction, scores={"f1": 50.0}) for fraction in (None, 0.5)])
    assert svg.count('id="axes_') == 1


def test_one_fraction_makes_no_curve(make_record):
    assert svg_of(finetuning_curve, [make_record()]) is None
    assert svg_of(finetuning_curve, [make_record(), make_record(fraction=0.5, scores={})]) is None


def test_heads_without_layer_weights_make_no_figure_of_them(make_record):
    assert svg_of(layer_weights, [make_record(layer_weights=None)]) is None


def test_layer_weights_have_a_panel_per_head_and_a_label_per_fraction(make_record):
    records = [
        make_record(model=row, fraction=fraction, layer_weights=[0.5, 0.5])
        for row in ("one", "two")
        for fraction in (0.1, 1.0)
    ]
    svg = svg_of(layer_weights, records)
    assert svg.count('id="axes_') == 2
    assert {"one", "two", "fraction 0.1", "fraction 1", "uniform"} <= set(texts(svg))


def test_layer_weights_on_an_encoder_as_given_are_called_so(make_record):
    svg = svg_of(layer_weights, [make_record(fraction=None, layer_weights=[0.5, 0.5])])
    assert "encoder as given" in texts(svg)
    assert "fraction 0" not in texts(svg)


def test_the_largest_layer_weight_is_not_cut_off_at_the_edge(make_record):
    figure = layer_weights([make_record(layer_weights=[0.14, 0.14, 0.14, 0.14, 0.14, 0.14, 0.16])])
    assert figure.axes[0].get_ylim()[1] > 1.04 * 0.16  # a marker is a tenth of an inch high


def test_the_pooled_state_has_a_name_and_layers_keep_their_numbers(make_record):
    six_layers = ["pooled", *range(7)]
    record = make_record(layer_weights=[0.1] * 7 + [0.3], weighted_states=six_layers)
    shown = texts(svg_of(layer_weights, [record]))
    assert [each for each in shown if each in {"pooled", *map(str, range(9))}] == ["pooled", *map(str, range(7))]
    assert "learned_pooling: layer 6 (weight 0.30)" in describe_weights([record])
    pooled = make_record(layer_weights=[0.3] + [0.1] * 7, weighted_states=six_layers)
    assert "learned_pooling: pooled (weight 0.30)" in describe_weights([pooled])


def test_layers_that_were_chosen_keep_their_numbers(make_record):
    record = make_record(layer_weights=[0.1, 0.2, 0.7], weighted_states=["pooled", 4, 8])
    assert "learned_pooling: layer 8 (weight 0.70)" in describe_weights([record])
    assert {"pooled", "4", "8"} <= set(texts(svg_of(layer_weights, [record])))


def test_records_without_f1_make_no_figure_of_it(make_record):
    assert svg_of(score_by_parameters, [make_record(scores={})]) is None


def test_a_model_without_parameters_has_a_place_beside_the_others(make_record):
    free = make_record(model="free", parameters=Parameters(total=0, trainable=0, encoder=10))
    svg = svg_of(score_by_parameters, [free, make_record()])
    assert {"1", "2", "1  free", "2  learned_pooling"} <= set(texts(svg))
    assert "nan" not in svg


@pytest.mark.parametrize("name", ["$x$ <b>&", "汉字", "_private"])
def test_any_name_is_drawn_as_it_is_written(make_record, name):
    assert f"1  {name}" in texts(svg_of(score_by_parameters, [make_record(model=name)]))


def test_figures_warn_nobody(make_record):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        svg_of(finetuning_curve, [make_record(model="汉字", fraction=fraction) for fraction in (0.1, 1.0)])
    assert caught == []


def test_ids_on_a_page_belong_to_their_figure(records):
    svg = for_page(svg_of(finetuning_curve, records), "mine", 'a "label" <b>')
    ids = re.findall(r'\bid="([^"]+)"', svg)
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg)
    assert ids
    assert references
    assert all(name.startswith("mine-") for name in ids)
    assert {one or other for one, other in references} <= set(ids)
    assert ElementTree.fromstring(svg).get("aria-label") == 'a "label" <b>'


def test_a_file_of_its_own_chooses_its_ink_by_the_readers_theme(records):
    svg = for_file(svg_of(finetuning_curve, records))
    assert "prefers-color-scheme:dark" in svg
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_a_png_without_dates_and_versions(name, drawings):
    png = drawings[name].png
    assert png.startswith(b"\x89PNG\r\n")
    assert b"tEXt" not in png


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_bears_any_name(name, rich_records):
    renamed = [record.model_copy(update={"model": "$x$ <b>& 汉字"}) for record in rich_records if record.kind == "head"]
    assert any("$x$ <b>& 汉字" in text for text in texts(svg_of(FIGURES[name], renamed)))


def test_less_data_has_a_line_over_the_shares_of_each_model(make_record):
    def made(row, share, f1):
        return make_record(model=row, config={"heads": {"data_fraction": share}}, scores={"f1": f1})

    records = [made("a", 0.1, 40.0), made("a", 1.0, 50.0), made("b", 0.1, 41.0)]
    with house_look():
        axis = less_data_curve(records).axes[0]
    assert [line.get_xydata().tolist() for line in axis.lines] == [[[10, 40], [100, 50]], [[10, 41]]]


def test_one_share_of_the_data_makes_no_curve(make_record):
    assert less_data_curve([make_record(), make_record(model="other")]) is None


def test_scores_stand_over_the_seconds_of_training_and_of_the_pass_over_dev(make_record):
    records = [
        make_record(fraction=0.5, scores={"f1": 40.0}, seconds=Seconds(finetune=10.0, heads=5.0, predict=2.0)),
        make_record(fraction=1.0, scores={"f1": 50.0}, seconds=Seconds(finetune=20.0, heads=5.0, predict=3.0)),
    ]
    for figure, points in ((score_by_training, [[15, 40], [25, 50]]), (score_by_inference, [[2, 40], [3, 50]])):
        with house_look():
            (line,) = figure(records).axes[0].lines
        assert line.get_xydata().tolist() == points


def test_figures_show_the_main_score_of_their_task_and_its_baseline(make_task_records):
    records = make_task_records("cola", {"matthews": 40.0})
    for figure in (score_by_parameters, score_by_training, score_by_inference):
        with house_look():
            drawn = figure(records)
        (axis,) = drawn.axes
        assert axis.get_title("left").partition(",")[0] == "Matthews"
        assert "majority" in [text.get_text() for text in drawn.legends[0].get_texts()]
        assert [40.0, 40.0] in [list(line.get_ydata()) for line in axis.lines]
