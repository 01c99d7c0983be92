import json
from io import StringIO

import pytest
from rich.console import Console
from transformers import PreTrainedTokenizerBase
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.data.example import Question
from bertvision.model_config import SHIPPED
from bertvision.serving.answers import percent
from bertvision.windows.window import cut_windows

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone"
QUESTION = "who built the weir?"


@pytest.fixture
def folder(make_folder):
    return make_folder()


def ask(*arguments, stdin=None, asked=(QUESTION,)):
    questions = [part for each in asked for part in ("--question", each)]
    command = ["ask", *questions, *map(str, arguments)]
    return CliRunner().invoke(app, command, input=stdin, env={"COLUMNS": "80"})


def test_the_context_comes_from_an_option_a_file_or_standard_input(folder, tmp_path):
    (tmp_path / "weir.txt").write_text(CONTEXT)
    ways = [("--context", CONTEXT), ("--file", tmp_path / "weir.txt")]
    shown = [ask("--model", folder, *way) for way in ways] + [ask("--file", "-", "--model", folder, stdin=CONTEXT)]
    assert [each.exit_code for each in shown] == [0, 0, 0], shown[0].output
    assert len({each.stdout for each in shown}) == 1


def test_plain_text_holds_answer_probability_and_alternatives(folder):
    expected = bertvision.load(folder, device="cpu")(QUESTION, CONTEXT, top_k=3, null_threshold=1e6)
    shown = ask("--model", folder, "--context", CONTEXT, "--null-threshold", "1e6")
    lines = shown.stdout.splitlines()
    assert lines[0] == expected[0].text
    assert lines[1].startswith(f"probability {percent(expected[0].probability)}")
    assert lines[2] == "as asked, always an answer"
    assert f"[{expected[0].text}]" in lines[4]
    assert [line.split("%  ")[1] for line in lines[-2:]] == [each.text or "(no answer)" for each in expected[1:]]
    assert "\x1b" not in shown.stdout


def test_json_holds_everything(folder):
    shown = ask("--model", folder, "--context", CONTEXT, "--json", "--top-k", 2, "--layers")
    found = json.loads(shown.stdout)
    expected = bertvision.load(folder, device="cpu")(QUESTION, CONTEXT, top_k=2, layers=True)
    assert found == [{"question": QUESTION, "answers": [each.as_dict() for each in expected]}]
    assert set(found[0]["answers"][0]) >= {"text", "start", "end", "probability", "no_answer_probability", "layers"}


def test_json_holds_letters_as_they_are(folder):
    shown = ask("--model", folder, "--context", "字", "--json")
    assert '"text": "字"' in shown.stdout


def test_a_bar_on_a_terminal_counts_the_windows_and_vanishes(folder, monkeypatch):
    def show_on_terminal():
        terminal = Console(file=StringIO(), force_terminal=True, width=100)
        monkeypatch.setattr("bertvision.cli.console.messages", terminal)
        shown = ask("--model", folder, "--context", f"{CONTEXT} " * 20)
        assert shown.exit_code == 0, shown.output
        return terminal.file.getvalue()

    drawn = show_on_terminal()
    reader = bertvision.load(folder, device="cpu")
    question = Question("q", QUESTION, f"{CONTEXT} " * 20, (), "")
    windows = cut_windows([question], reader.served.tokenizer, reader.served.config.windows, labelled=False)
    assert f"{len(windows)}/{len(windows)}" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is empty again


def test_elsewhere_nothing_is_said_meanwhile(folder):
    assert ask("--model", folder, "--context", CONTEXT).stderr == ""


def test_every_question_is_answered(folder):
    other = "when was the weir built?"
    alone = [ask("--model", folder, "--context", CONTEXT, asked=[each]).stdout for each in (QUESTION, other)]
    together = ask("--model", folder, "--context", CONTEXT, asked=[QUESTION, other]).stdout
    assert together == f"{QUESTION}\n\n{alone[0]}\n{other}\n\n{alone[1]}"
    found = json.loads(ask("--model", folder, "--context", CONTEXT, "--json", asked=[QUESTION, other]).stdout)
    expected = bertvision.load(folder, device="cpu")([QUESTION, other], CONTEXT, top_k=3)
    assert [each["question"] for each in found] == [QUESTION, other]
    assert [[answer["text"] for answer in each["answers"]] for each in found] == [
        [answer.text for answer in answers] for answers in expected
    ]


def test_a_text_is_tokenised_once_for_all_questions(folder, monkeypatch):
    tokenised, call = [], PreTrainedTokenizerBase.__call__

    def note(self, text, *more, **options):
        tokenised.extend([text] if isinstance(text, str) else text)
        return call(self, text, *more, **options)

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", note)
    assert ask("--model", folder, "--context", CONTEXT, asked=[QUESTION, "who?", "when?"]).exit_code == 0
    assert tokenised.count(CONTEXT) == 1


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_all_files_are_asked_and_the_file_and_line_of_the_answer_are_named(folder, tmp_path, order):
    texts = {"a": "hannah coyle", "b": "the river\n\nthe weir was built in 1887"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    files = [part for name in order for part in ("--file", tmp_path / name)]
    arguments = ("--model", folder, *files, "--null-threshold", "inf", "--top-k", 100)
    (found,) = json.loads(ask(*arguments, "--json").stdout)
    answers = [each for each in found["answers"] if each["text"]]
    assert {each["file"] for each in answers} == {str(tmp_path / name) for name in texts}
    assert sum(each["probability"] for each in found["answers"]) == pytest.approx(1)
    for each in answers:
        text = (tmp_path / each["file"]).read_text()
        assert text[each["start"] : each["end"]] == each["text"]
        assert each["text"] in text.splitlines()[each["line"] - 1]
        assert each["file"] == str(tmp_path / order[each["context"]])
    shown = ask(*arguments).stdout.replace("\n", "")
    for each in answers:
        assert f"{each['file']}, line {each['line']}" in shown


def test_layers_are_shown_as_bars(folder):
    shown = ask("--model", folder, "--context", CONTEXT, "--layers").stdout
    assert sum(line.startswith(("  layer ", "  bias ", "  sum ")) for line in shown.splitlines()) == 5


def test_markup_in_a_text_is_text(folder):
    shown = ask("--model", folder, "--context", "[bold]weir[/bold] :smile: [/]", "--top-k", 20)
    assert shown.exit_code == 0
    assert "bold" in shown.stdout
    assert "😄" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the context in one way"),
        (("--context", "a", "--file", "b"), "give the context in one way"),
        (("--file", "-", "--context", "a"), "give the context in one way"),
        (("--file", "no_such.txt"), "no_such.txt: cannot be read"),
        (("--context", " "), "context: is blank"),
    ],
)
def test_bad_input_ends_with_one_line(folder, arguments, message):
    shown = ask("--model", folder, *arguments)
    assert shown.exit_code == 2
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_a_file_that_is_not_utf8_ends_with_one_line(folder, tmp_path):
    (tmp_path / "latin.txt").write_bytes("das Wehr am Fluß".encode("latin-1"))
    shown = ask("--model", folder, "--file", tmp_path / "latin.txt")
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)
    assert "is not UTF-8 text (byte 15)" in shown.stderr
    assert "standard input: is not UTF-8" in ask("--file", "-", "--model", folder, stdin=b"\xff\xfe").stderr


def test_without_a_model_the_default_one_is_asked(shared_reader, monkeypatch):
    monkeypatch.setitem(SHIPPED, "default", shared_reader.served.folder)
    expected = shared_reader(QUESTION, CONTEXT, top_k=1)
    (found,) = json.loads(ask("--context", CONTEXT, "--json", "--top-k", 1).stdout)
    assert found["answers"] == [each.as_dict() for each in expected]


def test_a_model_of_another_task_is_refused(make_folder):
    shown = ask("--model", make_folder("sst2", ("bad", "good")), "--context", CONTEXT)
    assert shown.exit_code == 2
    assert "is a model of sst2" in shown.stderr
