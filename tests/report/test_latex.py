import re
from dataclasses import replace

import pytest

from bertvision.report.renderers import latex_text, to_latex, to_latex_file
from bertvision.tables import Column, Number, Table

TABLE = Table(
    "x",
    ("fraction", Column("model", "left"), "F1"),
    (("0.1", "a_b", Number(1.0, deviation=0.2)), ("0.1", "c", ""), ("1", "50%", "2")),
)


def test_a_table_has_a_rule_between_fractions_and_as_many_cells_as_columns():
    body = to_latex(TABLE).partition(r"\begin{tabular}{llr}" "\n")[2].partition(r"\end{tabular}")[0]
    assert body.splitlines() == [
        r"\toprule",
        r"{}fraction & model & F1 \\",
        r"\midrule",
        r"{}0.1 & a\_b & 1.0 $\pm$ 0.2 \\",
        r"{}0.1 & c &  \\",
        r"\midrule",
        r"{}1 & 50\% & 2 \\",
        r"\bottomrule",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a&b%c$d#e_f", r"a\&b\%c\$d\#e\_f"),
        ("{x}", r"\{x\}"),
        ("\\x", r"\textbackslash{}x"),
        ("a~b^c", r"a\textasciitilde{}b\textasciicircum{}c"),
        ("“no\nanswer”", "``no answer''"),
    ],
)
def test_latex_shows_text_as_it_is(text, written):
    assert latex_text(text) == written


def test_a_file_says_which_packages_it_needs_and_holds_every_table():
    text = to_latex_file([replace(TABLE, title="one"), replace(TABLE, title="two", note="three")])
    assert text.startswith("% ")
    assert r"\usepackage{booktabs,graphicx}" in text.splitlines()[0]
    assert re.findall(r"\\caption\{(.*)\}", text) == ["one", "two. three"]


def test_braces_and_environments_of_a_report_are_balanced(rich_written):
    text = (rich_written / "tables.tex").read_text(encoding="utf-8")
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"] * 4  # scores, fractions, calibration, data
    assert re.findall(r"\\end\{(\w+)\}", text) == ["tabular", "table"] * 4
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
