import sys

import pytest
from arguments import read_arguments


@pytest.mark.parametrize(
    ("names", "given", "values"),
    [
        (("IN", "OUT", "SOURCE..."), ["a", "b", "c", "d"], ["a", "b", ["c", "d"]]),
        (("[MODEL]", "[FOLDER]"), ["base"], ["base", None]),
        (("OUT", "[SETTING...]"), ["a"], ["a", []]),
    ],
)
def test_arguments_come_in_the_order_of_their_names(monkeypatch, names, given, values):
    monkeypatch.setattr(sys, "argv", ["tool", *given])
    assert read_arguments("Makes it.", *names) == values


def test_help_says_what_a_tool_is_about(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tool", "--help"])
    with pytest.raises(SystemExit):
        read_arguments("Makes it.", "IN", "SOURCE...")
    shown = capsys.readouterr().out
    assert "Makes it." in shown
    assert "IN SOURCE [SOURCE ...]" in shown


def test_a_missing_argument_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tool"])
    with pytest.raises(SystemExit, match="2"):
        read_arguments("Makes it.", "SOURCE...")
