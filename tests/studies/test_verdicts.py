import json

import pytest

from studies.study import Claim, NumberPlace, Study, verdict_of
from studies.study_tables import short_table, study_tables
from studies.verdicts import Findings, by_seed, estimate, judge, judge_claim


def make_study(**changes):
    fields = {
        "name": "mine",
        "paper": "a paper",
        "title": "Table 1",
        "config": "squad2/minilm",
        "metric": "their own F1.",
        "scores": ["paper_v1_f1", "f1"],
        "controls": ["last_linear"],
        "control": "last_linear",
        "published": [
            {"fraction": 1, "scores": {"paper_v1_f1": 70.0}},
            {"row": "learned_pooling", "fraction": 1, "scores": {"paper_v1_f1": 74.0}, "note": "printed wrong"},
            {"row": "never_run", "fraction": 1, "scores": {"paper_v1_f1": 80.0}},
        ],
        "claims": [
            {
                "text": "A head is above the encoder.",
                "where": "section 1",
                "one": {"row": "learned_pooling", "fraction": 1},
                "other": {"fraction": 1},
                "published": 4.0,
            },
            {"text": "It is a count.", "where": "section 2", "settled": "confirmed", "because": "arithmetic"},
        ],
        **changes,
    }

    return Study.model_validate_json(json.dumps(fields))


@pytest.fixture
def records(make_record):
    gains = {"encoder": (0, 0, 0), "learned_pooling": (3, 4, 5), "last_linear": (2, 2, 2)}
    kinds = {"encoder": "encoder", "learned_pooling": "head", "last_linear": "control"}
    return [
        make_record(
            model=row,
            kind=kinds[row],
            seed=seed,
            scores={"paper_v1_f1": 60.0 + 10 * seed + gain, "f1": 50.0 + gain},
            epoch_scores=[{"f1": 40.0}, {"f1": 55.0}, {"f1": 50.0 + gain}],
            layer_weights=[0.1, 0.2, 0.2, 0.1, 0.1, 0.3],
        )
        for row, own in gains.items()
        for seed, gain in enumerate(own, start=1)
    ]


def test_an_interval_over_seeds_is_students():
    found = estimate([3.0, 4.0, 5.0])
    # The mean of three with deviation 1: 4.303 / sqrt(3), from a table of Student's t.
    assert (found.mean, found.seeds) == (4.0, 3)
    assert (found.low, found.high) == pytest.approx((4 - 2.4843, 4 + 2.4843), abs=1e-3)
    assert estimate([7.0]).low is None


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.3, 0.9], -3.211861, 4.411861),
        ([0.4, 1.1, 0.7, 1.9, 0.2], 0.024295, 1.695705),
        ([-1.0, 2.0, 0.5, 0.0, 3.5, -2.5, 1.5], -1.267220, 2.410077),
    ],
)
def test_an_interval_over_seeds_is_that_of_scipy(values, low, high):
    """scipy.stats.t.interval(0.95, n - 1, mean, sem)."""
    found = estimate(values)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)


def test_beyond_the_table_an_interval_is_a_little_wide_and_never_narrow():
    found = estimate([n / 10 for n in range(60)])
    half = 0.451149  # scipy.stats.t.ppf(0.975, 59) * sem
    assert half <= (found.high - found.low) / 2 < 1.05 * half


def test_seeds_that_all_differ_alike_have_an_interval_of_no_width():
    found = estimate([0.0, 0.0, 0.0])
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)
    verdicts = [verdict_of(each, found, 0.5) for each in ("above", "below", "equal")]
    assert verdicts == ["does not hold", "does not hold", "holds"]
    assert verdict_of("above", estimate([0.2, 0.2]), 0.5) == "holds"


def test_results_are_judged_seed_by_seed_against_the_papers_reference(records):
    record = judge(make_study(), records)
    by_row = {each.row: each for each in record.results}
    assert list(by_row) == ["encoder", "learned_pooling", "last_linear"]  # what was not run is not there
    head = by_row["learned_pooling"]
    assert (head.published_gain, head.gain.mean, head.over_control.mean) == (4.0, 4.0, 2.0)
    assert head.gain.low == pytest.approx(4 - 2.4843, abs=1e-3)  # seeds differ by 10 each, their gains by 1
    assert (head.verdict, head.note) == ("holds", "printed wrong")
    assert by_row["encoder"].verdict == "cannot tell"  # another encoder than that of squad2/minilm
    assert by_row["last_linear"].verdict is None
    assert (by_row["last_linear"].published, by_row["last_linear"].gain.mean) == ({}, 2.0)
    assert [claim.verdict for claim in record.claims] == ["holds"]  # what is settled needs no run
    assert record.seeds == (1, 2, 3)


def test_without_published_results_all_rows_are_shown_at_every_fraction(records):
    early = [each.model_copy(update={"fraction": 0.3}) for each in records]
    study = make_study(published=[], claims=[], controls=["encoder", "learned_pooling"])
    found = judge(study, [*early, *records]).results
    assert [(each.row, each.fraction) for each in found] == [
        ("encoder", 0.3),
        ("learned_pooling", 0.3),
        ("encoder", 1.0),
        ("learned_pooling", 1.0),
    ]
    assert [each.gain is not None for each in found] == [False, True, False, True]


def test_controls_are_shown_where_nothing_was_run_at_a_published_fraction(records):
    early = [each.model_copy(update={"fraction": 0.2}) for each in records]
    found = judge(make_study(), early).results
    assert [(each.row, each.fraction, each.gain.mean) for each in found] == [("last_linear", 0.2, 2.0)]
    both = judge(make_study(), [*early, *records]).results
    assert [each.fraction for each in both if each.row == "last_linear"] == [1.0]


def test_what_others_are_compared_with_is_to_equal_its_published_value_on_the_papers_own_encoder(records):
    own = [each.model_copy(update={"config": {"encoder": "default"}}) for each in records]
    alike = [each.model_copy(update={"scores": {"paper_v1_f1": 70.1 + each.seed / 100}}) for each in own]
    assert judge(make_study(), alike).results[0].verdict == "holds"
    assert judge(make_study(margin=0.05), alike).results[0].verdict == "does not hold"
    assert judge(make_study(), own).results[0].verdict == "cannot tell"  # seeds lie 10 apart
    moved = [each.model_copy(update={"config": {"encoder": "models/default"}}) for each in alike]
    assert judge(make_study(), moved).results[0].verdict == "holds"


def test_a_result_is_judged_by_the_first_score_that_was_published_for_it(make_record):
    study = make_study(
        scores=["accuracy", "matthews"],
        against=None,
        controls=[],
        control=None,
        claims=[],
        published=[
            {"row": "cola", "scores": {"matthews": 50.0}},
            {"row": "cola:ap_glue", "against": "cola", "scores": {"matthews": 56.0}},
        ],
    )
    gains = {"cola": 0.0, "cola:ap_glue": 5.0}
    records = [
        make_record(model=row, seed=seed, scores={"accuracy": 80.0, "matthews": 40.0 + gain + seed / 10})
        for row, gain in gains.items()
        for seed in (1, 2, 3)
    ]
    head = judge(study, records).results[1]
    assert (head.published_gain, head.gain.mean, head.verdict) == (6.0, pytest.approx(5.0), "holds")


def test_tables_show_what_was_published_what_came_out_and_the_verdict(records):
    record = judge(make_study(), records)
    results, claims = study_tables(record)
    cells = dict(zip(results.header, results.texts[1], strict=True))
    assert cells["published paper_v1_f1"] == "74.0"
    assert cells["published gain"] == "+4.0"
    assert cells["gain"] == "+4.0 (+1.5 to +6.5)"
    assert cells["difference"] == "+0.0"
    assert dict(zip(results.header, results.texts[0], strict=True))["difference"] == "+10.0"  # 80 where 70 was printed
    assert (cells["verdict"], cells["known to be wrong"]) == ("holds", "printed wrong")
    assert "their own F1." in results.note
    assert claims.texts == (("A head is above the encoder.", "section 1", "+4.0", "+4.0 (+1.5 to +6.5)", "holds"),)
    assert max(len("  ".join(row)) for row in short_table(record).texts) < 80


def test_a_claim_is_judged_by_the_first_score_that_records_have(records):
    older = [each.model_copy(update={"scores": {"f1": each.scores["f1"]}}) for each in records]
    study = make_study()
    assert judge_claim(study, study.claims[0], Findings(records)).score == "paper_v1_f1"
    assert judge_claim(study, study.claims[0], Findings(older)).score == "f1"


@pytest.mark.parametrize("row", ["encoder", "learned_pooling"])
def test_a_seed_that_either_side_lacks_does_not_count(records, row):
    study = make_study()
    left = [each for each in records if (each.row, each.seed) != (row, 2)]
    ours = judge_claim(study, study.claims[0], Findings(left)).ours
    # Of gains 3, 4 and 5 the first and the last, whose deviation is the root of 2: 4 +- 12.706.
    assert (ours.mean, ours.seeds) == (4.0, 2)
    assert (ours.low, ours.high) == pytest.approx((4 - 12.706, 4 + 12.706))
    alone = [each for each in left if (each.row, each.seed) != (row, 3)]
    judged = judge_claim(study, study.claims[0], Findings(alone, resampled={study.claims[0].text: (1.0, 5.0)}))
    assert (judged.ours.seeds, judged.ours.low, judged.verdict) == (1, None, "cannot tell")


def test_a_claim_without_records_has_no_verdict(records):
    study = make_study()
    claim = Claim(text="x", where="y", one=NumberPlace(row="never_run"), other=NumberPlace())
    assert judge_claim(study, claim, Findings(records)).verdict is None


def test_a_place_can_be_an_epoch_a_share_of_weights_or_a_number_of_an_analysis(records):
    found = Findings(records, {1: {"second": {"share": 44}}, 2: {"second": {}}})
    head = NumberPlace(row="learned_pooling", fraction=1)
    assert by_seed(head.model_copy(update={"epoch": 1}), "f1", found) == {1: 40.0, 2: 40.0, 3: 40.0}
    assert by_seed(head.model_copy(update={"epoch": "best"}), "f1", found) == {1: 55.0, 2: 55.0, 3: 55.0}
    assert by_seed(head.model_copy(update={"epoch": 9}), "f1", found) == {}
    assert by_seed(head.model_copy(update={"layers": "last_third"}), "f1", found)[1] == pytest.approx(40.0)
    assert by_seed(NumberPlace(analysis=("second", "share")), "f1", found) == {1: 44.0}


@pytest.mark.parametrize("layers", [1, 2, 7, 12, 13, 25])
def test_layers_that_weigh_alike_have_a_third_in_their_last_third(layers, records):
    alike = [each.model_copy(update={"layer_weights": [1 / layers] * layers}) for each in records]
    place = NumberPlace(row="learned_pooling", fraction=1, layers="last_third")
    assert by_seed(place, "f1", Findings(alike))[1] == pytest.approx(100 / 3)


@pytest.mark.parametrize(("margin", "verdict"), [(None, "holds"), (0.5, "holds"), (10, "does not hold"), (5, "holds")])
def test_a_large_difference_is_not_shown_by_a_small_one(records, margin, verdict):
    """Ours is +4 (+1.5 to +6.5)."""
    claim = Claim(
        text="x", where="y", one=NumberPlace(row="learned_pooling"), other=NumberPlace(), published=20, margin=margin
    )
    assert judge_claim(make_study(), claim, Findings(records)).verdict == verdict


def test_the_last_fraction_is_the_largest_that_a_row_has(records):
    early = [each.model_copy(update={"fraction": 0.3, "scores": {"f1": 1.0}}) for each in records]
    found = Findings([*early, *records])
    assert by_seed(NumberPlace(row="learned_pooling"), "f1", found) == {1: 53.0, 2: 54.0, 3: 55.0}
    assert by_seed(NumberPlace(row="learned_pooling", fraction=0.3), "f1", found) == {1: 1.0, 2: 1.0, 3: 1.0}


def test_an_encoder_as_it_is_given_is_told_from_a_tuned_one(records):
    given = [each.model_copy(update={"fraction": None, "scores": {"f1": 2.0}}) for each in records]
    place = NumberPlace(row="learned_pooling", fraction="given")
    assert by_seed(place, "f1", Findings([*given, *records])) == {1: 2.0, 2: 2.0, 3: 2.0}
    assert by_seed(place, "f1", Findings(records)) == {}


def test_a_claim_of_one_number_is_judged_by_how_far_ours_lies_from_it(records):
    study = make_study()
    claim = Claim(
        text="x", where="y", one=NumberPlace(row="encoder", score="f1"), expected="equal", published=50.2, margin=0.5
    )
    judged = judge_claim(study, claim, Findings(records))
    assert judged.ours.mean == pytest.approx(-0.2)
    assert judged.verdict == "holds"


def test_an_interval_of_seeds_and_articles_widens_that_of_a_claim(records):
    text = "A head is above the encoder."
    plain = judge(make_study(), records).claims[0]
    assert (plain.ours.low, plain.verdict) == (pytest.approx(4 - 2.4843, abs=1e-3), "holds")
    wide = judge(make_study(), records, resampled={text: (-1.0, 5.0)}).claims[0]
    assert (wide.ours.mean, wide.ours.low, wide.verdict) == (4.0, -1.0, "cannot tell")
    assert wide.ours.high == plain.ours.high  # which reached further


def test_equal_is_two_one_sided_tests_at_the_margin(make_record):
    """Of gains 0.1, 0.2 and 0.3 the interval is 0.2 +- 0.2484: within half a point, and not within 0.4."""
    claim = {"text": "Equal.", "where": "here", "one": {"row": "head"}, "other": {}, "expected": "equal"}
    rows = [
        make_record(model=row, kind=kind, seed=seed, scores={"f1": 50.0 + gain * seed / 10})
        for row, kind, gain in (("encoder", "encoder", 0), ("head", "head", 1))
        for seed in (1, 2, 3)
    ]
    for margin, verdict in ((0.5, "holds"), (0.4, "cannot tell"), (0.449, "holds"), (0.448, "cannot tell")):
        study = make_study(claims=[claim], published=[], scores=["f1"], margin=margin)
        assert judge(study, rows).claims[0].verdict == verdict
