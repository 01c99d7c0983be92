import os
from dataclasses import replace

import numpy as np
import pytest

from bertvision.states import planner
from bertvision.states.keep import Wanted
from bertvision.states.live import states_of
from bertvision.states.planner import Rehearsal, measure_speeds
from bertvision.windows.padding import lengths_of
from bertvision.windows.step_plan import BatchConfig, StepPlan


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(planner, "time", clock)
    return clock


def test_speeds_are_what_the_clock_says(wanted, windows, clock, tmp_path, monkeypatch):
    def slow(real, seconds):
        def call(*given, **more):
            clock.now += seconds
            return real(*given, **more)

        return call

    def train(source):
        for batch in source.epoch(0):
            clock.now += 0.5 * batch.size

    monkeypatch.setattr(Wanted, "encode", slow(Wanted.encode, 0.25))
    monkeypatch.setattr(planner, "write_shard", slow(planner.write_shard, 3.0))
    monkeypatch.setattr(planner, "sha256_of", slow(planner.sha256_of, 1.0))
    monkeypatch.setattr(planner.CachedStates, "epoch", slow(planner.CachedStates.epoch, 0.125))
    monkeypatch.setattr(planner, "SAMPLE_BYTES", 4000)
    clock.now = 1.0
    lengths = lengths_of(windows)
    plan = StepPlan(lengths, BatchConfig(windows=2), 1, BatchConfig(windows=8))
    (whole,) = plan.epoch(0)
    monkeypatch.setattr(planner, "_read_back", lambda path: 2.0)
    found = measure_speeds(wanted("bf16"), plan, tmp_path / "not yet there", train)
    assert found.encoder == pytest.approx(lengths.sum() / 0.25)
    assert found.heads == pytest.approx(lengths[whole.rows[:2]].sum() / (0.5 * 2))
    assert found.ram == pytest.approx(lengths.sum() * 3 * 32 * 2 / 0.125)
    assert (found.disk_write, found.disk_read) == (1000, 2000)
    assert not found.reads_aside
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_is_slow_is_measured_on_a_part_of_its_batch(wanted, windows, clock, monkeypatch):
    sizes = []

    def slow(wanted, rows):
        sizes.append(len(rows))
        clock.now += 0.15 * len(rows)

    monkeypatch.setattr(Wanted, "encode", slow)
    many = [*windows, *windows, *windows]
    (planned,) = StepPlan(lengths_of(many), BatchConfig(windows=24), 1).epoch(0)
    rows, seconds = planner._measure_encoder(replace(wanted(), windows=many), planned)
    assert (len(rows), seconds) == (8, pytest.approx(1.2))
    assert set(sizes) == {8}


def test_a_part_of_a_batch_holds_whole_groups(wanted, windows, clock, monkeypatch):
    monkeypatch.setattr(Wanted, "encode", lambda *given: setattr(clock, "now", clock.now + 1))
    many = [*windows, *windows, *windows]
    (planned,) = StepPlan(lengths_of(many), BatchConfig(windows=24), 1, group=3).epoch(0)
    rows, _ = planner._measure_encoder(replace(wanted(group=3), windows=many), planned)
    assert len(rows) == 9


def test_a_rehearsal_ends_when_its_time_is_up_and_does_not_count_the_first_step(wanted, windows, cpu, clock):
    batch = states_of(wanted().encoder, windows, np.arange(2), cpu)
    rehearsal, steps = Rehearsal(batch), 0
    for step in rehearsal.epoch(0):
        assert step is batch
        clock.now += 0.4 if steps else 100
        steps += 1
    assert steps == 1 + 3  # the third ends after 1.2 seconds
    assert rehearsal.seconds == pytest.approx(0.4)
    assert rehearsal.num_steps(0) >= steps


def test_reading_back_works_without_advice_to_the_system(tmp_path, monkeypatch):
    (tmp_path / "sample").write_bytes(b"1234")
    assert planner._read_back(tmp_path / "sample") > 0
    monkeypatch.delattr(os, "posix_fadvise")
    assert planner._read_back(tmp_path / "sample") > 0


def test_a_full_disk_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "free_disk", lambda folder: 5)
    monkeypatch.setattr(planner, "write_shard", None)
    assert planner._measure_disk(tmp_path) == (1.0, 1.0)
