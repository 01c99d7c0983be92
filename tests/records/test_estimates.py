"""What a score is worth, and which of several models is called the best."""

import copy
import pickle

import pytest

from bertvision.records import Estimate, Parameters, choose_model, worth_of

EIGHT = (63.06, 100.0)  # scipy's binomtest(8, 8)


@pytest.fixture
def make(make_record):
    def make(row, kind, f1, behind, weights=1000, **more):
        parameters = Parameters(total=weights, trainable=weights, encoder=30_000)
        return make_record(model=row, kind=kind, scores={"f1": f1}, behind_best=behind, parameters=parameters, **more)

    return make


def test_a_score_is_a_number_that_shows_what_it_is_worth():
    score = Estimate(100.0, EIGHT, 8)
    assert (score, score + 1, score.interval, score.examples) == (100.0, 101.0, EIGHT, 8)
    assert repr({"accuracy": score}) == "{'accuracy': 100 (95% interval 63.06 to 100, 8 examples)}"
    assert repr(Estimate(66.67, None, 1)) == "66.67 (no interval: 1 example)"
    for again in (copy.deepcopy(score), pickle.loads(pickle.dumps(score))):
        assert (again, again.interval, again.examples) == (100.0, EIGHT, 8)


def test_without_an_interval_it_is_said_how_much_an_example_counts():
    assert worth_of(EIGHT, 8) == "95% interval 63.1 to 100.0"
    assert worth_of(None, 8) == "too few for an interval: each counts about 12.5 points"
    assert worth_of(None, 30) == ""  # an older record


def test_of_models_that_the_examples_cannot_tell_apart_the_simplest_is_taken(make):
    all_layers = make("regression", "head", 100.0, (0.0, 0.0), weights=10)
    large, small = (make(f"last_{n}", "control", 96.0, (-3.0, 12.5), weights=n) for n in (2000, 1000))
    tuned = make("encoder", "encoder", 96.0, (-3.0, 12.5), weights=31_500)  # 1,500 of its own
    choice = choose_model([[each] for each in (all_layers, large, small, tuned)])
    assert choice.best == [small]
    assert choice.ties == "tied with regression, last_2000 and encoder"
    three_more = [[make(f"head_{n}", "head", 99.0, (0.0, 9.0))] for n in range(3)]
    ties = choose_model([[all_layers], [small], *three_more]).ties
    assert ties == "tied with regression, head_0, head_1 and 1 other"


def test_a_model_that_is_surely_better_is_the_best_however_large(make):
    large, small = make("mix4", "head", 80.0, (0.0, 0.0), weights=9000), make("last", "control", 70.0, (2.0, 18.0))
    assert choose_model([[small], [large]]) == ([large], [])
    assert choose_model([[small], [large]]).ties == ""
    both = make("mix4+last", "ensemble", 85.0, (-8.0, -2.0))  # an ensemble may lie surely above the best single model
    assert choose_model([[small], [large], [both]]).best == [both]


def test_equal_scores_are_tied_also_in_records_that_know_no_difference(make):
    large, small = make("mix4", "head", 80.0, None), make("last", "control", 80.0, None)
    assert choose_model([[large], [small]]).best == [small]
    other = make("last", "control", 79.9, None)
    assert choose_model([[large], [other]]).best == [large]
    assert choose_model([[large], [make("last", "control", 80.0, None, fraction=2.0)]]).best == [large]


def test_over_several_seeds_models_are_tied_where_no_seed_tells_them_apart(make):
    large = [make("mix4", "head", 80.0, (0.0, 0.0), seed=seed) for seed in (1, 2)]
    small = [make("last", "control", 79.0, (-1.0, 3.0), seed=seed) for seed in (1, 2)]
    assert choose_model([large, small]).best == small
    small[1] = make("last", "control", 70.0, (4.0, 16.0), seed=2)
    assert choose_model([large, small]).best == large
