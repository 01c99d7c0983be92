import pytest

from bertvision.records import merge_variants


def test_variants_become_rows_of_one_experiment(make_variant, make_record):
    records = [make_record(), make_variant("full"), make_variant("heads"), make_variant("heads", model="ladder")]
    merged = merge_variants(records)
    assert merged[0] == records[0]
    named = {(record.experiment, record.model) for record in merged[1:]}
    assert named == {("efficiency", "full"), ("efficiency", "heads"), ("efficiency", "heads:ladder")}


def test_a_method_is_shown_at_the_rate_that_is_best_on_held_out_questions(make_variant):
    scores = {
        "lora-lr0.1": (80.0, [60.0, 62.0]),
        "lora-lr0.2": (70.0, [65.0, 61.0]),
        "lora-lr0.3": (90.0, [10.0, 90.0]),
    }
    records = [
        make_variant(variant, f1=f1, held_out=held_out, seed=seed)
        for variant, (f1, by_seed) in scores.items()
        for seed, held_out in enumerate(by_seed, start=1)
    ]
    merged = merge_variants(records)
    assert [(record.model, record.seed, record.scores["f1"]) for record in merged] == [
        ("lora", 1, 70.0),
        ("lora", 2, 70.0),
    ]


@pytest.mark.parametrize(
    ("seeds", "best"),
    [
        ({1: 65.0, 2: 50.0}, "lora-lr0.2"),  # 65 against 60 with the seed of both; 57.5 with all of its own
        ({2: 55.0, 3: 50.0}, "lora-lr0.1"),  # no seed of both: 52.5 against 60
        ({2: 70.0, 3: 60.0}, "lora-lr0.2"),  # and 65 against 60
    ],
)
def test_rates_are_compared_over_the_seeds_that_all_of_them_have(make_variant, seeds, best):
    records = [
        make_variant("lora-lr0.1", held_out=60.0, seed=1),
        *(make_variant("lora-lr0.2", held_out=held_out, seed=seed) for seed, held_out in seeds.items()),
    ]
    merged = merge_variants(records)
    assert {(record.model, record.config["variant"]) for record in merged} == {("lora", best)}
    assert [record.seed for record in merged] == ([1] if best == "lora-lr0.1" else list(seeds))


def test_a_head_is_shown_at_its_best_rate_too(make_variant):
    rates = {"ladder-lr0.001": 50.0, "ladder-lr0.003": 55.0, "mix4-lr0.001": 40.0}
    records = [make_variant("heads", model=row, f1=held_out, held_out=held_out) for row, held_out in rates.items()]
    assert [(each.model, each.scores["f1"]) for each in merge_variants(records)] == [
        ("heads:ladder", 55.0),
        ("heads:mix4", 40.0),
    ]


@pytest.mark.parametrize(
    ("task", "metric"), [("rte", "accuracy"), ("swag", "accuracy"), ("ner", "f1"), ("stsb", "pearson")]
)
def test_rows_choices_and_tags_have_their_rates_chosen_by_their_own_main_score(make_variant, task, metric):
    records = [
        make_variant(f"lora-lr{rate}").model_copy(
            update={"task": task, "scores": {metric: dev, f"held_out_{metric}": held_out}}
        )
        for rate, dev, held_out in ((0.1, 90.0, 60.0), (0.2, 70.0, 80.0))
    ]
    assert [(each.model, each.scores[metric]) for each in merge_variants(records)] == [("lora", 70.0)]


def test_without_held_out_questions_every_rate_is_a_row(make_variant):
    merged = merge_variants([make_variant("lora-lr0.1"), make_variant("lora-lr0.2")])
    assert [record.model for record in merged] == ["lora-lr0.1", "lora-lr0.2"]
