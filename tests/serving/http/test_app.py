import ipaddress
import json
import logging
import socket
import threading
from unittest.mock import Mock

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app as command_line
from bertvision.data.example import Question
from bertvision.model_config import SHIPPED
from bertvision.serving.http.app import build_app
from bertvision.serving.http.config import ServeConfig
from bertvision.serving.reader import Reader
from bertvision.serving.xray import xray
from bertvision.windows.window import cut_windows

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone"
JSON = {"Content-Type": "application/json"}
ASKED = {"question": "who built the weir?", "context": CONTEXT}


@pytest.fixture
def reader(shared_reader):
    return shared_reader


@pytest.fixture
def serve(reader):
    """Return a function of settings that gives a client of a running server."""
    clients = []

    def start(models=None, **settings):
        client = TestClient(build_app(models or {"weir": reader}, ServeConfig(**settings)))
        clients.append(client.__enter__())
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)


def as_json(answers):
    return [json.loads(json.dumps(answer.as_dict())) for answer in answers]


def without_layers(answers):
    return [{name: value for name, value in answer.items() if name != "layers"} for answer in answers]


def test_answers_are_those_of_the_reader(serve, reader):
    found = serve().post("/answer", json={**ASKED, "top_k": 3, "null_threshold": 1e9, "max_answer_length": 2})
    assert found.status_code == 200, found.text
    expected = reader(ASKED["question"], CONTEXT, top_k=3, null_threshold=1e9, max_answer_length=2)
    (answers,) = found.json()["answers"]
    assert found.json()["model"] == "weir"
    for answer, other in zip(without_layers(answers), as_json(expected), strict=True):
        assert answer == {
            name: pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value
            for name, value in other.items()
        }


@pytest.mark.parametrize(("asked", "told"), [(None, 0.0), (2.5, 2.5)])
def test_the_threshold_in_use_is_told(serve, asked, told):
    found = serve().post("/answer", json=ASKED if asked is None else {**ASKED, "null_threshold": asked}).json()
    assert (found["null_threshold"], found["temperature"]) == (told, 1.0)


def test_the_x_ray_is_that_of_the_reader(serve, reader):
    answer = next(each for each in reader(ASKED["question"], CONTEXT, top_k=9) if each.text)
    client = serve()
    found = client.post("/xray", json={**ASKED, "start": answer.start, "end": answer.end})
    assert found.status_code == 200, found.text
    expected = xray(reader, ASKED["question"], CONTEXT, answer).as_dict()
    assert found.json()["tokens"] == expected["tokens"]
    np.testing.assert_allclose(found.json()["starts"], expected["starts"], rtol=1e-4, atol=1e-5)
    assert client.post("/xray", json=ASKED).json()["parts"] == ["layer 0", "layer 1", "layer 2", "bias"]


def test_a_head_that_is_no_sum_over_layers_is_not_x_rayed_but_answers(serve, make_folder):
    client = serve({"weir": bertvision.load(make_folder(head="layer_attention"), device="cpu")})
    found = client.post("/xray", json=ASKED)
    assert (found.status_code, "no sum over layers" in found.json()["detail"]) == (422, True)
    assert client.post("/answer", json=ASKED).status_code == 200


def test_lists_and_layers_can_be_asked_for(serve):
    found = serve().post("/answer", json={"question": ["who?", "when?"], "context": CONTEXT, "layers": True})
    assert [len(each) for each in found.json()["answers"]] == [1, 1]
    assert [part["name"] for part in found.json()["answers"][0][0]["layers"]][0] == "layer 0"
    assert serve().post("/answer", json={"question": [], "context": []}).json()["answers"] == []


def test_one_question_about_several_texts_has_one_answer_that_names_its_text(serve, make_folder):
    texts = ["the river was by the stone", CONTEXT, "nobody built the dam"]
    body = {"question": "who?", "context": texts, "top_k": 3, "null_threshold": 1e9}
    (answers,) = serve().post("/answer", json=body).json()["answers"]
    reader = bertvision.load(make_folder(), device="cpu")
    expected = reader("who?", texts, top_k=3, null_threshold=1e9)
    assert [(each["text"], each["context"]) for each in answers] == [(each.text, each.context) for each in expected]


def test_texts_are_classified_and_tagged(serve, make_folder):
    classifier = bertvision.load(make_folder("sst2", ("bad", "good")), device="cpu")
    tagger = bertvision.load(make_folder("ner", ("O", "B-A")), device="cpu")
    client = serve({"mood": classifier, "names": tagger})
    cut = client.post("/classify", json={"text": ["the weir", CONTEXT * 2]}).json()["results"]
    assert [each["is_text_cut"] for each in cut] == [False, True]
    found = client.post("/classify", json={"text": ["the weir", CONTEXT[:20]]}).json()
    assert [each["label"] for each in found["results"]] == [
        each.label for each in classifier(["the weir", CONTEXT[:20]])
    ]
    tagged = client.post("/tag", json={"text": "the weir"}).json()["results"][0]
    assert [word["tag"] for word in tagged["words"]] == [word.tag for word in tagger("the weir").words]
    assert client.get("/models").json() == {"mood": "sst2", "names": "ner"}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/classify", {"text": "a"}, "no model for /classify is loaded; loaded: weir (/answer)"),
        ("/tag", {"text": "a"}, "no model for /tag is loaded"),
        ("/answer", {**ASKED, "model": "dam"}, "no model 'dam' for /answer is loaded"),
    ],
)
def test_a_model_that_is_not_loaded_is_not_found(serve, path, body, message):
    found = serve().post(path, json=body)
    assert found.status_code == 404
    assert message in found.json()["detail"]


def test_a_body_without_a_length_is_counted_as_it_comes(serve):
    parts = (b"x" * 1000 for _ in range(3))
    assert serve(max_body=2500).post("/answer", content=parts).status_code == 413


def test_a_refusal_does_not_send_the_text_back(serve):
    found = serve().post("/answer", json={**ASKED, "context": ["a secret weir", 7]})
    assert found.status_code == 422
    assert "secret" not in found.text


def test_too_many_requests_are_told_when_to_come_back(serve, held):
    client = serve(max_queue=1)
    first = threading.Thread(target=client.post, args=("/answer",), kwargs={"json": ASKED})
    first.start()
    assert held.started.wait(timeout=30)
    found = client.post("/answer", json=ASKED)
    held.go_on.set()
    first.join()
    assert (found.status_code, found.headers["retry-after"]) == (429, "1")


def test_a_request_of_more_tokens_than_one_may_have_is_refused_before_it_runs(serve, held):
    client = serve(max_tokens=100)
    found = client.post("/answer", json={**ASKED, "context": CONTEXT * 5})
    assert (found.status_code, held.num_runs) == (413, 0)
    tokens = sum(map(len, windows_of(held.served, CONTEXT * 5)))
    assert found.json()["detail"].startswith(f"{tokens} tokens, in windows that overlap")
    assert "send at most 100 in one request" in found.json()["detail"]
    held.go_on.set()
    assert client.post("/answer", json=ASKED).status_code == 200


@pytest.mark.parametrize(("path", "more"), [("/answer", {"layers": True, "top_k": 1000}), ("/xray", {})])
def test_a_second_pass_over_windows_is_limited_by_itself(serve, reader, path, more):
    tokens = sum(map(len, windows_of(reader.served, CONTEXT)))
    assert serve(max_tokens=tokens).post(path, json={**ASKED, **more}).status_code == 200
    assert serve(max_tokens=tokens - 1).post(path, json={**ASKED, **more}).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        {"question": "who? " * 800, "context": ["the weir"] * 100},  # 400,000 characters of questions
        {"question": ["who?"] * 40_000, "context": "the weir"},
    ],
)
def test_texts_count_as_often_as_they_are_paired_before_they_are_cut(serve, held, body):
    found = serve(max_body=200_000 if len(body["context"]) > 8 else 600_000).post("/answer", json=body)
    assert (found.status_code, held.num_runs) == (413, 0)
    assert "all pairs counted; send less" in found.json()["detail"]


def windows_of(served, context):
    question = Question("0", ASKED["question"], context, (), "")
    return cut_windows([question], served.tokenizer, served.config.windows, labelled=False)


def test_the_rest_of_a_request_that_takes_too_long_is_not_done(serve, held):
    client = serve(timeout=0.01, slice_tokens=1)  # a window a slice
    found = client.post("/answer", json=ASKED)
    assert len(windows_of(held.served, CONTEXT)) > 1
    assert found.status_code == 504
    assert "no result within 0.01 s" in found.json()["detail"]
    held.go_on.set()
    client.__exit__(None, None, None)  # nothing runs any more
    assert held.num_runs <= 1  # none where it was given up before it had its turn


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", "Bearer ", "right", "Basic right", "Bearer right2", "Bearer é"]
)
def test_without_the_token_nothing_but_health_is_to_be_had(serve, given):
    client = serve(token="right")
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    for path in ("/models", "/openapi.json"):
        refused = client.get(path, headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert client.post("/answer", json=ASKED, headers=headers).status_code == 401
    assert client.get("/health", headers=headers).json() == {"status": "ok"}
    assert client.get("/", headers=headers).status_code == 200
    assert client.post("/xray", json=ASKED, headers=headers).status_code == 401
    assert client.post("/answer", json=ASKED, headers={"Authorization": "Bearer right"}).status_code == 200


def test_a_host_name_that_holds_an_open_path_opens_no_other(serve):
    client = serve(token="right")
    assert client.get("/models", headers={"Host": "localhost/health?"}).status_code == 401


def test_other_sites_may_not_read_answers_and_other_host_names_are_refused(serve):
    client = serve(hosts=("localhost", "127.0.0.1"))
    asked = {"Origin": "https://example.org", "Host": "localhost:8000"}
    found = client.post("/answer", json=ASKED, headers=asked)
    assert found.status_code == 200
    assert not [name for name in found.headers if name.startswith("access-control")]
    assert client.options("/answer", headers={**asked, "Access-Control-Request-Method": "POST"}).status_code == 405
    refused = client.get("/models", headers={"Host": "example.org"})
    assert (refused.status_code, "this one is localhost or 127.0.0.1" in refused.json()["detail"]) == (400, True)


def test_the_log_has_a_line_for_each_request_and_no_word_of_its_text(serve, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    client = serve()
    client.post("/answer", json={"question": "who is secret?", "context": "a secret weir"})
    client.post("/answer", json={"question": "", "context": "a secret weir"})
    client.get("/secret?text=secret")

    def fail(self, pairs, asking):
        raise ZeroDivisionError(f"secret {pairs}")

    monkeypatch.setattr(Reader, "answer_pairs", fail)
    assert client.post("/answer", json={"question": "secret?", "context": "a secret weir"}).status_code == 500
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "bertvision.serve"]
    assert [(line["path"], line["status"]) for line in lines if line["event"] == "request"] == [
        ("/answer", 200),
        ("/answer", 422),
        ("(unknown)", 404),
        ("/answer", 500),
    ]
    assert [line["kind"] for line in lines if line["event"] == "error"] == ["ZeroDivisionError"]
    assert all("secret" not in each.getMessage() for each in caplog.records if each.name.startswith("bertvision"))


def test_the_log_holds_no_method_that_a_client_made_up(serve, caplog):
    caplog.set_level(logging.INFO, logger="bertvision.serve")
    serve().request("SECRET" * 1000, "/health")
    (line,) = [json.loads(each.getMessage()) for each in caplog.records]
    assert line["method"] == "(unknown)"


def test_requests_of_several_clients_at_once_have_their_own_answers(serve, reader):
    client = serve()
    contexts = [CONTEXT[place:] for place in range(0, 40, 4)]
    found = {}

    def ask(place):
        asked = {**ASKED, "context": contexts[place], "null_threshold": 1e9}
        found[place] = client.post("/answer", json=asked).json()["answers"][0][0]["text"]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(contexts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [answer.text for answer in reader([ASKED["question"]] * len(contexts), contexts, null_threshold=1e9)]
    assert [found[place] for place in range(len(contexts))] == expected


def test_the_interface_is_described_and_needs_nothing_from_elsewhere(serve):
    described = serve().get("/openapi.json").json()
    assert set(described["paths"]) == {"/health", "/metrics", "/models", "/answer", "/xray", "/classify", "/tag"}
    kinds = {path: set(found["responses"]["200"]["content"]) for path, (found,) in by_path(described)}
    assert kinds.pop("/metrics") == {"text/plain"}
    assert set.union(*kinds.values()) == {"application/json"}
    refusals = [found["responses"]["4XX"]["content"]["application/json"] for _, (found,) in by_path(described)]
    assert all(each["schema"]["$ref"].endswith("/Refusal") for each in refusals)
    assert list(described["components"]["schemas"]["Refusal"]["properties"]) == ["detail"]


def by_path(described):
    return [(path, tuple(methods.values())) for path, methods in described["paths"].items()]


def test_the_examples_of_the_description_are_answered(serve, reader, make_folder):
    classifier = bertvision.load(make_folder("sst2", ("bad", "good")), device="cpu")
    tagger = bertvision.load(make_folder("ner", ("O", "B-A")), device="cpu")
    client = serve({"weir": reader, "mood": classifier, "names": tagger})
    described = client.get("/openapi.json").json()
    bodies = {
        path: found["requestBody"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
        for path, (found,) in by_path(described)
        if "requestBody" in found
    }
    assert set(bodies) == {"/answer", "/xray", "/classify", "/tag"}
    for path, name in bodies.items():
        (example,) = described["components"]["schemas"][name]["examples"]
        assert client.post(path, json=example).status_code == 200


@pytest.fixture
def started(monkeypatch):
    """Keep the server from running; gives its settings and the socket that it would have listened on."""
    found = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: found.append((self.config, *sockets)))
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    yield found
    for _, listening in found:
        listening.close()


def call(*arguments, env=None):
    return CliRunner().invoke(command_line, ["serve", "--port", "0", *map(str, arguments)], env=env)


def test_the_verb_listens_to_this_machine_alone_unless_it_is_told_otherwise(make_folder, started):
    folder = make_folder()
    shown = call("--model", f"weir={folder}", "--device", "cpu")
    assert shown.exit_code == 0, shown.output
    config, listening = started[0]
    (host, port) = listening.getsockname()
    assert (host, config.access_log) == ("127.0.0.1", False)
    assert shown.stderr == f"the page is at http://127.0.0.1:{port}/\n"
    shown = call("--model", f"weir={folder}", "--device", "cpu", "--host", "0.0.0.0")
    assert "warning: listening on 0.0.0.0" in shown.stderr
    assert f"the page is at http://localhost:{started[1][1].getsockname()[1]}/" in shown.stderr
    assert "answers go to anyone" in shown.stderr


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.2", "127.0.0.2:8000"), ("::1", "[::1]:8000"), ("0:0:0:0:0:0:0:1", "[::1]")]
)
def test_every_address_of_this_machine_alone_keeps_other_host_names_out(make_folder, started, monkeypatch, host, own):
    bound = str(ipaddress.ip_address(host))
    listening = Mock(socket.socket, getsockname=lambda: (bound, 8000))
    monkeypatch.setattr("socket.create_server", lambda address, family: listening)  # no IPv6 is needed here
    shown = call("--model", f"weir={make_folder()}", "--device", "cpu", "--host", host)
    assert "warning" not in shown.stderr
    with TestClient(started[0][0].app) as client:
        for name in (own, "localhost:8000"):
            assert client.get("/models", headers={"Host": name}).status_code == 200
        for name in ("example.org", "[::2]:8000", "[", ""):
            assert client.get("/models", headers={"Host": name}).status_code == 400


def test_the_models_that_ship_need_no_folder(make_folder, started, monkeypatch):
    place = make_folder()
    monkeypatch.setitem(SHIPPED, "base", place)
    assert call("--model", "base", "--device", "cpu", "--allow-outside").exit_code == 0
    with TestClient(started[0][0].app, base_url="http://localhost") as client:
        assert client.get("/models").json() == {"base": "squad2"}


def test_the_verb_takes_the_token_from_the_environment(make_folder, started):
    call("--model", f"weir={make_folder()}", "--device", "cpu", env={"BERTVISION_TOKEN": "right"})
    with TestClient(started[0][0].app, base_url="http://localhost") as client:
        assert client.get("/models").status_code == 401
        assert client.get("/models", headers={"Authorization": "Bearer right"}).json() == {"weir": "squad2"}


def test_a_plain_folder_is_served_by_its_own_name(make_folder, started, monkeypatch):
    folder = make_folder()
    odd = folder.rename(folder.with_name("lr=1e-3"))
    monkeypatch.chdir(odd.parent)
    for given in ("lr=1e-3", f"{odd}/"):
        assert call("--model", given, "--device", "cpu").exit_code == 0
        with TestClient(started[-1][0].app, base_url="http://localhost") as client:
            assert client.get("/models").json() == {"lr=1e-3": "squad2"}


def test_the_verb_sets_the_limits(make_folder, started):
    given = ("--model", f"mood={make_folder('sst2', ('bad', 'good'))}", "--device", "cpu")
    assert call(*given).exit_code == 0
    assert call(*given, "--max-body", 100, "--max-tokens", 10).exit_code == 0
    bodies = [
        json.dumps({"text": "the weir"}),
        json.dumps({"text": "a b c d e f g h i"}),
        json.dumps({"text": "a" * 500}),
    ]
    statuses = []
    for config, _ in started:
        with TestClient(config.app, base_url="http://localhost") as client:
            statuses.append([client.post("/classify", content=body, headers=JSON).status_code for body in bodies])
    assert statuses == [[200, 200, 200], [200, 413, 413]]


def test_a_port_that_is_taken_is_told_in_one_line(make_folder, started):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = call("--model", f"weir={make_folder()}", "--device", "cpu", "--port", port)
    assert (shown.exit_code, started) == (2, [])
    assert shown.stderr.startswith(f"error: cannot listen on 127.0.0.1, port {port}: Address already in use; give")


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (("--model", "weir="), None, "expected a folder or NAME=DIR"),
        (("--model", "/"), None, "expected a folder or NAME=DIR"),
        (("--model", "weir"), None, "no such folder"),
        (("--model", "a=x", "--model", "a=y"), None, "two models are called 'a'; name them apart"),
        (
            ("--model", "one/a", "--model", "two/a/"),
            None,
            "two models are called 'a'; name them apart: --model NAME=DIR",
        ),
        (("--model", "a=x"), {"BERTVISION_TOKEN": ""}, "is empty"),
        (("--model", "a=no_such"), None, "no such folder"),
    ],
)
def test_what_cannot_be_served_ends_with_one_line(started, arguments, env, message):
    shown = call(*arguments, env=env)
    assert shown.exit_code == 2
    assert message in shown.stderr
    assert shown.stderr.count("\n") == 1
