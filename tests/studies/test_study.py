import pytest
from pydantic import ValidationError

from bertvision.errors import SettingsError
from studies.records import SeedMean
from studies.study import Study, expected_of, find_study, own_encoder, read_studies, verdict_of


def estimate(low, high):
    return SeedMean(mean=(low + high) / 2, low=low, high=high, seeds=3)


@pytest.mark.parametrize(
    ("expected", "low", "high", "verdict"),
    [
        ("above", 0.1, 0.3, "holds"),
        ("above", -0.2, 0.4, "does not hold"),  # a gain of half a point is ruled out
        ("above", -3.0, -1.0, "does not hold"),
        ("above", -0.2, 0.6, "cannot tell"),
        ("below", -0.3, -0.1, "holds"),
        ("below", -0.4, 0.2, "does not hold"),
        ("below", -0.6, 0.2, "cannot tell"),
        ("equal", -0.4, 0.4, "holds"),
        ("equal", 0.6, 0.9, "does not hold"),
        ("equal", -0.9, -0.6, "does not hold"),
        ("equal", -0.4, 0.6, "cannot tell"),
        ("not above", -3.0, -1.0, "holds"),
        ("not above", -3.0, 0.4, "holds"),
        ("not above", 0.1, 0.3, "does not hold"),
        ("not above", -3.0, 0.6, "cannot tell"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(expected, low, high, verdict):
    assert verdict_of(expected, estimate(low, high), 0.5) == verdict


@pytest.mark.parametrize("expected", ["above", "below", "equal", "not above"])
def test_one_seed_cannot_tell(expected):
    assert verdict_of(expected, SeedMean(mean=9.0, low=None, high=None, seeds=1), 0.5) == "cannot tell"


@pytest.mark.parametrize(("difference", "expected"), [(0.5, "equal"), (-0.5, "equal"), (0.6, "above"), (-0.6, "below")])
def test_a_published_difference_claims_what_is_beyond_the_margin(difference, expected):
    assert expected_of(difference, 0.5) == expected


def test_every_study_has_what_a_reader_asks_for():
    studies = read_studies()
    assert len(studies) > 20
    assert {study.paper for study in studies.values()} == {
        "BERT 2018",
        "BERTVision 2020",
        "BERTVision 2021",
        "Hulburd 2019",
        "Our own finding",
    }
    for name, study in studies.items():
        assert study.metric, name
        assert study.published or study.claims, name
        assert bool(study.config) != bool(study.needs), name
        assert all(claim.because or claim.settled == "untested" for claim in study.claims if claim.settled), name
        assert study.wrong or study.paper in ("Our own finding", "BERT 2018") or name in ("two_epochs", "later_states")


def test_published_numbers_are_those_of_the_papers():
    """SPEC 13, E1, E3 and E4; SPEC 11.5."""
    curve = {each.fraction: each.scores for each in find_study("span_curve").published}
    assert curve[0.1] == {"paper_v1_exact": 54.0, "paper_v1_f1": 59.7}
    assert curve[6] == {"paper_v1_exact": 74.3, "paper_v1_f1": 79.6}
    tables = {(each.row, each.fraction): each.scores for each in find_study("span_tables").published}
    assert tables["adapter_386_shared_skip", 0.3] == {"paper_v1_exact": 69.9, "paper_v1_f1": 74.0}
    assert tables["adapter_386_shared", 1] == {"paper_v1_exact": 74.9, "paper_v1_f1": 79.0}
    assert len({row for row, _ in tables}) == 20 + 1  # and BERT itself
    hulburd = {each.row: each.scores["f1"] for each in find_study("hulburd_freezing").published}
    assert hulburd == {"L12": 76.3, "L6": 75.2, "L3": 72.5, "L1": 65.9, "L0": 53.1}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("span_curve", ("rotated", "peak at two", "batches of 8", "overlap of 128", "78.7 and 81.9")),
        ("span_tables", ("other rows' numbers", "mix rows", "1/10", "equal to the last digit", "0.491%", "25 states")),
        ("less_data", ("EM and F1 swapped", "false by its own numbers")),
        ("two_epochs", ("74.9 and 79.5",)),
        ("answerability", ("different epochs", "caption", "0.079%", "any window")),
        ("analysis", ("swapped", "161.68")),
        ("squad_2021", ("maximum over windows", "broken")),
        ("squad_2021_large", ("0.31",)),
        ("glue_2021", ("480 trials", "test file", "micro-averaged", "lost to quoting", "failed runs")),
        ("hulburd_freezing", ("75.8",)),
        ("hulburd_adapters", ("minutes", "26 to 30%", "two in each block")),
        ("hulburd_cacnn", ("262 s", "caption")),
    ],
)
def test_known_errors_of_the_papers_stand_beside_their_numbers(name, told):
    """SPEC 14."""
    wrong = " ".join(find_study(name).wrong)
    assert [each for each in told if each not in wrong] == []


def published_at(study, place, score):
    rows = [each for each in study.published if each.row == place.row and place.fraction in ("last", each.fraction)]
    return rows[-1].scores.get(score) if rows else None


def test_no_two_claims_have_the_same_words():
    """By these the intervals over seeds and articles are found."""
    texts = [claim.text for study in read_studies().values() for claim in study.claims]
    assert len(set(texts)) == len(texts) > 150


def test_what_a_claim_says_was_published_is_the_difference_of_two_published_results():
    checked = 0
    for study in read_studies().values():
        for claim in study.claims:
            if claim.other is None or claim.published is None or claim.one.analysis or claim.one.epoch:
                continue
            scores = (claim.one.score,) if isinstance(claim.one.score, str) else claim.one.score or study.scores
            pairs = [[published_at(study, place, each) for place in (claim.one, claim.other)] for each in scores]
            one, other = next(pair for pair in pairs if None not in pair)
            # Half a digit for the claim; twice that where both were rounded, as shares of counts are.
            assert one - other == pytest.approx(claim.published, abs=0.1001 if "_exact" in scores[0] else 0.0501), (
                claim.text
            )
            checked += 1
    assert checked > 60


def test_answerability_after_each_fraction_is_that_of_the_notebook():
    """SPEC 13, E2."""
    curve = {each.fraction: tuple(each.scores.values()) for each in find_study("answerability_curve").published}
    assert (len(curve), curve[0.1], curve[6]) == (16, (50.09, 13.89), (80.06, 78.31))
    for each in find_study("answerability").published:
        if each.row == "encoder":
            assert curve[each.fraction] == tuple(each.scores.values())


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        ("squad_2021", "bert-base-uncased"),
        ("squad_2021_large", "bert-large-uncased"),
        ("bert_features", "bert-base-cased"),
        ("bert_ner_large", "bert-large-cased"),
        ("bert_pretraining", ""),
    ],
)
def test_a_papers_own_encoder_is_that_of_its_runs(name, encoder):
    assert own_encoder(find_study(name)) == encoder


@pytest.mark.parametrize("name", ["null_offset", "near_misses"])
def test_a_number_that_gains_more_than_a_head_recovers_what_the_head_gains(name):
    study = find_study(name)
    claims = [each for each in study.claims if each.other and each.other.row.startswith("null_offset")]
    assert claims
    assert {verdict_of(each.expected, estimate(-4.5, -1.5), study.margin) for each in claims} == {"holds"}


@pytest.mark.parametrize("margin", [0.0, -0.5])
def test_a_margin_is_above_0(margin):
    with pytest.raises(ValidationError, match="greater than 0"):
        Study(name="a", paper="b", title="c", config="d", metric="e", scores=("f1",), margin=margin)


def test_a_study_that_there_is_not_is_refused_with_the_nearest_name():
    with pytest.raises(SettingsError, match=r"no study 'span_table'; did you mean `span_tables`\?"):
        find_study("span_table")
