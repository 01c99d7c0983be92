"""The benchmark runs on small work here; what it measures is not asserted."""

import json

import numpy as np
import pytest

from benchmarks.inference import _spread
from benchmarks.run import run_bench
from bertvision.errors import SettingsError
from bertvision.windows.window import WindowConfig

from ..serving.conftest import write_model

WINDOWS = WindowConfig(max_length=128, stride=16)


def test_a_reader_is_measured_in_torch_onnx_and_int8_and_scored_by_the_way(encoder, tmp_path):
    folder = write_model(encoder, tmp_path / "reader", "squad2", (), "adapter_64_shared_skip", windows=WINDOWS)
    small = ["questions=6", "windows=4", "singles=2", "asked=3", "rounds=1"]
    record = run_bench("inference", [f"model={folder}", *small])
    batches = ["torch", "torch, bare encoder", "onnx", "onnx, bare encoder", "onnx int8"]
    singles = [f"{name}, one by one" for name in ("torch", "onnx", "onnx int8")]
    asked = ["torch, questions in one call", "onnx, questions in one call"]
    documented = ["as cards show, one by one", "as cards show, batched"]
    assert [side.name for side in record.sides] == [*batches, *singles, *asked, *documented]
    by_name = {side.name: side.seconds[0] for side in record.sides}
    assert record.figures["onnx: windows a second"] == pytest.approx(4 / by_name["onnx"], rel=0.01)
    share = 100 * (by_name["torch"] / by_name["torch, bare encoder"] - 1)
    assert record.figures["torch: head over bare encoder, per cent"] == pytest.approx(share, abs=0.01)
    times = by_name["as cards show, batched"] / by_name["torch, questions in one call"]
    found = record.figures["torch: questions in one call, times as fast as when called as cards show, batched"]
    assert found == pytest.approx(times, abs=0.001)
    assert record.figures["onnx: answers that differ from torch's"] == 0
    assert record.figures["onnx: f1"] == record.figures["torch: f1"]
    assert str(tmp_path) not in json.dumps(record.model_dump(mode="json"))


def test_a_model_that_answers_no_questions_is_refused(encoder, tmp_path):
    folder = write_model(encoder, tmp_path / "tagger", "ner", ("O", "B-A"), "last_linear")
    with pytest.raises(SettingsError, match="give one that answers questions"):
        run_bench("inference", [f"model={folder}"])


def test_chosen_items_are_spread_from_the_first_to_the_last():
    assert _spread(range(11), 3) == [0, 5, 10]
    assert _spread(range(3), 10) == [0, 1, 2]
    assert np.diff(_spread(range(1000), 100)).min() >= 10
