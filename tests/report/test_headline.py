import pytest

from bertvision.records import DataFile, FewerRows, main_score
from bertvision.report.headline import headline

TRAIN = {
    name: DataFile(name=name, sha256=None, examples=rows, dropped=0, windows=rows)
    for name, rows in (("train", 64), ("dev", 300))
}


@pytest.fixture
def make(make_record):
    def make(row, kind, accuracy, **more):
        own = {"task": "sst2", "experiment": "own", "fraction": None, "data": TRAIN, **more}
        return make_record(model=row, kind=kind, scores={"accuracy": accuracy}, **own)

    return make


def test_the_best_model_stands_with_its_interval_beside_what_it_has_to_beat(make):
    records = [
        make("majority", "baseline", 50.0),
        make("regression", "head", 72.0, intervals={"accuracy": (67.0, 77.0)}),
        make("learned_pooling", "head", 70.0),
        make("last_regression", "control", 66.0),
        make("last_linear", "control", 68.0),
    ]
    best, beside = headline(records)
    assert best == "regression: accuracy 72.0 (95% interval 67.0 to 77.0), the best model on the 300 examples of dev."
    assert beside == (
        "Baselines: reading no text, majority 50.0; reading the last layer alone, last_linear 68.0 and "
        "last_regression 66.0. last_linear lies inside that interval: the difference may be chance."
    )


def test_a_best_model_of_the_last_layer_is_said_to_be_one(make):
    records = [make("learned_pooling", "head", 70.0), make("last_linear", "control", 68.0)]
    assert "no head on all layers" not in headline(records)[1]
    (_, beside) = headline([*records, make("last_regression", "control", 72.0)])
    assert "The best model reads the last layer alone too: no head on all layers beat it." in beside


def test_models_that_the_examples_cannot_tell_apart_are_said_to_be_tied(make):
    """On 8 rows that all of them have right: scipy's binomtest(8, 8) is 63.06 to 100."""
    eight = {"dev": DataFile(name="dev", sha256=None, examples=8, dropped=0, windows=8)}
    known = {"data": eight, "intervals": {"accuracy": (63.06, 100.0)}, "behind_best": (0.0, 0.0)}
    names = ("regression", "learned_pooling", "last_regression")
    kinds = ("head", "head", "control")
    records = [make(name, kind, 100.0, **known) for name, kind in zip(names, kinds, strict=True)]
    assert headline(records)[0] == (
        "last_regression: accuracy 100.0 (95% interval 63.1 to 100.0), tied with learned_pooling and regression on the "
        "8 examples of dev. Ties go to the last layer, then to the fewest weights."
    )


def test_a_score_without_an_interval_says_what_few_examples_are_worth(make_record):
    eight = {"dev": DataFile(name="dev", sha256=None, examples=8, dropped=0, windows=8)}
    (best,) = headline([make_record(model="encoder", kind="encoder", scores={"f1": 43.5}, data=eight)])
    assert best == (
        "encoder at fraction 1: F1 at 0 43.5 (too few for an interval: each counts about 12.5 points), the best model "
        "on the 8 examples of dev."
    )


@pytest.mark.parametrize(("last", "verdict"), [(75.0, "may help"), (70.5, "would add little")])
def test_fewer_rows_tell_whether_more_would_help(make, last, verdict):
    fewer = [FewerRows(rows=rows, draws=3, scores={"accuracy": score}) for rows, score in ((16, 60.0), (32, 70.0))]
    sentence = headline([make("regression", "head", last, fewer_rows=fewer)])[-1]
    assert f"With 16, 32 and 64 training rows regression has 60.0, 70.0 and {last:.1f}." in sentence
    assert sentence.endswith(f"{verdict}.")


def test_shares_of_the_data_tell_it_too(make):
    shares = ((0.1, 60.0), (1.0, 70.0))
    records = [
        make("learned_pooling", "head", score, config={"heads": {"data_fraction": share}}) for share, score in shares
    ]
    assert "With 10 and 100 % of the training data learned_pooling has 60.0 and 70.0." in headline(records)[-1]


def test_records_without_scores_have_no_headline_and_old_ones_no_interval(make, make_record):
    assert headline([make_record(task="sst2", scores={})]) == []
    (best,) = headline([make("encoder", "encoder", 70.0, fraction=3.0)])
    assert best == "encoder at fraction 3: accuracy 70.0, the best model on the 300 examples of dev."


def test_a_baseline_without_the_main_score_stands_with_another_that_both_have(make_record):
    own = {"task": "regression", "fraction": None}
    records = [
        make_record(model="majority", kind="baseline", scores={"rmse": 1.547}, **own),
        make_record(model="regression", scores={"pearson": 82.7, "rmse": 0.807}, **own),
    ]
    assert headline(records)[1] == "Baselines: reading no text, majority (RMSE 1.547, here 0.807)."


def test_a_model_that_is_worse_than_a_baseline_is_said_to_be(make):
    found = headline([make("majority", "baseline", 56.3), make("encoder", "encoder", 54.9, fraction=3.0)])
    assert found[1] == "Baselines: reading no text, majority 56.3. majority is better."


def test_a_reader_that_always_abstains_is_seen_to_score_what_that_does(make_record):
    scores = {"f1": 43.5, "total": 200.0, "NoAns_total": 87.0}
    own = {"scores": scores, "fraction": 1.0, "intervals": {"f1": (37.0, 50.5)}}
    found = headline([make_record(model="encoder", kind="encoder", **own)])
    assert found[1] == (
        "Baselines: reading no text, “no answer” to every question 43.5. “no answer” to every question lies inside "
        "that interval: the difference may be chance."
    )
    answered = {"f1": 43.5, "total": 200.0}
    assert len(headline([make_record(model="encoder", kind="encoder", scores=answered)])) == 1


# Of two scores per task, by which the runs of BERT's paper are judged (its table 1); Pearson for own numbers.
@pytest.mark.parametrize(
    ("task", "key", "name", "other"),
    [
        ("mrpc", "f1", "F1", "accuracy"),
        ("qqp", "f1", "F1", "accuracy"),
        ("stsb", "spearman", "Spearman", "pearson"),
        ("regression", "pearson", "Pearson", "spearman"),
    ],
)
def test_a_report_and_a_run_name_the_same_best_model(make_record, task, key, name, other):
    own = {"task": task, "fraction": None}
    records = [
        make_record(model="learned_pooling", scores={key: 77.7, other: 72.1}, **own),
        make_record(model="average_pooling", scores={key: 77.3, other: 75.8}, **own),
    ]
    assert max(records, key=main_score).model == "learned_pooling"
    assert headline(records)[0].startswith(f"learned_pooling: {name} 77.7")
