from bertvision.report.drawing import MOST_MODELS, few_models, title_of_few
from bertvision.report.results import full_results


def rows_of(make_record, heads):
    """Make an encoder, a control and heads, of which a later one is better."""
    models = [("encoder", "encoder", 50.0), ("last_linear", "control", 10.0)]
    models += [(f"head_{number}", "head", 20.0 + number) for number in range(heads)]
    records = [
        make_record(model=row, kind=kind, fraction=fraction, scores={"f1": score})
        for fraction in (0.3, 1.0)
        for row, kind, score in models
    ]
    return full_results(records)


def test_of_few_models_all_are_shown(make_record):
    rows = rows_of(make_record, MOST_MODELS - 2)
    assert few_models(rows) == rows
    assert title_of_few(rows, rows, "F1") == "F1"


def test_of_many_models_encoder_and_controls_are_shown_and_the_best_heads_at_all_fractions(make_record):
    rows = rows_of(make_record, 30)
    shown = few_models(rows)
    best = {f"head_{number}" for number in range(30 - (MOST_MODELS - 2), 30)}
    assert {row.name for row in shown} == {"encoder", "last_linear"} | best
    assert len(shown) == 2 * MOST_MODELS
    assert title_of_few(rows, shown, "F1") == "F1, the best of 32 models"
