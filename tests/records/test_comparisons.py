import pytest

from bertvision.errors import FolderError
from bertvision.records import DIFFERENCES_FILE, DifferenceRecord, read_differences, write_differences


def apart(row, against="full", **changes):
    known = {"experiment": "study", "fraction": 1.0, "seeds": (1, 2), "by_seed": (-1.5, -2.5)}
    numbers = {"difference": -2.0, "low": -3.0, "high": -1.0, "p_value": 0.01}
    return DifferenceRecord(model=row, against=against, **{**known, **numbers, **changes})


def test_differences_come_back_from_disk_and_those_with_another_row_stay(tmp_path):
    write_differences(tmp_path / "a", [apart("lora"), apart("top_0")])
    write_differences(tmp_path / "a", [apart("full", against="lora")])
    write_differences(tmp_path / "a", [apart("lora", p_value=0.5)])
    assert read_differences(tmp_path) == [apart("full", against="lora"), apart("lora", p_value=0.5)]
    assert read_differences(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[{", r"damaged \("),
        ('[{"model": "lora"}]', r"not differences of this version: `0\.difference`: Field required; delete it"),
        ("{}", r"not differences of this version: ``: .*valid array"),
    ],
)
def test_a_file_that_holds_no_differences_is_named(tmp_path, content, problem):
    (tmp_path / DIFFERENCES_FILE).write_text(content)
    with pytest.raises(FolderError, match=rf"{DIFFERENCES_FILE}: {problem}"):
        read_differences(tmp_path)
