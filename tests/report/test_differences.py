import pytest

from bertvision.records import Apart, DifferenceRecord, merge_variants
from bertvision.report.chapters import make_report
from bertvision.report.results import Evidence
from bertvision.report.tables import difference_tables


@pytest.fixture
def records(make_variant):
    """Two methods at two fractions."""
    return merge_variants(make_variant(name, fraction=fraction) for name in ("full", "lora") for fraction in (1.0, 0.3))


def apart(row="lora", fraction=1.0, against="full", experiment="efficiency", best=None):
    return DifferenceRecord(
        experiment=experiment,
        model=row,
        fraction=fraction,
        against=against,
        seeds=(1, 2),
        difference=-2.0,
        low=-3.25,
        high=-0.75,
        p_value=0.01,
        by_seed=(-1.5, -2.5),
        best=best,
    )


def test_every_comparison_is_a_row_with_its_interval_and_its_seeds(records):
    best = Apart(difference=0.5, low=-0.25, high=1.0, p_value=0.2, by_seed=(1.5, -0.5))
    (table,) = difference_tables(Evidence(records, differences=[apart(best=best), apart(fraction=0.3)]))
    cells = ("-2.00", "-3.25 to -0.75", "-1.50, -2.50")
    assert table.texts == (
        ("0.3", "lora", *cells, "", "", ""),
        ("1", "lora", *cells, "+0.50", "-0.25 to +1.00", "+1.50, -0.50"),
    )


def test_a_comparison_of_rows_says_its_score_and_what_was_resampled(make_variant):
    records = merge_variants(
        make_variant(name).model_copy(update={"task": "rte", "scores": {"accuracy": 60.0}}) for name in ("full", "lora")
    )
    own = {"metric": "accuracy", "example": "row", "resampled": ("row", "seed")}
    (table,) = difference_tables(Evidence(records, differences=[apart().model_copy(update=own)]))
    assert table.title == "Row by row, less full"
    assert table.header == ("fraction", "model", "accuracy", "95% interval", "by seed")
    assert table.note == "Intervals are the middle 95% over resampled rows and seeds, paired."


def test_comparisons_of_before_articles_were_resampled_say_that_seeds_were_not(records):
    (table,) = difference_tables(Evidence(records, differences=[apart()]))
    assert "over resampled questions, paired, of these very trainings" in table.note


def test_rows_that_were_compared_with_another_stand_in_a_table_of_their_own(records):
    found = difference_tables(Evidence(records, differences=[apart(), apart("full", against="lora")]))
    assert [(each.title, each.texts[0][1]) for each in found] == [
        ("Question by question, less lora", "full"),
        ("Question by question, less full", "lora"),
    ]


def test_comparisons_of_rows_that_a_report_does_not_show_are_left_out(records):
    assert (
        difference_tables(
            Evidence(records, differences=[apart("bitfit"), apart(experiment="other"), apart(fraction=2.0)])
        )
        == []
    )


def test_a_chapter_has_its_comparisons(records):
    (chapter,) = make_report(records, differences=[apart()]).chapters
    assert "Question by question, less full" in [each.title for each in chapter.tables]
