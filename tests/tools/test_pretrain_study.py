"""Every run of the study can be described before any is made; its tables hold what the lines say."""

import argparse
import gzip
import json

import pytest

from bertvision.experiment import build_experiment
from tools.pretrain_study import (
    AGAIN,
    BILSTM,
    CURVE,
    FEATURES,
    FEATURES_HEADS,
    MODELS,
    OURS,
    PUBLISHED,
    REFERENCE,
    TASKS,
    Differences,
    Study,
    as_tables,
    claims_of,
    experiment_for,
    read_runs,
)


@pytest.fixture
def given(tmp_path):
    """The arguments of the command, and the one file that is read before a pre-training."""
    (tmp_path / "data" / "squad2").mkdir(parents=True)
    context = {"context": "Hannah built it.", "qas": [{"id": "1", "question": "Who?", "answers": []}]}
    content = {"data": [{"title": "weir", "paragraphs": [context]}]}
    with gzip.open(tmp_path / "data" / "squad2" / "train-open.json.gz", "wt") as file:
        json.dump(content, file)
    return argparse.Namespace(
        data=tmp_path / "data",
        work=tmp_path / "work",
        out=tmp_path / "runs.jsonl",
        models=";".join(MODELS),
        tasks=",".join(TASKS),
        seeds="1,2",
        steps=100,
        size="6x256x4",
        rows=None,
        settings="{}",
        keep=False,
    )


@pytest.mark.parametrize("model", MODELS)
def test_every_pre_training_differs_from_the_reference_in_what_it_is_named_after(given, model):
    study = Study(given, 0.0)
    config, reference = study.config_for(model), study.config_for("mlm_nsp")
    assert (config.training_settings() != reference.training_settings()) == (model != "mlm_nsp")
    assert config.data_settings() == reference.data_settings()
    assert bool(config.checkpoints) == (model in CURVE)
    assert json.loads((given.work / "contexts.jsonl").read_text()) == {"text": "Hannah built it."}


def test_sizes_vary_as_in_table_6_around_the_one_that_is_asked_for(given):
    given.size = "2x128x2"
    sizes = {model: (size.layers, size.hidden, size.heads) for model, size in _sizes(given)}
    assert {model: size for model, size in sizes.items() if size != (2, 128, 2)} == {
        "half the layers": (1, 128, 2),
        "twice the layers": (4, 128, 2),
        "one head": (2, 128, 1),
        "ours": (12, 384, 6),
    }


def test_the_plain_bert_has_as_many_steps_as_the_others_nine_tenths_of_them_short(given):
    given.steps = 50
    stages = Study(given, 0.0).config_for(OURS).stages
    assert [(each.length, each.steps) for each in stages] == [(128, 45), (512, 5)]


def _sizes(given):
    return [(model, Study(given, 0.0).config_for(model).size) for model in MODELS]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", ["mlm_nsp", "ltr", BILSTM])
def test_every_fine_tuning_is_a_valid_experiment(given, model, task):
    settings = experiment_for(model, task, given.work / "encoder", given.data, [2], 64)
    experiment = build_experiment(settings)
    assert experiment.data.train.startswith(str(given.data))
    assert experiment.states.pooling == ("last" if model == "ltr" else "first")
    assert (experiment.finetune.head is not None) == (model == BILSTM)
    assert experiment.data.fold == (2 if "ner" in task else 1)


@pytest.mark.parametrize(("model", "heads"), [(OURS, [*FEATURES_HEADS]), ("mlm", ["bilstm_concat_last_four"])])
def test_table_7_has_all_its_heads_and_table_8_the_best_of_them(given, model, heads):
    experiment = build_experiment(experiment_for(model, FEATURES, given.work / "encoder", given.data, [1], None))
    assert [each.name for each in experiment.heads.train] == heads


def test_tables_hold_means_over_seeds_beside_what_was_published(given):
    loss = {"words": 2.0, "perplexity": 7.389, "pairs": None, "pairs_accuracy": None}
    spent = {"size": [2, 8, 2], "parameters": 2_000_000, "tokens": 3e6, "seconds": 90.0, "tokens_per_second": 33_333}
    lines = [
        {"model": "ltr", "task": "pretrain", "loss": loss, "steps": 100, **spent},
        {"model": "ltr", "task": "mnli_10k", "scores": [50.0, 52.0]},
        {"model": "ltr @10", "task": "mnli_10k", "scores": [40.0]},
        {"model": REFERENCE, "task": "bilstm_last", "scores": [30.0, 32.0]},
    ]
    given.out.write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"model": "cut o')
    tables = as_tables(read_runs(given.out))
    assert "| ltr | 2 x 8 x 2 | 2.0 | 100 | 3 | 1.5 | 33,333 |  |" in tables
    row = next(line for line in tables.splitlines() if line.startswith("| ltr | 2.000"))
    assert row.startswith("| ltr | 2.000 | 7.4 |")
    assert "51.0 ± 1.4" in row
    assert row.endswith("82.1, 84.3, 77.5, 92.1; 77.8 |")
    assert "| ltr | 10 | 40.0 |\n| ltr | 100 | 51.0 ± 1.4 |" in tables
    assert "| bilstm_last | 31.0 ± 1.4 |  |  | 94.9 |" in tables


def test_an_interval_has_the_scatter_of_seeds_and_of_two_pre_trainings(given):
    scores = {"mlm": [60.0, 62.0, 64.0], "ltr": [51.0, 53.0, 52.0], REFERENCE: [60.0, 61.0, 62.0]}
    runs = [{"model": model, "task": "sst2", "scores": own} for model, own in scores.items()]
    # Three encoders and three seeds leave (3 - 1) x (3 - 1) degrees of freedom: 2.776 is Student's t at 97.5%.
    found = Differences(runs).between("mlm", "ltr", ["sst2"])
    residuals = [each - sum(own) / 3 for own in scores.values() for each in own]
    by_seed = [sum(residuals[seed::3]) / 3 for seed in range(3)]
    square = sum((each - by_seed[place % 3]) ** 2 for place, each in enumerate(residuals))
    assert found.mean == 10.0
    assert found.half == pytest.approx(2.776 * (square / 4 * 2 / 3) ** 0.5)
    again = [{"model": AGAIN, "task": "sst2", "scores": [80.0, 81.0, 82.0]}]
    assert Differences([*runs, *again]).between("mlm", "ltr", ["sst2"]).half > 20.0
    assert Differences(runs).between("mlm", "mlm, 30%", ["sst2"]) is None


def test_claims_are_settled_by_intervals_that_leave_zero_out(given):
    runs = [
        {"model": model, "task": task, "scores": [value, value + 1.0, value + chance]}
        for task in TASKS
        for model, value, chance in (("mlm", 60.0, 2.0), ("ltr", 50.0, 2.5), (REFERENCE, 60.2, 1.5), (AGAIN, 60.0, 2.0))
    ]
    lines = as_tables([{**each, "seconds": 1.0} for each in runs]).splitlines()
    verdicts = {line.split(" | ")[0][2:]: line.split(" | ")[-1][:-2] for line in lines if line.startswith("| ")}
    assert verdicts["Reading in both directions helps."] == "yes"
    assert verdicts["Next sentences help."] == "cannot tell"
    assert verdicts["Whole words are better to mask."] == "not run"


def test_claims_are_of_encoders_that_the_study_makes():
    names = {name.partition(" @")[0] for claim in claims_of(10, 50) for name in (claim.one, claim.other)}
    assert names <= {*MODELS, BILSTM}


def test_every_encoder_stands_in_a_table():
    assert {name for table in PUBLISHED.values() for name in table} == {*MODELS, BILSTM}
