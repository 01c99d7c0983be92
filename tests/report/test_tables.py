import pytest

from bertvision.records import Parameters, Seconds
from bertvision.report.tables import Table, markdown_text, models_table, results_table, share_text, to_html, to_markdown


def cell(table, head, row=0):
    return table.rows[row][table.header.index(head)]


def test_a_table_has_the_columns_in_their_order(make_record):
    heads = ("fraction", "model", "kind", "parameters", "% of encoder", "EM", "F1", "best F1", "span F1", "seconds")
    assert results_table([make_record()]).header == heads


def test_cells_are_rounded_and_have_thousands_separators(make_record):
    record = make_record(
        scores={"exact": 53.649, "f1": 57.96, "best_f1": 65.0, "best_span_HasAns_f1": 80.25001},
        parameters=Parameters(total=1_234_567, trainable=1_234_567, encoder=33_360_000),
        seconds=Seconds(finetune=1200.0, heads=34.4, predict=1.0),
    )
    table = results_table([record])
    assert table.rows == (
        ("1", "learned_pooling", "head", "1,234,567", "3.7", "53.6", "58.0", "65.0", "80.3", "1,234"),
    )


def test_a_missing_score_is_an_empty_cell_and_a_zero_is_a_zero(make_record):
    table = results_table([make_record(scores={"f1": 0.0})])
    assert (cell(table, "EM"), cell(table, "F1"), cell(table, "span F1")) == ("", "0.0", "")


def test_best_f1_has_a_column_only_where_some_record_has_it(make_record):
    without = make_record(task="squad1", row="other", scores={"exact_match": 70.0, "f1": 80.0})
    assert "best F1" not in results_table([without]).header
    table = results_table([without, make_record(scores={"best_f1": 61.0})])
    assert {cell(table, "best F1", row) for row in (0, 1)} == {"", "61.0"}


def test_several_seeds_show_their_deviation(make_record):
    table = results_table([make_record(seed=1, scores={"f1": 50.0}), make_record(seed=2, scores={"f1": 52.0})])
    assert cell(table, "F1") == "51.0 ± 1.4"  # the square root of 2


def test_seeds_have_a_column_only_where_rows_differ_in_them(make_record):
    pair = [make_record(seed=1), make_record(seed=2)]
    assert "seeds" not in results_table(pair).header
    table = results_table([*pair, make_record(row="other")])
    assert {cell(table, "model", row): cell(table, "seeds", row) for row in (0, 1)} == {
        "learned_pooling": "2",
        "other": "1",
    }


def test_experiments_have_a_column_only_where_there_are_several(make_record):
    assert "experiment" not in results_table([make_record()]).header
    table = results_table([make_record(experiment="a"), make_record(experiment="b")])
    assert [row[0] for row in table.rows] == ["a", "b"]


def test_an_encoder_used_as_given_has_no_number_for_its_fraction(make_record):
    assert cell(results_table([make_record(fraction=None)]), "fraction") == "given"


@pytest.mark.parametrize(
    ("share", "text"),
    [(100.0, "100.0"), (2.188, "2.2"), (0.1805, "0.18"), (0.002308, "0.0023"), (1e-7, "0.00000010"), (0, "0.0")],
)
def test_small_shares_keep_two_digits(share, text):
    assert share_text(share) == text


def test_markdown_has_a_line_per_row_and_numbers_to_the_right():
    table = Table(("model", "F1"), ("left", "right"), (("a", "57.9"), ("bcdef_g", "")))
    assert to_markdown(table) == (
        "| model   |   F1 |\n"
        "| ------- | ---: |\n"
        "| a       | 57.9 |\n"
        "| bcdef_g |      |\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", r"a\|b"),
        ("<b>", "&lt;b&gt;"),
        ("a_b", "a_b"),
        ("_a_", r"\_a\_"),
        ("x*y\nz", r"x\*y z"),
        ("[1]", r"\[1\]"),
    ],
)
def test_markdown_shows_text_as_it_is(text, written):
    assert markdown_text(text) == written


def test_html_is_escaped_in_head_cells_and_caption():
    html = to_html(Table(("<i>",), ("left",), (("<b>&",),)), caption='"<u>')
    assert "<i>" not in html
    assert "<b>" not in html
    assert "<u>" not in html
    assert "&lt;b&gt;&amp;" in html


def test_html_has_a_body_for_each_fraction(records):
    assert to_html(results_table(records)).count("<tbody>") == 2


def test_models_stand_once_with_their_fractions_side_by_side(make_record):
    def made(row, fraction, exact, best):
        scores = {"exact": exact, "f1": exact + 1, "best_exact": best, "best_f1": best + 1}
        return make_record(row=row, fraction=fraction, scores=scores)

    table = models_table([made("a", 0.3, 40.0, 50.0), made("b", 0.3, 41.0, 51.0), made("b", 1.0, 42.0, 52.0)])
    assert table.header == (
        *("model", "parameters", "% of encoder"),
        *("0.3: EM / F1", "0.3: best EM / F1", "1: EM / F1", "1: best EM / F1"),
    )
    assert table.rows == (
        ("a", "60,000", "0.20", "40.0 / 41.0", "50.0 / 51.0", "", ""),
        ("b", "60,000", "0.20", "41.0 / 42.0", "51.0 / 52.0", "42.0 / 43.0", "52.0 / 53.0"),
    )


def test_one_fraction_needs_no_table_of_its_own(make_record):
    assert models_table([make_record(row="a"), make_record(row="b")]) is None
