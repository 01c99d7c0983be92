import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from bertvision.data.example import Question
from bertvision.serving.http.app import build_app
from bertvision.serving.http.config import ServeConfig
from bertvision.serving.http.guard import CONTENT_TYPE, Metrics
from bertvision.windows.window import cut_windows

ASKED = {"question": "who built the weir?", "context": "the weir was built in 1887 by hannah coyle"}


def read(text):
    """Every sample as Prometheus's own parser reads it, by name and labels."""
    families = list(text_string_to_metric_families(text))
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


@pytest.fixture
def client(shared_reader):
    app = build_app({'a "weir"\\': shared_reader}, ServeConfig(max_body=500))
    with TestClient(app) as client:
        yield client


def test_what_was_asked_is_counted_by_path_and_status(client):
    for body in (ASKED, {**ASKED, "question": ["who?", "when?", "where?"]}, {**ASKED, "question": " "}):
        client.post("/answer", json=body)
    client.post("/xray", json=ASKED)
    client.post("/answer", json={**ASKED, "context": "a" * 501})
    client.get("/secret?text=secret")
    found = client.get("/metrics")
    assert found.headers["content-type"] == CONTENT_TYPE
    assert "secret" not in found.text
    assert "weir was" not in found.text
    samples = read(found.text)
    counted = {key[1:]: value for key, value in samples.items() if key[0] == "bertvision_requests_total"}
    assert counted == {
        (("path", "/answer"), ("status", "200")): 2,
        (("path", "/answer"), ("status", "422")): 1,
        (("path", "/answer"), ("status", "413")): 1,
        (("path", "/xray"), ("status", "200")): 1,
        (("path", "(unknown)"), ("status", "404")): 1,
    }
    refused = {key[1][1]: value for key, value in samples.items() if key[0] == "bertvision_refusals_total"}
    assert refused == {"invalid": 1, "size": 1, "unknown": 1}
    assert samples["bertvision_request_seconds_count", ("path", "/answer")] == 4
    assert samples["bertvision_requests_in_flight",] == 1  # the one that asks


def test_runs_of_a_model_are_counted_with_their_sizes(client, shared_reader):
    client.post("/answer", json=ASKED)
    client.post("/answer", json={**ASKED, "question": ["who?", "when?", "where?"]})
    samples = read(client.get("/metrics").text)
    model = ("model", 'a "weir"\\')
    assert samples["bertvision_model_runs_total", model] == 2
    assert samples["bertvision_queue_length", model] == 0
    questions = [ASKED["question"], "who?", "when?", "where?"]
    windows = cut_windows(
        [Question("0", text, ASKED["context"], (), "") for text in questions],
        shared_reader.served.tokenizer,
        shared_reader.served.config.windows,
        labelled=False,
    )
    assert samples["bertvision_batch_tokens_sum", model] == sum(map(len, windows))
    assert samples["bertvision_queue_tokens", model] == 0
    assert samples["bertvision_batch_tokens_bucket", ("le", "+Inf"), model] == 2


def test_memory_in_use_is_told(client):
    samples = read(client.get("/metrics").text)
    with open("/proc/self/status") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    assert samples["process_resident_memory_bytes",] == pytest.approx(1024 * kilobytes, rel=0.2)


def test_names_and_types_are_those_that_dashboards_ask_for():
    metrics = Metrics(lambda: ({"weir": 3}, {"weir": 700}))
    metrics.note_request("/answer", 429, 0.2)
    metrics.note_run("weir", tokens=4, seconds=0.03)
    families = {each.name: each.type for each in text_string_to_metric_families(metrics.text())}
    assert {name: kind for name, kind in families.items() if not name.endswith("_created")} == {
        "bertvision_requests": "counter",
        "bertvision_request_seconds": "histogram",
        "bertvision_requests_in_flight": "gauge",
        "bertvision_refusals": "counter",
        "bertvision_queue_length": "gauge",
        "bertvision_model_runs": "counter",
        "bertvision_queue_tokens": "gauge",
        "bertvision_batch_tokens": "histogram",
        "bertvision_model_run_seconds": "histogram",
        "process_virtual_memory_bytes": "gauge",
        "process_resident_memory_bytes": "gauge",
        "process_start_time_seconds": "gauge",
        "process_cpu_seconds": "counter",
        "process_open_fds": "gauge",
        "process_max_fds": "gauge",
    }
    assert read(metrics.text())["bertvision_queue_length", ("model", "weir")] == 3
    assert read(metrics.text())["bertvision_queue_tokens", ("model", "weir")] == 700


def nothing():
    return {}, {}


def test_two_servers_of_a_process_count_apart():
    busy, idle = Metrics(nothing), Metrics(nothing)
    busy.note_run("weir", tokens=1, seconds=0.1)
    assert read(busy.text())["bertvision_model_runs_total", ("model", "weir")] == 1
    assert "weir" not in idle.text()


def test_a_server_that_did_nothing_has_readable_metrics():
    assert read(Metrics(nothing).text())["bertvision_requests_in_flight",] == 0


def test_they_are_behind_the_token(shared_reader):
    with TestClient(build_app({"weir": shared_reader}, ServeConfig(token="right"))) as client:
        assert client.get("/metrics").status_code == 401
        given = client.get("/metrics", headers={"Authorization": "Bearer right"})
        assert read(given.text)["bertvision_refusals_total", ("reason", "token")] == 1
