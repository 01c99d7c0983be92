import sys
import time

import numpy as np
import pytest
import torch

from bertvision.training import accounting
from bertvision.training.accounting import PROCESS, Costs, Meter, device_joules, give_back_memory, peak_process_bytes

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def test_only_the_time_between_go_and_stop_counts(clock):
    meter = Meter(CPU, Costs(seconds=7.0))
    clock(50)
    meter.go()
    clock(3)
    assert meter.stop().seconds == 10
    clock(20)
    meter.go()
    clock(2)
    assert meter.stop().seconds == 12


def test_making_items_is_the_datas_time(clock):
    meter = Meter(CPU, Costs(data_seconds=1.0))

    def items():
        for item in range(3):
            clock(2)
            yield item

    meter.go()
    for _ in meter.timed(items()):
        clock(10)
    costs = meter.stop()
    assert (costs.seconds, costs.data_seconds) == (36, 1 + 6)


def test_memory_is_the_most_that_was_held(clock):
    meter = Meter(CPU)
    meter.go()
    before = peak_process_bytes()
    np.ones(40_000_000)  # 320 MB, gone at once
    assert meter.stop().peak_process_bytes - before > 150_000_000
    assert Meter(CPU, Costs(peak_process_bytes=10**15)).stop().peak_process_bytes == 10**15


def test_memory_is_0_where_the_system_does_not_say(monkeypatch, tmp_path):
    monkeypatch.setattr(accounting, "PROCESS", tmp_path)  # no /proc, and as on Windows no module
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_process_bytes() == 0


def test_a_cpu_has_neither_a_meter_nor_memory_of_its_own():
    costs = Meter(CPU).stop()
    assert (costs.joules, costs.peak_device_bytes, device_joules(CPU)) == (None, None, None)


def test_memory_that_is_free_goes_back_to_the_system():
    def resident():
        return int((PROCESS / "status").read_text().partition("VmRSS:")[2].split()[0]) * 1024

    blocks = [bytearray(100_000) for _ in range(1000)]
    del blocks[1::2]  # what is kept holds the places of the others
    before = resident()
    give_back_memory()
    assert before - resident() > 25_000_000  # of 50 MB, in whole pages
