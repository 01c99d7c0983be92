"""What is public in Python: the names of the front door and of the four modules below it."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import bertvision

DOORS = ("bertvision", "bertvision.heads", "bertvision.tuning", "bertvision.data", "bertvision.serving")
FRONT = {"train", "run", "load", "predict", "encode", "score", "analyze", "compare", "calibrate", "ensemble"}
FRONT |= {"write_report", "read_experiment", "build_experiment", "read_records"}
FRONT |= {"Experiment", "RunRecord", "BertVisionError"}


def test_the_front_door_has_these_names():
    assert set(bertvision.__all__) == FRONT


@pytest.mark.parametrize("name", DOORS)
def test_every_public_name_is_there_once_and_is_listed(name):
    door = importlib.import_module(name)
    assert len(door.__all__) == len(set(door.__all__)) > 5
    for each in door.__all__:
        assert getattr(door, each).__name__
        assert each in dir(door)


@pytest.mark.parametrize("name", DOORS)
def test_a_name_that_is_not_public_is_no_attribute(name):
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'near_misses'"):
        _ = importlib.import_module(name).near_misses


def test_no_module_directly_below_is_called_like_a_function():
    modules = {each.name for each in pkgutil.iter_modules(bertvision.__path__)}
    assert len(modules) > 20
    assert not modules & set(bertvision.__all__)


def test_scores_and_windows_are_to_be_had_without_torch():
    code = "import sys, bertvision.data; bertvision.score; bertvision.data.cut_windows; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
