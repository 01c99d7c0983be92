from benchmarks.run import run_bench
from benchmarks.search import draw_trials


def test_trials_are_drawn_from_the_default_space_the_same_each_time():
    trials = draw_trials(48)
    assert trials == draw_trials(48)
    assert len({trial.lr for trial in trials}) == 48
    assert {trial.readout for trial in trials} == {"linear", "joint"}
    assert all(1e-4 <= trial.lr <= 3e-2 for trial in trials)


def test_trials_in_groups_are_measured_beside_one_after_another(saved_encoder):
    record = run_bench("search", [f"encoder={saved_encoder}", "windows=3", "trials=4", "group=2", "rounds=1"])
    assert [side.name for side in record.sides] == [
        "groups of 2, live",
        "one after another, live",
        "groups of 2, kept",
        "one after another, kept",
    ]
