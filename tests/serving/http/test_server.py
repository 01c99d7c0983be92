"""A server on a socket: what clients do that send half a request, too many of them, hang up, or stay to its end."""

import http.client
import json
import logging
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from bertvision.serving.http.app import build_app, build_server
from bertvision.serving.http.config import ServeConfig

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone"
ASKED = {"question": "who built the weir?", "context": CONTEXT}
HALF = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nX-Hal"
TIMEOUT = 30  # seconds after which a test has failed


def request(**asked):
    body = json.dumps({**ASKED, **asked}).encode()
    head = "POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Running:
    """A server in a thread."""

    def __init__(self, model, settings):
        config = ServeConfig(**settings)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.server = build_server(build_app({"weir": model}, config), config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.address, self.clients = self.listening.getsockname(), ExitStack()

    def connect(self, sent=b""):
        connection = socket.create_connection(self.address, timeout=TIMEOUT)
        connection.sendall(sent)
        return self.clients.enter_context(connection)

    def get(self, path):
        connection = http.client.HTTPConnection(*self.address, timeout=TIMEOUT)
        connection.request("GET", path)
        found = connection.getresponse().read().decode()
        connection.close()
        return found

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


def test_half_sent_bodies_of_one_address_keep_nobody_out(start):
    server = start()
    half = [server.connect(request()[:-9]) for _ in range(300)]
    assert [json.loads(server.get("/health"))["status"] for _ in range(30)] == ["ok"] * 30
    half[-1].sendall(request()[-9:])
    assert reply(half[-1])[0] == 200


def test_half_sent_headers_of_one_address_keep_nobody_out(start):
    server = start()
    half = [server.connect(HALF) for _ in range(300)]
    assert [json.loads(server.get("/health"))["status"] for _ in range(30)] == ["ok"] * 30
    half[-1].sendall(b"f: 1\r\n" + request().partition(b"\r\n")[2])
    assert reply(half[-1])[0] == 200


def test_bodies_of_one_byte_chunks_keep_nobody_out(start):
    server = start()
    head = request().partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
    clients = [server.connect(head) for _ in range(40)]
    for _ in range(10):
        for client in clients:
            client.sendall(b"1\r\nx\r\n" * 2000)
        assert json.loads(server.get("/health")) == {"status": "ok"}
    clients[0].sendall(b"0\r\n\r\n")
    assert reply(clients[0])[0] == 400  # no JSON


@pytest.mark.faults
def test_megabytes_of_one_byte_chunks_keep_nobody_out(start, capsys):
    server = start(timeout=300.0)
    head = request().partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
    clients = [server.connect(head) for _ in range(40)]
    threads = [threading.Thread(target=client.sendall, args=(b"1\r\nx\r\n" * 400_000,)) for client in clients]
    for thread in threads:
        thread.start()
    worst = max(timed_health(server) for _ in range(300))
    for thread in threads:
        thread.join(TIMEOUT)
    for client in clients:
        client.sendall(b"0\r\n\r\n")
    assert [reply(client)[0] for client in clients] == [400] * 40  # no JSON
    with capsys.disabled():
        print(f"\n40 clients of 400,000 one-byte chunks: the slowest of 300 GET /health took {1000 * worst:.0f} ms")


@pytest.mark.faults
def test_slow_clients_of_every_kind_keep_nobody_out_and_are_all_let_go(start, capsys):
    server = start(timeout=5.0)
    half = [server.connect(sent) for _ in range(100) for sent in (HALF, request()[:-9], b"P", b"", request()[:30])]
    unread = [server.connect(b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000) for _ in range(20)]
    worst = max(timed_health(server) for _ in range(300))
    told = [reply(each)[0] for number, each in enumerate(half) if number % 5 != 3]
    assert told == [408] * 400
    assert all(map(is_closed, half[3::5]))
    wait_for(server, lambda: not server.server.server_state.connections)
    assert len(unread) == 20
    with capsys.disabled():
        print(f"\n520 slow clients: the slowest of 300 GET /health took {1000 * worst:.0f} ms")


def timed_health(server):
    started = time.perf_counter()
    assert json.loads(server.get("/health")) == {"status": "ok"}
    return time.perf_counter() - started


@pytest.mark.parametrize("sent", [HALF, request()[:-9], b"P"])
def test_a_request_that_does_not_arrive_in_time_is_told_so_and_its_connection_closed(start, sent):
    connection = start(timeout=0.1).connect(sent)
    status, body = reply(connection)
    assert (status, body) == (408, {"detail": "the request did not arrive within 0.1 s"})
    assert is_closed(connection)


def test_a_request_that_arrives_byte_by_byte_has_no_more_time_than_another(start):
    server = start(timeout=0.2)
    connection = server.connect()
    sent = iter(HALF * 1000)
    connection.settimeout(0.01)
    with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):  # noqa: PT012
        for byte in sent:
            connection.sendall(bytes([byte]))
            server.thread.join(0.001)
    assert next(sent, None) is not None


def test_a_connection_without_a_request_is_closed(start):
    server = start(timeout=0.1)
    asked = server.connect(request())
    assert reply(asked)[0] == 200
    assert is_closed(asked)
    assert is_closed(server.connect())


def test_after_an_answer_the_next_request_of_a_connection_must_arrive_in_time(start):
    connection = start(timeout=0.1).connect(request())
    assert reply(connection)[0] == 200
    connection.sendall(HALF)
    assert reply(connection)[0] == 408
    assert is_closed(connection)


def test_a_client_that_never_reads_its_answers_is_dropped(start):
    server = start(timeout=0.1)
    connection = server.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(b"GET /page.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)  # 20 MB of answers
    wait_for(server, lambda: server.server.server_state.total_requests > 0)
    wait_for(server, lambda: not server.server.server_state.connections)


def test_headers_without_an_end_are_refused(start):
    server = start()
    connection = server.connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    with suppress(OSError):  # it hangs up
        for _ in range(40):
            connection.sendall(b"X-More: " + b"x" * 10_000 + b"\r\n")
    with suppress(ConnectionResetError):  # what was sent too much may cost the answer
        assert reply(connection) == (431, {"detail": "the headers are larger than 65,536 bytes"})
    assert is_closed(connection)


def test_requests_of_a_connection_are_answered_in_turn(start):
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    connection = start().connect(request() + request(question="when?") + last)
    with connection.makefile("rb") as file:
        found = file.read()
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert found.endswith(b'{"status":"ok"}')


def wait_for(server, is_true):
    """Look at a running server until something holds."""
    for _ in range(100_000):
        if is_true():
            return
        server.thread.join(0.001)
    raise AssertionError


def test_what_is_no_http_is_refused_and_leaves_no_line(start, caplog):
    caplog.set_level(logging.INFO)
    connection = start().connect(b"\x00secret\r\n\r\n")
    assert connection.recv(12) == b"HTTP/1.1 400"
    assert not caplog.records


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
