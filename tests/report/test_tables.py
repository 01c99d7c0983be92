import pytest

from bertvision.records import DataFile, Parameters, Seconds
from bertvision.report.tables import calibration_table, models_table, results_table, terminal_table


def cell(table, head, row=0):
    return table.texts[row][table.header.index(head)]


def test_a_table_has_the_columns_in_their_order(make_record):
    scores = ("EM at 0", "F1 at 0", "EM tuned on held-out", "F1 tuned on held-out", "EM best", "F1 best", "span F1")
    heads = (
        "fraction",
        "model",
        *scores[:2],
        "95% interval",
        *scores[2:],
        "kind",
        "parameters",
        "% of encoder",
        "seconds",
    )
    assert results_table([make_record()]).header == heads


def test_cells_are_rounded_and_have_thousands_separators(make_record):
    record = make_record(
        scores={"exact": 53.649, "f1": 57.96, "best_f1": 65.0, "best_span_HasAns_f1": 80.25001},
        parameters=Parameters(total=1_234_567, trainable=1_234_567, encoder=33_360_000),
        seconds=Seconds(finetune=1200.0, heads=34.4, predict=1.0),
    )
    table = results_table([record])
    assert table.texts == (
        *[
            (
                "1",
                "learned_pooling",
                "53.6",
                "58.0",
                "",
                "",
                "",
                "",
                "65.0",
                "80.3",
                "head",
                "1,234,567",
                "3.7",
                "1,234",
            )
        ],
    )


def test_a_missing_score_is_an_empty_cell_and_a_zero_is_a_zero(make_record):
    table = results_table([make_record(scores={"f1": 0.0})])
    assert (cell(table, "EM at 0"), cell(table, "F1 at 0"), cell(table, "span F1")) == ("", "0.0", "")


def test_the_three_thresholds_have_their_columns_with_and_without_scores(make_record):
    tuned = {"tuned_exact": 55.0, "tuned_f1": 59.0, "best_exact": 60.0, "best_f1": 61.0}
    for scores, cells in ((tuned, ["55.0", "59.0", "60.0", "61.0"]), ({}, [""] * 4)):
        table = results_table([make_record(scores=scores)])
        heads = ("EM tuned on held-out", "F1 tuned on held-out", "EM best", "F1 best")
        assert [cell(table, head) for head in heads] == cells


def test_a_threshold_that_the_experiment_sets_is_named_instead_of_0(make_record):
    table = results_table([make_record(config={"answers": {"null_threshold": -1.5}})])
    assert (cell(table, "EM at -1.5"), cell(table, "F1 at -1.5")) == ("53.6", "57.9")


def test_a_task_without_unanswerable_questions_has_no_thresholds(make_record):
    table = results_table([make_record(task="squad1", scores={"exact_match": 70.0, "f1": 80.0})])
    assert table.header[1:5] == ("model", "EM", "F1", "95% interval")
    assert table.texts[0][2:4] == ("70.0", "80.0")


def test_a_baseline_stands_first_without_fraction_parameters_and_seconds(make_task_records):
    table = results_table(make_task_records("sst2", {"accuracy": 50.9}))
    assert table.texts[0] == ("", "majority", "50.9", "", "baseline", "", "", "")
    assert [row[1] for row in table.texts] == ["majority", "encoder", "learned_pooling"]


@pytest.mark.parametrize(
    ("rmse", "text"),
    [(0.51239, "0.5124"), (161_609.949, "161,610"), (9_999.7, "10,000"), (9_999.4, "9,999"), (0.00161234, "0.001612")],
)
def test_errors_in_the_labels_unit_keep_four_digits_wherever_they_begin(rmse, text, make_record):
    table = results_table([make_record(task="regression", scores={"pearson": 81.26, "rmse": rmse})])
    assert (cell(table, "Pearson"), cell(table, "RMSE"), cell(table, "MAE")) == ("81.3", text, "")


def test_a_task_that_nobody_knows_shows_every_score_by_its_key(make_record):
    table = results_table([make_record(task="new", scores={"b": 1.0, "a": 2.0})])
    assert (table.header[2:5], table.texts[0][2:5]) == (("a", "95% interval", "b"), ("2.0", "", "1.0"))


def test_shares_of_the_data_have_a_column_only_where_there_are_several(make_record):
    part = make_record(config={"heads": {"data_fraction": 0.1}})
    assert "data" not in results_table([part]).header
    table = results_table([part, make_record()])
    assert [cell(table, "data", row) for row in (0, 1)] == ["10%", "100%"]


def test_calibration_has_a_table_where_there_is_some(rich_records, make_record):
    assert calibration_table([make_record()]) is None
    table = calibration_table(rich_records)
    heads = ("temperature", "ECE before", "ECE after", "AURC", "threshold tuned", "threshold best", "F1 below best")
    values = ["1.62", "0.142", "0.021", "0.179", "-1.50", "-2.00", "1.0"]
    assert [cell(table, head).partition(" ±")[0] for head in heads] == values


@pytest.mark.parametrize(("best", "said"), [(50.0, "below all odds"), (50.1, "0.00")])
def test_the_best_threshold_of_a_model_that_had_better_be_silent_is_no_number(make_record, best, said):
    scores = {"ece": 0.1, "best_f1_thresh": 0.0, "best_f1": best, "NoAns_total": 5, "total": 10}
    assert cell(calibration_table([make_record(scores=scores)]), "threshold best") == said


def test_of_several_seeds_those_are_counted_that_had_better_be_silent(make_record):
    own = {"ece": 0.1, "NoAns_total": 5, "total": 10}
    records = [
        make_record(seed=1, scores={**own, "best_f1_thresh": 0.0, "best_f1": 50.0}),
        make_record(seed=2, scores={**own, "best_f1_thresh": -3.0, "best_f1": 60.0}),
    ]
    assert cell(calibration_table(records), "threshold best") == "below all odds in 1 of 2"


def test_a_terminal_has_short_heads_and_a_line_that_names_the_thresholds(make_record):
    heads = ("fraction", "model", "parameters", "EM", "F1", "tuned", "best", "span", "secs")
    assert terminal_table([make_record()]).header == heads
    note = terminal_table([make_record()]).note
    assert note.endswith("EM at 0, F1 at 0, tuned: F1 tuned on held-out, best: F1 best.")
    assert terminal_table([make_record(task="cola", scores={"matthews": 40.0})]).note == ""


def test_several_seeds_show_their_deviation(make_record):
    table = results_table([make_record(seed=1, scores={"f1": 50.0}), make_record(seed=2, scores={"f1": 52.0})])
    assert cell(table, "F1 at 0") == "51.0 ± 1.4"  # the square root of 2


def test_seeds_have_a_column_only_where_rows_differ_in_them(make_record):
    pair = [make_record(seed=1), make_record(seed=2)]
    assert "seeds" not in results_table(pair).header
    table = results_table([*pair, make_record(model="other")])
    assert {cell(table, "model", row): cell(table, "seeds", row) for row in (0, 1)} == {
        "learned_pooling": "2",
        "other": "1",
    }


def test_experiments_have_a_column_only_where_there_are_several(make_record):
    assert "experiment" not in results_table([make_record()]).header
    table = results_table([make_record(experiment="a"), make_record(experiment="b")])
    assert [row[0] for row in table.texts] == ["a", "b"]


def test_an_encoder_used_as_given_has_no_number_for_its_fraction(make_record):
    table = results_table([make_record(fraction=None), make_record(fraction=1.0)])
    assert [cell(table, "fraction", row) for row in range(2)] == ["given", "1"]
    assert "fraction" not in results_table([make_record(fraction=None)]).header


def test_the_main_score_has_its_interval_the_mean_over_seeds(make_record):
    records = [make_record(seed=seed, intervals={"f1": (40.0 + seed, 50.0 + seed)}) for seed in (1, 2)]
    assert cell(results_table(records), "95% interval") == "41.5 to 51.5"
    assert cell(results_table([records[0], make_record(seed=2)]), "95% interval") == ""


def test_without_an_interval_few_examples_are_said_to_be_too_few(make_record):
    few = {"dev": DataFile(name="dev", sha256=None, examples=29, dropped=0, windows=29)}
    assert cell(results_table([make_record(data=few)]), "95% interval") == "too few examples"


def test_models_stand_once_with_their_fractions_side_by_side(make_record):
    def made(row, fraction, exact, best):
        scores = {"exact": exact, "f1": exact + 1, "best_exact": best, "best_f1": best + 1}
        return make_record(model=row, fraction=fraction, scores=scores)

    table = models_table([made("a", 0.3, 40.0, 50.0), made("b", 0.3, 41.0, 51.0), made("b", 1.0, 42.0, 52.0)])
    assert table.header == (
        *("model", "parameters", "% of encoder"),
        *("0.3: EM / F1 at 0", "0.3: EM / F1 tuned on held-out", "0.3: EM / F1 best"),
        *("1: EM / F1 at 0", "1: EM / F1 tuned on held-out", "1: EM / F1 best"),
    )
    assert table.texts == (
        ("a", "60,000", "0.20", "40.0 / 41.0", "", "50.0 / 51.0", "", "", ""),
        ("b", "60,000", "0.20", "41.0 / 42.0", "", "51.0 / 52.0", "42.0 / 43.0", "", "52.0 / 53.0"),
    )


def test_one_fraction_needs_no_table_of_its_own(make_record):
    assert models_table([make_record(model="a"), make_record(model="b")]) is None


def test_a_baseline_has_the_same_score_at_every_fraction(make_task_records):
    records = make_task_records("mrpc", {"accuracy": 68.4, "f1": 81.2})
    untuned = [record.model_copy(update={"fraction": 0.1}) for record in records if record.kind == "head"]
    table = models_table([*records, *untuned])
    assert table.header[3:] == ("0.1: F1 / accuracy", "1: F1 / accuracy")
    assert table.texts[0] == ("majority", "", "", "81.2 / 68.4", "81.2 / 68.4")
