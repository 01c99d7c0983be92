import os

import pytest

from bertvision.states.memory import free_memory


def test_free_memory_is_what_the_system_says_is_available(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:  2000 kB\nHugePages: 0\n")
    assert free_memory(tmp_path / "meminfo") == 2000 * 1024


@pytest.mark.parametrize("text", [None, "MemTotal: 9000 kB\n"])
def test_where_the_system_does_not_say_all_memory_counts(text, tmp_path):
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    assert free_memory(tmp_path / "meminfo") == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
