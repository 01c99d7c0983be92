import json
import sys
from io import BytesIO, TextIOWrapper

import pytest

from bertvision.cli.console import print_json


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


def test_json_is_ascii_where_standard_output_is(monkeypatch):
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, "ascii", write_through=True))
    print_json({"text": "字"})
    assert json.loads(written.getvalue()) == {"text": "字"}
