import math

import pytest

from bertvision.errors import FolderError
from bertvision.records import Parameters, Seconds
from bertvision.report.results import by_experiment, full_results, largest_fraction, results_of


def test_scores_are_means_over_seeds_with_the_deviation_of_a_sample(make_record):
    (row,) = results_of(make_record(seed=seed, scores={"f1": f1}) for seed, f1 in ((1, 50.0), (2, 53.0), (3, 56.0)))
    assert row.seeds == 3
    assert row.scores["f1"].mean == pytest.approx((50 + 53 + 56) / 3)
    assert row.scores["f1"].deviation == pytest.approx(math.sqrt(((50 - 53) ** 2 + 0 + (56 - 53) ** 2) / 2))


def test_one_seed_has_no_deviation(make_record):
    (row,) = results_of([make_record(scores={"f1": 50.0})])
    assert row.scores["f1"] == (50.0, None)


def test_a_score_that_only_some_seeds_have_is_the_mean_of_those(make_record):
    (row,) = results_of([make_record(seed=1, scores={"f1": 50.0}), make_record(seed=2, scores={"exact": 40.0})])
    assert row.scores == {"f1": (50.0, None), "exact": (40.0, None)}


def test_the_share_is_trainable_parameters_in_percent_of_the_encoder(make_record):
    (row,) = results_of([make_record(parameters=Parameters(total=700, trainable=500, encoder=20_000))])
    assert (row.parameters, row.share) == (500, 2.5)


@pytest.mark.parametrize(("heads", "seconds"), [(20.0, 120.0), (None, 100.0)])
def test_seconds_are_finetuning_and_the_shared_pass(make_record, heads, seconds):
    (row,) = results_of([make_record(seconds=Seconds(finetune=100.0, heads=heads, predict=7.0))])
    assert row.seconds == seconds


def test_a_baseline_is_no_part_of_an_encoder(make_record):
    (row,) = results_of([make_record(kind="baseline", parameters=Parameters(total=0, trainable=0, encoder=0))])
    assert (row.parameters, row.share) == (0, None)


def test_rows_of_the_whole_data_are_those_of_the_largest_share(make_record):
    part, half = (make_record(config={"heads": {"data_fraction": share}}) for share in (0.1, 0.5))
    assert [row.data for row in results_of([part, half])] == [0.1, 0.5]
    assert [row.data for row in full_results([part, half])] == [0.5]
    assert [row.data for row in full_results([part, make_record()])] == [1.0]


def test_layer_weights_are_means_over_seeds(make_record):
    (row,) = results_of([make_record(seed=1, layer_weights=[0.2, 0.8]), make_record(seed=2, layer_weights=[0.4, 0.6])])
    assert [weight.mean for weight in row.layer_weights] == pytest.approx([0.3, 0.7])


def test_rows_stand_by_fraction_and_then_encoder_head_control_ensemble(records):
    names = [(row.fraction, row.kind) for row in results_of(reversed(records))]
    kinds = ["encoder", "head", "control", "ensemble"]
    assert names == [(fraction, kind) for fraction in (0.1, 1.0) for kind in kinds]


def test_two_records_of_the_same_seed_are_refused_by_name(make_record):
    with pytest.raises(FolderError, match=r"2 records of `learned_pooling` at fraction 1 with seed 1"):
        results_of([make_record(), make_record()])


def test_records_are_split_by_experiment(make_record):
    groups = by_experiment(
        [make_record(experiment="b"), make_record(experiment="a"), make_record(experiment="b", seed=2)]
    )
    assert [(name, len(group)) for name, group in groups.items()] == [("a", 1), ("b", 2)]


def test_only_the_largest_fraction_is_kept(make_record):
    rows = results_of(
        [make_record(fraction=fraction, model=row) for fraction, row in ((None, "a"), (0.5, "b"), (0.1, "c"))]
    )
    assert [row.name for row in largest_fraction(rows)] == ["b"]


def test_tasks_of_one_name_are_split_and_named(make_record):
    groups = by_experiment([make_record(experiment="a", task=task) for task in ("rte", "cola")])
    assert {name: [record.task for record in group] for name, group in groups.items()} == {
        "a, cola": ["cola"],
        "a, rte": ["rte"],
    }
