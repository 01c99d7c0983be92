import json
import sys
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from bertvision.cli import app, console
from bertvision.cli.console import fail, print_json, print_page
from bertvision.tables import Page, Table


@pytest.mark.parametrize("text", ["é", "字", "😀", ":smile:", "[bold]", "עיר", "a\u200db"])
def test_json_holds_letters_as_they_are(text, capsys):
    print_json({"text": text})
    assert capsys.readouterr().out == f'{{\n  "text": "{text}"\n}}\n'


@pytest.mark.parametrize("letter", ["\x1b", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800"])
def test_json_holds_no_letter_that_steers_a_terminal(letter, capsys):
    print_json({"text": letter})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == {"text": letter}


@pytest.mark.parametrize("letter", ["\x1b", "\r", "\x08", "\x7f", "\x9b", "\u2028", "\u202e"])
def test_no_text_of_a_strangers_steers_a_terminal(letter, tmp_path):
    """Neither the label of a table, nor the name of a file in an error."""
    table = tmp_path / "rows.jsonl"
    label = f"re{letter}d"
    table.write_text("".join(json.dumps({"text": "weir", "label": each}) + "\n" for each in (label, label, "b", "b")))
    listed = CliRunner().invoke(app, ["show", "data", str(table), "--task", "classification"])
    refused = CliRunner().invoke(app, ["show", "data", f"no{letter}where.csv", "--task", "classification"])
    assert "re" in listed.output
    assert "where.csv" in refused.stderr
    assert letter not in listed.output + refused.output


def test_json_is_ascii_where_standard_output_is(monkeypatch):
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, "ascii", write_through=True))
    print_json({"text": "字"})
    assert json.loads(written.getvalue()) == {"text": "字"}


def test_one_blank_line_stands_between_two_tables_with_and_without_a_note(capsys):
    tables = [Table(title, ("what",), (("weir",),), note) for title, note in (("A", ""), ("B", "Stone."), ("C", ""))]
    print_page(Page(("three tables",), tables, []))
    printed = capsys.readouterr().out
    assert printed == "three tables\n\n" + "\n\n".join(
        ["A\nwhat\n────\nweir", "B\nwhat\n────\nweir", "Stone.", "C\nwhat\n────\nweir\n"]
    )


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [([3.0], ["3.0"]), ([0.2] * 9, []), ([0.2] * 51, ["0.2"]), ([3.0, 0.2, 4.0], ["3.0", "4.0"])],
)
def test_a_log_file_has_lines_of_long_work_and_one_now_and_then_of_short_work(monkeypatch, capsys, seconds, printed):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(console, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    progress = console.TerminalProgress()
    for each in seconds:
        with progress.bar("epoch", 8):
            clock.now += each
    assert capsys.readouterr().err.splitlines() == [f"epoch: 8 in {each} s" for each in printed]


def test_a_log_file_says_now_and_then_how_long_work_will_still_take(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(console, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    with console.TerminalProgress().bar("predict", 1000) as bar:
        for _ in range(10):
            clock.now += 45
            bar.advance(100, lambda: f"second {clock.now:.0f}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "predict: 20%, about 6 min left; second 90"  # 90 s for a fifth: 360 s for the rest
    assert lines[-1] == "predict: 1,000 in 450.0 s"
    assert len(lines) == 5


def test_an_error_names_a_file_as_it_is_called(capsys):
    with pytest.raises(typer.Exit):
        fail("sample:train: cannot be read")
    assert capsys.readouterr().err == "error: sample:train: cannot be read\n"
