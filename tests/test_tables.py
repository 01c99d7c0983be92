import pytest

from bertvision.tables import in_time, in_units


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 B"), (999, "999.0 B"), (1500, "1.5 kB"), (61e9, "61.0 GB"), (2.6e12, "2.6 TB")]
)
def test_bytes_are_written_for_a_person(size, text):
    assert in_units(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (99.9, "99.9 s"), (100, "2 min"), (5999, "100 min"), (7200, "2.0 h")]
)
def test_a_duration_is_written_for_a_person(seconds, text):
    assert in_time(seconds) == text
