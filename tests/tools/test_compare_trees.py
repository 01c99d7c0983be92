import compare_trees as tool
import numpy as np
import pytest


def test_of_a_field_whose_numbers_differ_the_largest_difference_is_told():
    old = {"rows.0.f1": 80.0, "rows.1.f1": 70.0, "rows.0.rmse": 1.0, "class.0.predictions.a.3.0": "x"}
    new = old | {"rows.0.f1": 80.5, "rows.1.f1": 68.0, "class.0.predictions.a.3.0": "y"}
    assert tool.compare(old, new) == {
        "rows.f1": "largest difference 2",
        "class.predictions.a": "class.0.predictions.a.3.0: 'x' -> 'y'",
    }
    assert tool.compare(old, dict(old)) == {}


def test_every_value_below_arrays_tuples_and_mappings_is_compared():
    fields = dict(tool.flatten({"a": [np.arange(2), (1.5, None)], "b": np.float64(2)}, "x"))
    assert fields == {"x.a.0.0": 0, "x.a.0.1": 1, "x.a.1.0": 1.5, "x.a.1.1": None, "x.b": 2.0}


@pytest.mark.parametrize("probe", tool.PROBES)
def test_every_probe_finds_its_functions_here(probe):
    fields = tool.probe_tree(tool.NEW_NAMES, 1, [probe])
    assert len(fields) > 20
    assert [value for field, value in fields.items() if "(stopped)" in field] == []


def test_a_function_that_is_gone_stops_its_probe_and_says_so():
    fields = tool.probe_tree(tool.NEW_NAMES | {"windows.padding.spread": "windows.plan.gone"}, 1, ["steps"])
    assert fields["steps.0.(stopped)"] == "AttributeError: module 'bertvision.windows.plan' has no attribute 'gone'"
