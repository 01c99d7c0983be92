"""The benchmark runs on small work here; what it measures is not asserted, and memory is left as it is."""

import pytest

from benchmarks import disk
from benchmarks.disk import DiskBench, Work
from bertvision.errors import SettingsError

SMALL = DiskBench(windows=8, layers=3, hidden=8)


def test_an_epoch_reads_every_window_of_the_files_once(tmp_path):
    work = Work(SMALL, tmp_path)
    disk.write_states(work)
    tokens = sum(int(batch.windows.mask.sum()) for batch in work.source().epoch(0))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == tokens * 3 * 8 * 2  # bf16
    work.train()


def test_where_memory_cannot_be_limited_the_benchmark_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "GROUPS", tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="memory cannot be limited here"):
        disk.bench_disk(SMALL)
