import os
import random
import subprocess
import sys
from pathlib import Path

import fuzz
import pytest

from bertvision.errors import DataError


def test_whatever_is_mutated_only_errors_of_our_own_come_out():
    # In processes of their own: here the types of the package are checked too, and limits on memory would stay.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    given = [sys.executable, "-W", "ignore", fuzz.__file__, "--count", "15", "--processes", "2"]
    done = subprocess.run(given, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 8 mutations") == done.stdout.count(": 7 mutations") > 25


def test_a_mutation_is_drawn_from_its_number_alone():
    content = b'{"data": [{"title": "weir"}]}'
    drawn = [[fuzz.mutate(content, random.Random(number)) for number in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 25


def refuse(folder):
    raise DataError("one line")


def break_down(folder):
    raise KeyError((folder / "a").name)


def say_nothing(folder):
    raise DataError("")


@pytest.mark.parametrize(
    ("read", "problems"),
    [
        (refuse, []),
        (Path.iterdir, []),
        (break_down, ["weirs 3 (a): KeyError: \"'a'\" at test_fuzz.py"]),
        (say_nothing, ["weirs 3 (a): an error without a word"]),
    ],
)
def test_what_is_no_error_of_our_own_is_a_problem_and_the_file_is_put_back(tmp_path, read, problems):
    (tmp_path / "a").write_bytes(b"weir")
    found = fuzz.fuzz(fuzz.Target("weirs", tmp_path, ("a",), read), range(3, 4))
    assert [each.rpartition(":")[0] if "test_fuzz" in each else each for each in found] == problems
    assert (tmp_path / "a").read_bytes() == b"weir"
