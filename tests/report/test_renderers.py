import pytest

from bertvision.report.renderers import markdown_text, to_html, to_latex, to_markdown, to_terminal
from bertvision.report.tables import results_table
from bertvision.tables import Column, Number, Table, share_text


@pytest.mark.parametrize(
    ("share", "text"),
    [(100.0, "100.0"), (2.188, "2.2"), (0.1805, "0.18"), (0.002308, "0.0023"), (1e-7, "0.00000010"), (0, "0.0")],
)
def test_small_shares_keep_two_digits(share, text):
    assert share_text(share) == text


def test_markdown_has_a_line_per_row_and_numbers_to_the_right():
    table = Table("", ("model", "F1"), (("a", Number(57.94)), ("bcdef_g", "")))
    assert to_markdown(table) == (
        "| model   |   F1 |\n"
        "| ------- | ---: |\n"
        "| a       | 57.9 |\n"
        "| bcdef_g |      |\n"
    )  # fmt: skip


def test_a_terminal_shows_headings_above_their_rows_and_means_alone():
    rows = (("a long heading",), ("a", "rows", Number(57.94, deviation=1.2)), ("bcdef", "", Number(-1234.5, "+,.2f")))
    assert to_terminal(Table("Scores", ("model", Column("kind", "left"), "F1"), rows, "A note.")) == (
        "\nScores\n"
        "model  kind         F1\n"
        "──────────────────────\n"
        "a long heading\n"
        "a      rows       57.9\n"
        "bcdef        -1,234.50\n"
        "\nA note."
    )


def test_a_heading_is_a_row_of_empty_cells_where_all_rows_have_to_be_as_wide():
    table = Table("", ("model", "F1"), (("a heading",), ("a", Number(57.94))))
    assert to_markdown(table).splitlines()[2:] == ["| a heading |      |", "| a         | 57.9 |"]
    assert to_html(table).count("<td") == 2
    assert r"{}a heading &  \\" in to_latex(table)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number(76.25, ".1f", 0.44), "76.2 ± 0.4"),
        (Number(2.5, "+.1f", 0.7), "+2.5 ± 0.7"),
        (Number(1_234_567, ","), "1,234,567"),
    ],
)
def test_a_number_is_written_in_its_format_with_its_deviation(number, text):
    assert str(number) == text


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
    html = to_html(Table('"<u>', ("<i>",), (("<b>&",),)))
    assert "<i>" not in html
    assert "<b>" not in html
    assert "<u>" not in html
    assert "&lt;b&gt;&amp;" in html


def test_html_has_a_body_for_each_fraction(records):
    assert to_html(results_table(records)).count("<tbody>") == 2
