import pytest

from bertvision.report.renderers import Table, markdown_text, share_text, to_html, to_markdown
from bertvision.report.score_tables import results_table


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
