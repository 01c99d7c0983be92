"""Every run of the study can be described before any is made; its tables hold what the lines say."""

import argparse
import gzip
import json

import pytest

from bertvision.experiment import build_experiment
from tools.pretrain_study import (
    BILSTM,
    CURVE,
    MODELS,
    OURS,
    PUBLISHED,
    TASKS,
    Study,
    as_tables,
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
    assert bool(config.checkpoints) == (model in {*CURVE, OURS})
    assert json.loads((given.work / "contexts.jsonl").read_text()) == {"text": "Hannah built it."}


def test_sizes_vary_as_in_table_6_around_the_one_that_is_asked_for(given):
    given.size = "2x128x2"
    sizes = {model: (size.layers, size.hidden, size.heads) for model, size in _sizes(given)}
    assert {model: size for model, size in sizes.items() if size != (2, 128, 2)} == {
        "half the layers": (1, 128, 2),
        "twice the layers": (4, 128, 2),
        "one head": (2, 128, 1),
        "ours": (12, 384, 6),  # whatever is asked for
    }


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


def test_tables_hold_means_over_seeds_beside_what_was_published(given):
    loss = {"words": 2.0, "perplexity": 7.389, "pairs": None, "pairs_right": None}
    lines = [
        {"model": "ltr", "task": "pretrain", "loss": loss, "steps": 100},
        {"model": "ltr", "task": "mnli_10k", "scores": [50.0, 52.0]},
        {"model": "ltr @10", "task": "mnli_10k", "scores": [40.0]},
    ]
    given.out.write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"model": "cut o')
    tables = as_tables(read_runs(given.out))
    row = next(line for line in tables.splitlines() if line.startswith("| ltr |"))
    assert row.startswith("| ltr | 2.000 | 7.4 |")
    assert "51.0 ± 1.4" in row
    assert row.endswith("82.1, 84.3, 77.5, 92.1; 77.8 |")
    assert tables.splitlines()[-4:-2] == ["| ltr | 10 | 40.0 |", "| ltr | 100 | 51.0 ± 1.4 |"]


def test_every_encoder_stands_in_a_table():
    assert {name for table in PUBLISHED.values() for name in table} == {*MODELS, BILSTM}
