import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from bertvision.serving.app import build_app
from bertvision.serving.metrics import CONTENT_TYPE, Histogram, Metrics
from bertvision.serving.schema import ServeConfig

ASKED = {"question": "who built the weir?", "context": "the weir was built in 1887 by hannah coyle"}


def read(text):
    """Every sample as Prometheus's own parser reads it, by name and labels."""
    families = list(text_string_to_metric_families(text))
    return {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}


@pytest.fixture
def client(shared_reader):
    app = build_app({'a "weir"\\': shared_reader}, ServeConfig(max_wait=0.0, max_characters=200))
    with TestClient(app) as client:
        yield client


def test_what_was_asked_is_counted_by_path_and_status(client):
    for body in (ASKED, {**ASKED, "question": ["who?", "when?", "where?"]}, {**ASKED, "question": " "}):
        client.post("/answer", json=body)
    client.post("/xray", json=ASKED)
    client.post("/answer", json={**ASKED, "context": "a" * 201})
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


def test_runs_of_a_model_are_counted_with_their_sizes(client):
    client.post("/answer", json=ASKED)
    client.post("/answer", json={**ASKED, "question": ["who?", "when?", "where?"]})
    samples = read(client.get("/metrics").text)
    model = ("model", 'a "weir"\\')
    assert samples["bertvision_model_runs_total", model] == 2
    assert samples["bertvision_queue_length", model] == 0
    assert samples["bertvision_batch_items_sum", model] == 4
    below = {bound: samples["bertvision_batch_items_bucket", ("le", bound), model] for bound in ("1", "2", "4", "+Inf")}
    assert below == {"1": 1, "2": 1, "4": 2, "+Inf": 2}


def test_memory_in_use_is_told(client):
    samples = read(client.get("/metrics").text)
    with open("/proc/self/status") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    assert samples["process_resident_memory_bytes",] == pytest.approx(1024 * kilobytes, rel=0.2)


def test_a_value_on_a_bound_counts_as_at_most_the_bound():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.add(value)
    assert histogram.counts[()] == [2, 2, 1]
    assert histogram.sums[()] == 14.0


def test_a_server_that_did_nothing_has_readable_metrics():
    assert read(Metrics(dict).text())["bertvision_requests_in_flight",] == 0


def test_they_are_behind_the_token(shared_reader):
    with TestClient(build_app({"weir": shared_reader}, ServeConfig(token="right"))) as client:
        assert client.get("/metrics").status_code == 401
        given = client.get("/metrics", headers={"Authorization": "Bearer right"})
        assert read(given.text)["bertvision_refusals_total", ("reason", "token")] == 1
