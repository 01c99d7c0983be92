import pytest

from bertvision.errors import SettingsError
from bertvision.records import SeedMean
from bertvision.studies.study import expected_of, find_study, read_studies, verdict_of


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
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(expected, low, high, verdict):
    assert verdict_of(expected, estimate(low, high), 0.5) == verdict


@pytest.mark.parametrize("expected", ["above", "below", "equal"])
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


def test_a_study_that_there_is_not_is_refused_with_the_nearest_name():
    with pytest.raises(SettingsError, match=r"no study 'span_table'; did you mean `span_tables`\?"):
        find_study("span_table")
