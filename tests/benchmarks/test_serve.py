"""The load test runs on small work here; what it measures is not asserted."""

import asyncio
import json
import signal
import socket
import threading
from asyncio.subprocess import Process
from contextlib import asynccontextmanager
from functools import partial

import numpy as np
import pytest

import bertvision
from benchmarks import serve as bench_module
from benchmarks.run import run_bench
from benchmarks.serve import PARTS, Light, Part, light_figures, load_figures
from benchmarks.server import Address, Server, read_metrics, running
from bertvision.errors import DataError, SettingsError
from bertvision.serving.http.app import build_app, build_server
from bertvision.serving.http.config import ServeConfig
from bertvision.serving.http.queue import ModelQueue
from bertvision.serving.reader import Reader
from bertvision.windows.window import WindowConfig

from ..serving.conftest import write_model

SMALL = ["requests=20", "clients=4", "max_queue=4", "burst=40", "device=cpu", "timeout=60"]
SMALL += ["light_clients=3", "light_requests=6", "heavy_characters=1000", "rounds=2"]


class InThread(Process):
    """A server in a thread, which ends when a process would."""

    def __init__(self, app, config, listening):
        self.server = build_server(app, config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})

    def send_signal(self, signal):
        self.server.should_exit = True

    async def wait(self):
        self.server.should_exit = True
        await asyncio.to_thread(self.thread.join)
        return 0


@pytest.fixture
def folder(encoder, tmp_path):
    windows = WindowConfig(max_length=128, stride=16)
    return write_model(encoder, tmp_path / "reader", "squad2", (), "learned_pooling", windows=windows)


@pytest.fixture
def in_thread(monkeypatch):
    """Serve in a thread instead of a process, which would take seconds to start."""

    @asynccontextmanager
    async def run(arguments):
        _, named, _, device, _, max_queue = arguments
        name, _, place = named.partition("=")
        config = ServeConfig(max_queue=int(max_queue), slice_tokens=256)
        listening = socket.create_server(("127.0.0.1", 0))
        address = Address(*listening.getsockname())
        process = InThread(build_app({name: bertvision.load(place, device=device)}, config), config, listening)
        process.thread.start()
        try:
            yield Server(address, process)
        finally:
            process.server.force_exit = True
            await process.wait()

    monkeypatch.setattr(bench_module, "running", run)
    monkeypatch.setattr(bench_module, "EVERY", 60)  # four questions, one of each length


def test_a_server_is_measured_under_load_over_its_limit_and_at_its_end(in_thread, folder, tmp_path):
    record = run_bench("serve", [f"model={folder}", *SMALL])
    assert [side.name for side in record.sides] == list(PARTS[1:])
    figures = record.figures
    seconds = sum(side.seconds[0] for side in record.sides)
    assert figures["requests a second"] == pytest.approx(20 / seconds, rel=0.01)
    assert figures["burst: answered"] + figures["burst: 429 with Retry-After"] == 40
    assert figures["burst: answered"] >= 4
    assert figures["burst: 429 with Retry-After"] > 0
    assert figures["answers that differ from those given alone"] == 0
    assert figures["SIGTERM: requests answered"] + figures["SIGTERM: requests refused with 503"] == 4
    assert figures["light clients beside a heavy one: p99 as a multiple of p99 alone"] > 0
    assert figures["heavy requests answered beside them"] >= 0
    assert str(tmp_path) not in json.dumps(record.model_dump(mode="json"))


def test_a_server_that_fails_stops_it(in_thread, folder, monkeypatch):
    monkeypatch.setattr(Reader, "answer_pairs", lambda self, pairs, asking: 1 / 0)
    with pytest.raises(DataError, match="the server replied 500: .*; expected 200"):
        run_bench("serve", [f"model={folder}", *SMALL])


def test_answers_that_change_with_their_company_are_counted(in_thread, folder, monkeypatch):
    plain, asked = Reader.answer_pairs, []

    def other(self, pairs, asking):
        asked.append(pairs)
        is_late = pairs == asked[0] and asked.count(pairs) > 2  # it was asked alone before and after the burst
        return plain(self, [(pairs[0][0], pairs[0][1][5:])] if is_late else pairs, asking)

    monkeypatch.setattr(Reader, "answer_pairs", other)
    figures = run_bench("serve", [f"model={folder}", *SMALL]).figures
    assert figures["answers that differ from those given alone"] > 0


def test_a_server_that_never_answers_is_given_up(in_thread, folder, monkeypatch):
    async def never(self, model, function):
        await asyncio.Event().wait()

    monkeypatch.setattr(ModelQueue, "call", never)
    with pytest.raises(SettingsError, match=r"not done its work within 0\.2 s"):
        run_bench("serve", [f"model={folder}", *SMALL, "timeout=0.2"])


@pytest.mark.parametrize("more", ["clients=5", "light_clients=4", "burst=4"])
def test_clients_stay_under_the_limit_and_a_burst_does_not(more):
    with pytest.raises(SettingsError, match="clients may be at most max_queue"):
        run_bench("serve", [*SMALL, more])


def test_figures_are_those_of_the_four_quarters():
    latencies = np.random.default_rng(0).random(400)
    parts = [
        Part(2.0, each.tolist(), 1, 1e6 * size)
        for each, size in zip(np.split(latencies, 4), (6, 7, 9, 8.5), strict=True)
    ]
    found = load_figures([Part(50.0, [100.0], 0, 5e6), *parts])
    assert found["requests a second"] == 400 / 8
    assert found["milliseconds, p99"] == pytest.approx(1000 * np.quantile(latencies, 0.99))
    assert found["milliseconds, p50"] == pytest.approx(1000 * np.median(latencies))
    assert found["answers that differ from those given alone"] == 4
    assert [found[f"memory after the {name}, MB"] for name in PARTS] == [5, 6, 7, 9, 8.5]
    assert found["growth of memory in the second half, MB"] == 8.5 - 7


def test_figures_of_light_clients_compare_their_slowest():
    random = np.random.default_rng(0)
    alone, beside = random.random(200), random.random(100)
    found = light_figures(Light(alone.tolist(), beside.tolist(), [200, 504, 504]))
    ratio = np.quantile(beside, 0.99) / np.quantile(alone, 0.99)
    assert found["light clients beside a heavy one: p99 as a multiple of p99 alone"] == pytest.approx(ratio)
    assert found["light clients alone: milliseconds, p50"] == pytest.approx(1000 * np.median(alone))
    assert found["heavy requests answered beside them"] == 1
    assert found["heavy requests given up (504) beside them"] == 2


def test_where_the_system_tells_no_memory_there_are_no_figures_of_it():
    assert not [name for name in load_figures([Part(1.0, [1.0], 0, None)] * 5) if "memory" in name]


def test_metrics_are_read_by_name_and_labels():
    text = '# TYPE a gauge\na 3\nb{path="/x y",le="+Inf"} 1.5e3\n'
    assert read_metrics(text) == {"a": 3.0, 'b{path="/x y",le="+Inf"}': 1500.0}


@pytest.fixture
def fake_python(tmp_path, monkeypatch):
    """Let a script stand for Python; gives a function of its text."""

    def write(text):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(path))

    return write


def fail():
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("end", "error"),
    [(fail, ZeroDivisionError), (partial(signal.raise_signal, signal.SIGTERM), asyncio.CancelledError)],
)
def test_a_process_is_gone_when_its_work_is_and_has_no_token(fake_python, monkeypatch, end, error):
    monkeypatch.setenv("BERTVISION_TOKEN", "1")
    fake_python('echo "a line" >&2; echo "the page is at http://127.0.0.1:80$BERTVISION_TOKEN/" >&2; exec sleep 600')
    found = []

    async def main():
        async with running(()) as server:
            found.append(server)
            end()
            await asyncio.Event().wait()

    with pytest.raises(error):
        asyncio.run(main())
    assert found[0].address == ("127.0.0.1", 80)
    assert found[0].process.returncode == -9


def test_a_server_that_does_not_start_is_told_with_its_last_words(fake_python):
    fake_python('echo "error: no such folder" >&2; exit 2')

    async def main():
        async with running(()):
            pass

    with pytest.raises(SettingsError, match="did not start; it said: error: no such folder"):
        asyncio.run(main())
