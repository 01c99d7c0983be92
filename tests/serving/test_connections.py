"""A server on a socket: what clients do that send half a request, too many of them, hang up, or stay to its end."""

import http.client
import json
import logging
import socket
import threading
from contextlib import ExitStack, contextmanager

import pytest

from bertvision.serving.app import build_app
from bertvision.serving.connections import build_server
from bertvision.serving.schema import ServeConfig

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone"
ASKED = {"question": "who built the weir?", "context": CONTEXT}
HALF = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nX-Hal"
TIMEOUT = 30  # seconds after which a test has failed


class Running:
    """A server in a thread."""

    def __init__(self, model, settings):
        config = ServeConfig(max_wait=0.0, **settings)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.server = build_server(build_app({"weir": model}, config), config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.address, self.clients = self.listening.getsockname(), ExitStack()

    def connect(self, sent=b"", address="127.0.0.1"):
        connection = socket.create_connection(self.address, timeout=TIMEOUT, source_address=(address, 0))
        connection.sendall(sent)
        return self.clients.enter_context(connection)

    def get(self, path):
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT)
        connection.request("GET", path)
        found = connection.getresponse().read().decode()
        connection.close()
        return found

    def metric(self, name):
        lines = [line.rpartition(" ") for line in self.get("/metrics").splitlines()]
        return next((float(value) for key, _, value in lines if key == f"bertvision_{name}"), 0.0)

    def end(self):
        self.server.should_exit = True  # what its handler of SIGTERM does
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()
        self.clients.close()


@pytest.fixture
def start(shared_reader):
    """Return a function of settings that gives a running server."""
    with ExitStack() as stack:

        @contextmanager
        def running(**settings):
            found = Running(shared_reader, settings)
            found.thread.start()
            try:
                yield found
            finally:
                found.end()

        yield lambda **settings: stack.enter_context(running(**settings))


def request(**asked):
    body = json.dumps({**ASKED, **asked}).encode()
    head = "POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def reply(connection):
    with http.client.HTTPResponse(connection) as found:
        found.begin()
        return found.status, json.loads(found.read())


def is_closed(connection):
    """Wait until the other side hangs up."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_a_header_is_given_up_after_its_time_without_a_line_about_it(start, caplog):
    caplog.set_level(logging.INFO)
    server = start(header_timeout=0.05)
    connections = [server.connect(HALF), server.connect()]
    assert all(map(is_closed, connections))
    assert not caplog.records
    assert server.metric('connections_dropped_total{reason="time"}') == 2


@pytest.mark.parametrize("more", [b"", HALF])
def test_a_connection_that_has_had_its_answer_must_send_the_next_request_in_time(start, more):
    server = start(header_timeout=0.05)
    connection = server.connect(request())
    assert reply(connection)[0] == 200
    connection.sendall(more)
    assert is_closed(connection)
    assert server.metric('connections_dropped_total{reason="time"}') == 1  # uvicorn's own limit counts nothing


def test_half_sent_headers_keep_nobody_out(start, caplog):
    caplog.set_level(logging.INFO)
    server = start(max_connections=8)
    connections = [server.connect(HALF) for _ in range(40)]
    assert json.loads(server.get("/health")) == {"status": "ok"}
    assert all(map(is_closed, connections[:30]))
    assert server.metric("connections") <= 4  # half of them: all are of one address
    assert server.metric('connections_dropped_total{reason="limit"}') >= 36
    lines = [json.loads(each.getMessage()) for each in caplog.records]
    assert {(line["event"], line["path"]) for line in lines} == {("request", "/health"), ("request", "/metrics")}


def test_over_the_limit_of_all_clients_the_connection_that_is_idle_for_longest_gives_way(start):
    server = start(max_connections=2, header_timeout=600.0)
    first, *_ = [server.connect(HALF, f"127.0.0.{number}") for number in (2, 3, 4)]  # one of each address may stay
    assert is_closed(first)


def test_a_connection_on_which_a_request_is_answered_never_gives_way(start, held):
    server = start(max_connections=4)
    busy = [server.connect(request()) for _ in range(2)]
    assert held.started.wait(TIMEOUT)
    wait_for(server, lambda: len(server.server.server_state.tasks) == 2)
    assert is_closed(server.connect(HALF))
    held.go_on.set()
    assert [reply(each)[0] for each in busy] == [200, 200]


def wait_for(server, is_true):
    """Look at a running server until something holds."""
    for _ in range(100_000):
        if is_true():
            return
        server.thread.join(0.001)
    raise AssertionError


def test_what_is_no_http_is_counted_and_leaves_no_line(start, caplog):
    caplog.set_level(logging.INFO)
    server = start()
    connection = server.connect(b"\x00secret\r\n\r\n")
    assert connection.recv(12) == b"HTTP/1.1 400"
    assert not caplog.records
    assert server.metric('connections_dropped_total{reason="invalid"}') == 1


def test_the_rest_of_a_request_whose_client_hung_up_is_not_done(start, held, caplog):
    caplog.set_level(logging.INFO, logger="bertvision.serve")
    server = start(slice_tokens=1)  # a window a slice
    connection = server.connect(request(context=CONTEXT * 5))
    assert held.started.wait(TIMEOUT)
    connection.close()
    wait_for(server, lambda: caplog.records)
    held.go_on.set()
    other = server.connect(request(context="the weir"))
    assert reply(other)[0] == 200
    server.end()  # its lines are written
    assert held.num_runs == 2  # one window of each
    assert [json.loads(each.getMessage())["status"] for each in caplog.records] == [499, 200]


def test_at_its_end_a_server_answers_what_runs_and_refuses_the_rest_at_once(start, held):
    server = start(slice_tokens=1, timeout=600.0)
    runs = server.connect(request(context="the weir"))
    assert held.started.wait(TIMEOUT)
    waits = server.connect(request())
    arrives, half = server.connect(request()[:-9]), server.connect(HALF)
    wait_for(server, lambda: len(server.server.server_state.tasks) == 3)
    server.server.should_exit = True
    for connection in (waits, arrives):  # while the model still runs
        status, body = reply(connection)
        assert (status, "is about to end" in body["detail"]) == (503, True)
    assert is_closed(half)
    held.go_on.set()
    assert reply(runs)[0] == 200
    server.end()
    assert held.num_runs == 1
