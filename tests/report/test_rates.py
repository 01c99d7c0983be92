import pytest

from bertvision.records import merge_variants
from bertvision.report.chapters import make_report
from bertvision.report.page import write_report
from bertvision.report.results import Evidence
from bertvision.report.tables import CAPTION, rate_tables, rate_text

HEADS = {
    "lr": 1e-3,
    "train": [
        {"name": "ladder"},
        {"name": "ladder-lr0.003", "lr": 3e-3},
        {"name": "ladder-lr0.003-weight_decay0", "lr": 3e-3, "weight_decay": 0.0},
    ],
}


@pytest.fixture
def tuned(make_variant):
    """Three rates of `full` and two of `lora`, all with one seed and one with a second; `top_0` has one rate.

    After 0.3 of an epoch, the order of rates was the other way round.
    """
    scores = {
        ("full", 2e-4): {1: 74.13},
        ("full", 5e-5): {1: 73.12},
        ("full", 1e-4): {1: 75.5, 2: 60.0},
        ("lora", 3e-3): {1: 70.28},
        ("lora", 1e-3): {1: 65.28},
        ("top_0", 1e-2): {1: 60.0},
    }
    return [
        make_variant(f"{method}-lr{rate}", rate=rate, held_out=held_out, seed=seed, fraction=fraction)
        for fraction, sign in ((1.0, 1), (0.3, -1))
        for (method, rate), by_seed in scores.items()
        for seed, held_out in ((seed, sign * score) for seed, score in by_seed.items())
    ]


@pytest.fixture
def make_heads(make_variant):
    """Return a function that invents a head's records by the encoder's rate and the head's own name."""

    def make(scores):
        return [
            make_variant(f"heads-lr{below}", model=row, rate=below, held_out=held_out, heads=HEADS)
            for (below, row), held_out in scores.items()
        ]

    return make


@pytest.mark.parametrize(
    ("rate", "text"),
    [(1e-4, "1e-4"), (5e-05, "5e-5"), (0.003, "3e-3"), (0.00025, "2.5e-4"), (0.01, "1e-2"), (0.1, "0.1"), (1.0, "1")],
)
def test_rates_are_written_in_their_shortest_form(rate, text):
    assert rate_text(rate) == text


def test_every_rate_stands_from_the_lowest_with_its_score_over_shared_seeds(tuned):
    (table,) = rate_tables(Evidence([], tuned))
    assert table.header == ("fraction", "model", "rate 1", "rate 2", "rate 3", "shared seeds", "chosen")
    full = ("full", "5e-5: 73.1", "1e-4: 75.5", "2e-4: 74.1", "1", "1e-4")
    lora = ("lora", "1e-3: 65.3", "3e-3: 70.3", "", "1", "3e-3 (highest)")
    assert table.texts == (("1", *full), ("1", *lora))
    assert "Of 2 choices, 0 fell on the lowest rate tried and 1 on the highest" in table.note
    assert "tie" not in table.note


def test_a_row_has_one_rate_chosen_at_the_largest_fraction_that_all_rates_have(make_variant):
    scores = {(0.1, 0.3): 60.0, (0.2, 0.3): 50.0, (0.1, 1.0): 70.0, (0.2, 1.0): 80.0, (0.1, 2.0): 90.0}
    records = [
        make_variant(f"full-lr{rate}", rate=rate, held_out=held_out, fraction=fraction)
        for (rate, fraction), held_out in scores.items()
    ]
    merged = merge_variants(records)
    assert [(record.fraction, record.config["finetune"]["lr"]) for record in merged] == [(0.3, 0.2), (1.0, 0.2)]
    (table,) = rate_tables(Evidence([], records))
    assert table.texts == (("1", "full", "0.1: 70.0", "0.2: 80.0", "1", "0.2 (highest)"),)


def test_what_the_table_calls_chosen_is_what_the_report_shows(tuned):
    shown = {(record.model, record.config["finetune"]["lr"]) for record in merge_variants(tuned)}
    (table,) = rate_tables(Evidence([], tuned))
    chosen = {(row[1], float(row[-1].split()[0])) for row in table.texts}
    assert chosen == shown - {("top_0", 1e-2)}


def test_rates_without_a_shared_seed_say_so(make_variant):
    records = [
        make_variant("full-lr0.1", rate=0.1, held_out=70.0, seed=1),
        make_variant("full-lr0.2", rate=0.2, held_out=60.0, seed=2),
        make_variant("full-lr0.2", rate=0.2, held_out=62.0, seed=3),
        make_variant("full-lr0.2", rate=0.2, held_out=99.0, seed=3, fraction=0.3),
    ]
    (table,) = rate_tables(Evidence([], records))
    assert table.texts == (("1", "full", "0.1: 70.0", "0.2: 61.0", "none", "0.1 (lowest)"),)


@pytest.mark.parametrize(("tied", "chosen"), [((0.1, 0.2), "0.1"), ((0.2, 0.3), "0.2"), ((0.1, 0.3), "0.1")])
def test_rates_that_tie_for_the_best_are_at_no_edge(make_variant, tied, chosen):
    records = [
        make_variant(f"full-lr{rate}", rate=rate, held_out=70.0 if rate in tied else 60.0) for rate in (0.1, 0.2, 0.3)
    ]
    (table,) = rate_tables(Evidence([], records))
    assert table.texts[0][-1] == f"{chosen} (tie)"
    assert "Of 1 choices, 0 fell on the lowest rate tried and 0 on the highest" in table.note
    assert table.note.endswith("Rates that tie for the best count for neither end.")


def test_a_tie_between_two_encoders_rates_leaves_the_heads_own_rate_at_its_edge(make_heads):
    scores = {"ladder": 70.0, "ladder-lr0.003": 60.0}
    records = make_heads({(below, row): score for below in (1e-4, 5e-5) for row, score in scores.items()})
    (table,) = rate_tables(Evidence([], records))
    assert {row[-1] for row in table.texts} == {"1e-3 (lowest)", "none"}
    assert "Of 2 choices, 1 fell on the lowest rate tried and 0 on the highest" in table.note


def test_nothing_is_counted_where_only_the_weight_decay_was_chosen(make_heads):
    records = make_heads({(1e-4, "ladder-lr0.003-weight_decay0"): 73.0, (1e-4, "ladder-lr0.003"): 72.0})
    (table,) = rate_tables(Evidence([], records))
    assert table.texts[0][-1] == "3e-3, decay 0"
    assert "choices" not in table.note


def test_a_heads_rates_are_its_own(make_heads):
    records = make_heads(
        {(1e-4, "ladder-lr0.003-weight_decay0"): 73.0, (1e-4, "ladder-lr0.003"): 72.0, (1e-4, "ladder"): 71.0}
    )
    (table,) = rate_tables(Evidence([], records))
    cells = ("1e-3: 71.0", "3e-3: 72.0", "3e-3, decay 0: 73.0", "1", "3e-3, decay 0 (highest)")
    assert table.texts == (("1", "heads:ladder", *cells),)
    assert "count as two choices" not in table.note


def test_a_head_on_encoders_of_several_rates_has_a_line_for_each(make_heads, make_variant):
    scores = {(1e-4, "ladder"): 72.0, (1e-4, "ladder-lr0.003"): 71.0, (5e-5, "ladder"): 70.0}
    encoders = [make_variant(f"heads-lr{rate}", rate=rate, held_out=60 - 1e5 * rate) for rate in (5e-5, 1e-4)]
    (table,) = rate_tables(Evidence([], [*make_heads(scores), *encoders]))
    assert table.header[2:] == ("encoder rate", "rate 1", "rate 2", "shared seeds", "chosen")
    assert [row[1:] for row in table.texts] == [
        ("heads", "", "5e-5: 55.0", "1e-4: 50.0", "1", "5e-5 (lowest)"),
        ("heads:ladder", "5e-5", "1e-3: 70.0", "", "1", "none"),
        ("heads:ladder", "1e-4", "1e-3: 72.0", "3e-3: 71.0", "1", "1e-3 (lowest)"),
    ]
    # The encoder's lowest, and of the head its lowest on the encoder with the highest.
    assert "Of 3 choices, 2 fell on the lowest rate tried and 1 on the highest" in table.note
    assert "count as two choices" in table.note


def test_the_note_names_the_score_that_rates_were_chosen_by(tuned):
    (table,) = rate_tables(Evidence([], tuned))
    assert "each with its held-out F1 at 0 at the largest fraction" in table.note
    scores = {"accuracy": 60.0, "held_out_accuracy": 61.0}
    rows = [each.model_copy(update={"task": "rte", "scores": scores}) for each in tuned]
    (table,) = rate_tables(Evidence([], rows))
    assert "each with its held-out accuracy at the largest fraction" in table.note
    assert table.texts[0][2:4] == ("5e-5: 61.0", "1e-4: 61.0")


def test_nothing_is_shown_where_nothing_was_chosen(make_variant, make_record):
    one_rate = [make_variant("full-lr0.1", rate=0.1, held_out=70.0), make_record()]
    not_held_out = [make_variant("lora-lr0.1", rate=0.1, held_out=70.0), make_variant("lora-lr0.2", rate=0.2)]
    assert rate_tables(Evidence([], [*one_rate, *not_held_out])) == []


def test_a_chapter_has_the_rates_of_its_own_experiment_and_task(tuned, make_variant):
    other = [
        make_variant(f"full-lr{rate}", rate=rate, held_out=50.0).model_copy(update={"task": "squad1"})
        for rate in (0.1, 0.2)
    ]
    chapters = make_report([*tuned, *other]).chapters
    found = {
        chapter.title: [each.texts[0][2] for each in chapter.tables if each.title == CAPTION] for chapter in chapters
    }
    assert found == {"efficiency, squad1": ["0.1: 50.0"], "efficiency, squad2": ["5e-5: 73.1"]}


def test_every_format_has_the_rates(tuned, tmp_path):
    write_report(tuned, tmp_path)
    for name in ("report.md", "report.html", "tables.tex"):
        text = (tmp_path / name).read_text()
        assert CAPTION in text
        assert "1e-4: 75.5" in text
        assert "3e-3 (highest)" in text
