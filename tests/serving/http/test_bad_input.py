"""Bad input, in one table: refused with a message, nothing run, nothing logged of it, and the next is answered."""

import json
import logging
import math
from functools import partial

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app as command_line
from bertvision.errors import DataError
from bertvision.serving.http.app import build_app
from bertvision.serving.http.config import ServeConfig

CONTEXT = "the weir was built in 1887 by hannah coyle"
SECRET = "opensesame"  # a user's text, which no log may hold
MARKUP = '<script>alert(1)</script> "{{7*7}}" ${x} %s %(x)s \u202e the weir'
GOOD = {
    "/answer": {"question": "who built the weir?", "context": CONTEXT},
    "/xray": {"question": "who built the weir?", "context": CONTEXT},
    "/classify": {"text": CONTEXT},
    "/tag": {"text": CONTEXT},
}
LIMITS = {"max_body": 150_000}
JSON = "application/json"


@pytest.fixture(scope="module")
def models(shared_reader, make_shared):
    mood = bertvision.load(make_shared("sst2", ("bad", "good")), device="cpu")
    names = bertvision.load(make_shared("ner", ("O", "B-A")), device="cpu")
    return {"weir": shared_reader, "mood": mood, "names": names}


@pytest.fixture(scope="module")
def client(models):
    """A client of a server; after all that is done to it, it answers as before."""
    with TestClient(build_app(models, ServeConfig(**LIMITS))) as client:
        before = {path: client.post(path, json=good).json() for path, good in GOOD.items()}
        yield client
        assert {path: client.post(path, json=good).json() for path, good in GOOD.items()} == before
        assert before["/answer"]["answers"]


@pytest.fixture
def refused(client, caplog):
    """Return a function that sends a body and sees that it is refused as it should be; gives the message."""
    caplog.set_level(logging.INFO)

    def send(path, body, status, kind=JSON):
        found = client.post(path, content=body, headers={} if kind is None else {"content-type": kind})
        assert found.status_code == status, found.text
        assert (found.headers["content-type"], found.headers["x-content-type-options"]) == (JSON, "nosniff")
        logged = [json.loads(each.getMessage()) for each in caplog.records if each.name == "bertvision.serve"]
        assert [(line["event"], line["path"], line["status"]) for line in logged] == [("request", path, status)]
        assert SECRET not in "".join(each.getMessage() for each in caplog.records)
        detail = found.json()["detail"]
        assert "Traceback" not in detail
        assert 10 < len(detail) < 500
        return detail

    return send


def with_text(path, text):
    """Return a good body whose last text is another one, written as JSON already."""
    *others, last = GOOD[path]
    fields = [f"{json.dumps(name)}: {json.dumps(GOOD[path][name])}" for name in others]
    return "{" + ", ".join([*fields, f'"{last}": {text}']) + "}"


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ('""', 422, "is empty"),
        (json.dumps(" \n\t\u2003"), 422, "is blank"),
        ('"\\ud800 opensesame"', 422, "character 0 is U+D800, half of a pair"),
        ("7", 422, "a valid string"),
        ("null", 422, "a valid string"),
        ("true", 422, "a valid string"),
        ("NaN", 422, "a valid string"),
        ("-Infinity", 422, "a valid string"),
        ("1e999", 422, "a valid string"),
        ("9" * 5000, 400, "a number of too many digits"),
        ('{"a": "opensesame"}', 422, "a valid string"),
        ('[["opensesame"]]', 422, "a valid string"),
        ("[" * 400 + "]" * 400, 422, "a valid string"),
        ("[" * 50_000 + "]" * 50_000, 400, "nested too deeply"),
        ("[" + "7, " * 40_000 + "7]", 422, "a valid string"),
        ('"opensesame" x', 400, "no JSON (character "),
        ('"a", "model": "no_such"', 404, "no model 'no_such' for"),
        (f'"a", "model": "{"x" * 5000}"', 404, f"no model '{'x' * 40}' for"),
        ('"a", "opensesamo": 1', 422, "`opensesamo` is unknown"),
        (f'"a", "{"x" * 5000}": 1', 422, f"`{'x' * 40}` is unknown"),
        ('"a", "b": 0, "c": 0, "d": 0, "e": 0, "f": 0', 422, "is unknown (and 2 more)"),
        ('"a", ' + ", ".join(f'"{number}": 0' for number in range(5000)), 400, " keys side by side"),
        ('"a", "model": "weir", "model": "mood"', 400, "has the key 'model' twice; give it once"),
        ('"a", "\\ud800": 1', 422, "unicode string"),
    ],
)
def test_a_text_that_is_none_is_refused(refused, path, text, status, message):
    assert message in refused(path, with_text(path, text), status)


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"", JSON, 422, "`body` is missing"),
        (b"", None, 422, "`body` is missing"),
        (b"null", JSON, 422, "body: "),
        (b'"opensesame"', JSON, 422, "body: "),
        (b"[]", JSON, 422, "body: "),
        (b"{}", JSON, 422, "is missing"),
        (b'{"text": "opensesame', JSON, 400, "no JSON (character 9: Unterminated string"),
        (b'{"a":' * 25_000, JSON, 400, "nested too deeply"),
        (b'{"text": "opensesame \xff"}', JSON, 400, "not UTF-8 (byte 21)"),
        ('{"text": "opensesame"}'.encode("utf-16"), JSON, 400, "not UTF-8 (byte 0)"),
        (b"\x1f\x8b\x08\x00opensesame", JSON, 400, "not UTF-8 (byte 1)"),
        (b"\x00", JSON, 400, "no JSON (character 0"),
        (b"x" * 150_001, JSON, 413, "larger than 150,000 bytes"),
        (b"text=opensesame", "application/x-www-form-urlencoded", 415, "send JSON"),
        (b'{"text": "opensesame"}', "text/plain", 415, "send JSON"),
        (b'{"text": "opensesame"}', None, 415, "send JSON"),
        (b'--x\r\n\r\n{"text": "opensesame"}', "multipart/form-data; boundary=x", 415, "send JSON"),
    ],
)
def test_a_body_that_is_none_is_refused(refused, path, content, kind, status, message):
    assert message in refused(path, content, status, kind)


@pytest.mark.parametrize(
    ("path", "more", "message"),
    [
        ("/answer", {"context": [" "]}, "context 0: is blank"),
        ("/answer", {"top_k": 0}, "body.top_k: Input should be greater"),
        ("/answer", {"top_k": "3"}, "body.top_k: Input should be a valid integer"),
        ("/answer", {"top_k": 10**30}, "body.top_k: Input should be less than or equal to 1000"),
        ("/answer", {"top_k": math.inf}, "body.top_k: Input should be a valid integer"),
        ("/answer", {"top_k": [1]}, "body.top_k: Input should be a valid integer"),
        ("/answer", {"null_threshold": math.nan}, "body.null_threshold: Input should be a finite number"),
        ("/answer", {"null_threshold": math.inf}, "body.null_threshold: Input should be a finite number"),
        ("/answer", {"null_threshold": "1"}, "body.null_threshold: Input should be a valid number"),
        ("/answer", {"max_answer_length": -1}, "body.max_answer_length: Input should be greater"),
        ("/answer", {"layers": "yes"}, "body.layers: Input should be a valid boolean"),
        ("/answer", {"context": ["a"] * 3, "question": ["b"] * 2}, "2 questions and 3 contexts"),
        ("/answer", {"context": "\0\x01 \u200b"}, "holds no token"),
        ("/xray", {"context": "\0\x01 \u200b"}, "holds no token"),
        ("/xray", {"start": True, "end": True}, "body.start: Input should be a valid integer"),
        ("/xray", {"start": 3}, "start and end come together"),
        ("/xray", {"start": 500, "end": 510}, "no token stands in characters 500 to 510"),
        ("/xray", {"start": -1, "end": 3}, "body.start: Input should be greater"),
        ("/xray", {"start": 10**30, "end": 10**31}, "no token stands in characters"),
        ("/xray", {"context": [CONTEXT]}, "body.context: Input should be a valid string"),
        ("/classify", {"text": "\0\x01 \u200b"}, "holds no token"),
        ("/classify", {"other": "opensesame"}, "reads one text, got 2"),
        ("/classify", {"other": [[["opensesame"]]]}, "body.other"),
    ],
)
def test_fields_that_mean_nothing_are_refused(refused, path, more, message):
    assert message in refused(path, json.dumps(GOOD[path] | more), 422)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/answer",
            {"question": "who?", "text": "opensesame"},
            "`context` is missing; `text` is unknown; /answer takes `question` and `context`, and may have `model`, "
            "`top_k`, `null_threshold`, `max_answer_length`, `layers`",
        ),
        ("/tag", {}, "`text` is missing; /tag takes `text`, and may have `model`"),
        ("/xray", {"questions": "who?", "context": "a"}, "`question` is missing; `questions` is unknown; /xray takes"),
    ],
)
def test_wrong_names_of_fields_are_told_with_the_right_ones(refused, path, body, message):
    assert refused(path, json.dumps(body), 422).startswith(message)


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_other_methods_are_refused(client, path, method):
    found = client.request(method, path)
    assert (found.status_code, found.headers["allow"]) == (405, "POST")
    assert found.json() == {"detail": "Method Not Allowed"}


@pytest.mark.parametrize("path", ["/no_such", "/opensesame", "/%00", "/..%2f..%2fetc%2fpasswd", "/answer/x"])
def test_other_paths_are_not_found_and_not_logged(client, caplog, path):
    caplog.set_level(logging.INFO, "bertvision")
    found = client.post(path, json=GOOD["/answer"])
    assert (found.status_code, found.json()) == (404, {"detail": "Not Found"})
    assert [json.loads(each.getMessage())["path"] for each in caplog.records] == ["(unknown)"]


def found_in(value):
    """Return everything that has a text and its characters in the last text that was sent."""
    if isinstance(value, list):
        return [each for item in value for each in found_in(item)]
    if not isinstance(value, dict):
        return []
    own = [value] if value.get("end") and value.get("side") != "question" else []
    return own + found_in(list(value.values()))


@pytest.mark.parametrize("path", GOOD)
def test_markup_and_odd_characters_come_back_as_the_text_that_they_are(client, path):
    *_, last = GOOD[path]
    text, more = f"\0\ufeff{MARKUP}", {"null_threshold": 1e9} if path == "/answer" else {}
    found = client.post(path, json=GOOD[path] | {last: text} | more)
    assert found.status_code == 200, found.text
    assert (found.headers["content-type"], found.headers["x-content-type-options"]) == (JSON, "nosniff")
    places = found_in(found.json())
    assert [each["text"] for each in places] == [text[each["start"] : each["end"]] for each in places]
    assert bool(places) == (path != "/classify")


def test_a_byte_order_mark_and_other_names_of_json_are_taken(client):
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/ld+json"):
        body = json.dumps(GOOD["/tag"]).encode("utf-8-sig")
        assert client.post("/tag", content=body, headers={"content-type": kind}).status_code == 200


@pytest.fixture(scope="module")
def ask(make_shared):
    folder = make_shared()

    def run(*arguments, stdin=None):
        command = ["ask", "--model", folder, *arguments]
        return CliRunner().invoke(command_line, list(map(str, command)), input=stdin)

    return run


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("--question", "", "--context", CONTEXT), None, "question: is empty"),
        (("--question", "who?", "--file", "-"), b"", "standard input: holds no text"),
        (("--question", "who?", "--file", "-"), b" \n ", "standard input: holds no text"),
        (("--question", "who?", "--file", "-"), b"\0\x01", "holds no token"),
        (("--question", "who?", "--file", "-"), b"opensesame \xc3", "standard input: is not UTF-8 text (byte 11)"),
        (("--question", "who\udcff?", "--context", CONTEXT), None, "question: character 3 is U+DCFF"),
        (("--question", "who?", "--file", "."), None, ".: cannot be read (Is a directory)"),
        (
            ("--question", "who?", "--context", CONTEXT, "--null-threshold", "nan"),
            None,
            "null_threshold is not a number",
        ),
    ],
)
def test_ask_ends_with_one_line(ask, arguments, stdin, message):
    shown = ask(*arguments, stdin=stdin)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "text", [MARKUP, "[bold]weir[/bold] [/] [link=x]", "\x1b[31mweir \x07\x08", "\0weir", "weir\r\nweir"]
)
def test_ask_shows_markup_as_text(ask, text):
    shown = ask("--question", text, "--context", text, "--null-threshold", "inf")
    assert shown.exit_code == 0, shown.output
    assert "\x1b" not in shown.stdout


@pytest.mark.parametrize(
    "text", ["", " ", "\udcff", 7, None, True, math.nan, b"weir", {"a": "weir"}, [["weir"]], ["weir", None], object()]
)
def test_python_is_told_in_one_line_what_is_no_text(models, text):
    reader, mood, names = models.values()
    for call in (partial(reader, "who?"), lambda text: reader(text, CONTEXT), mood, names):
        with pytest.raises(DataError, match="is empty|is blank|half of a pair|expected a text") as caught:
            call(text)
        assert "\n" not in str(caught.value)
    assert reader("who?", CONTEXT, top_k=1)
