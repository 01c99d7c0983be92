"""The benchmark runs on small work here; what it measures is not asserted."""

import pytest

from benchmarks.run import run_bench
from benchmarks.windows import columns_of, features_of
from bertvision.data.example import GoldAnswer, Question
from bertvision.windows.window import WindowConfig, cut_windows

CONTEXT = "the weir was built in 1887 by hannah coyle. "
WAYS = ["windows cut", "run_qa's way", "run_qa's way, best flags"]


@pytest.mark.slow
def test_a_file_is_cut_in_three_ways_into_as_many_windows():
    record = run_bench("windows", ["rounds=1"])
    assert [side.name for side in record.sides] == WAYS
    assert len({record.figures[f"{name}: windows"] for name in WAYS}) == 1
    assert all(record.figures[f"{name}: peak memory, MB, file and libraries included"] > 0 for name in WAYS)


def test_run_qas_way_labels_the_tokens_that_are_labelled_here(encoder):
    answer = GoldAnswer("1887", CONTEXT.index("1887"))
    questions = [
        Question("one", "when was the weir built?", CONTEXT, (answer,), "weir"),
        Question("none", "who?", CONTEXT, (), "weir"),
    ]
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    found = features_of(columns_of(questions), encoder.tokenizer, padding=False)
    assert found["input_ids"] == [window.ids.tolist() for window in windows]
    assert list(zip(found["start_positions"], found["end_positions"], strict=True)) == [
        (window.start, window.end) for window in windows
    ]
