from math import ceil
from pathlib import Path

import pytest

import bertvision
from bertvision.errors import SettingsError
from bertvision.experiment import (
    build_experiment,
    fit_to_rows,
    quickstart_experiment,
    read_experiment,
    read_experiments,
)

CONFIGS = Path(__file__).parents[1] / "src" / "bertvision" / "configs"
OF_STUDIES = Path(__file__).parents[1] / "studies" / "configs"
SAMPLE = Path(bertvision.__file__).parent / "sample"
FOLDERS = (CONFIGS, OF_STUDIES, SAMPLE)
FOUND = sorted(path for folder in FOLDERS for ending in ("*.yaml", "*.yml") for path in folder.rglob(ending))
YAMLS = [path for path in FOUND if path.parent.name != "pretrain"]  # which tests/pretraining/test_pretrain.py checks


def refusal(settings, *overrides):
    """Return the text of the SettingsError that settings end with, which must be one line."""
    with pytest.raises(SettingsError) as caught:
        build_experiment(settings, overrides, "my.yaml")
    message = str(caught.value)
    assert message.startswith("my.yaml: ")
    assert "\n" not in message
    return message.removeprefix("my.yaml: ")


def test_there_are_configs_and_a_quickstart_to_check():
    assert any(CONFIGS in path.parents for path in YAMLS)
    assert SAMPLE / "quickstart.yaml" in YAMLS


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_yaml_that_comes_with_the_project_is_valid(path):
    experiments = read_experiments(path)
    assert all(each.title == (f"{path.stem}-{each.variant}" if each.variant else path.stem) for each in experiments)
    assert any(each.heads.train or each.finetune.fractions for each in experiments)


# SPEC 4.1 (windows), 5 (fine-tuning) and 7 (heads): what the system of summer 2020 did.
PAPER_V1 = {
    "windows": {"max_length": 386, "stride": 128, "stride_as": "step", "max_question_length": 64},
    "finetune": {
        "fractions": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        "batch": {"tokens": None, "windows": 4},
        "accumulate": 1,
        "lr": 1e-5,
        "optim": {
            "eps": 1e-7,
            "bias_correction": True,
            "weight_decay": 0.0,
            "schedule": "constant",
            "warmup": 0.0,
            "max_grad_norm": None,
        },
        "loss": "sum",
        "dropout": None,  # the encoder's own 0.1
    },
    "heads": {
        "epochs": 1,
        "batch": {"tokens": None, "windows": 16},
        "lr": 1e-3,
        "optim": {
            "eps": 1e-8,
            "bias_correction": True,
            "weight_decay": 0.0,
            "schedule": "constant",
            "warmup": 0.0,
            "max_grad_norm": None,
        },
        "loss": "sum",
    },
    "precision": "float32",
}
# SPEC 8.1 (windows), 8.2 (answers), 8.3 (fine-tuning) and 8.5 (heads): what the system of spring 2021 did, BERT-base.
ADAMW_V2 = {
    "eps": 1e-6,
    "bias_correction": False,
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup": 0.1,
    "max_grad_norm": None,
}
PAPER_V2 = {
    "windows": {"max_length": 384, "stride": 128, "stride_as": "overlap", "max_question_length": None},
    "finetune": {
        "fractions": [1.0],
        "batch": {"tokens": None, "windows": 16},
        "accumulate": 1,
        "lr": 2e-5,
        "optim": ADAMW_V2,
        "loss": "mean",
        "dropout": None,
    },
    "heads": {
        "epochs": 1,
        "batch": {"tokens": None, "windows": 16},
        "lr": 2e-5,
        "optim": ADAMW_V2,
        "loss": "mean",
    },
    "answers": {"n_best": 20, "max_answer_length": 30, "null_threshold": 0.0},
    "seeds": [1],
}


# SPEC 7: ten epochs of heads in batches of 64 on states after 0.2, 1 and 3 epochs.
PAPER_V1_ANSWERABILITY = {
    "task": "answerability",
    "encoder": "bert-large-uncased",
    "windows": PAPER_V1["windows"],
    "finetune": {**PAPER_V1["finetune"], "fractions": [0.2, 1.0, 3.0]},
    "heads": {**PAPER_V1["heads"], "epochs": 10, "batch": {"tokens": None, "windows": 64}},
    "precision": "float32",
}
# SPEC 11.1 and 11.3: cased, batches of 8, three epochs, windows that start 128 tokens apart.
HULBURD = {
    "encoder": "bert-base-cased",
    "windows": {"max_length": 384, "stride": 128, "stride_as": "step", "max_question_length": 64},
    "finetune": {
        "fractions": [3.0],
        "batch": {"tokens": None, "windows": 8},
        "optim": {**ADAMW_V2, "max_grad_norm": 1.0},
    },
    "answers": {"n_best": 20, "max_answer_length": 30, "null_threshold": 0.0},
}


def part_of(whole, like):
    """Take from a config what an expectation speaks of."""
    return {key: part_of(whole[key], value) if isinstance(value, dict) else whole[key] for key, value in like.items()}


@pytest.mark.parametrize(("recipe", "expected"), [("paper-v1", PAPER_V1), ("paper-v2", PAPER_V2)])
def test_a_recipe_does_what_the_original_system_did(recipe, expected):
    experiment = build_experiment({"recipe": recipe}).model_dump(mode="json")
    assert part_of(experiment, expected) == expected


@pytest.mark.parametrize(
    ("name", "recipe", "expected"),
    [
        ("squad2/bert_large", "paper-v1", PAPER_V1 | {"encoder": "bert-large-uncased"}),
        ("squad2/bert_base", "paper-v2", PAPER_V2 | {"encoder": "bert-base-uncased"}),
        ("answerability/bert_large", "paper-v1", PAPER_V1_ANSWERABILITY),
        ("squad2/hulburd", "default", HULBURD),
    ],
)
def test_the_papers_configs_follow_their_recipes(name, recipe, expected):
    experiment = read_experiments(OF_STUDIES / f"{name}.yaml")[0]
    whole = experiment.model_dump(mode="json")
    # One run goes through all fractions of the papers, and beyond those that a recipe names by itself.
    named = expected["finetune"]["fractions"]
    assert whole["finetune"]["fractions"][: len(named)] == named
    whole["finetune"]["fractions"] = named
    assert experiment.recipe == recipe
    assert part_of(whole, expected) == expected


def test_the_run_of_2020_has_the_twenty_heads_of_table_a3_and_goes_to_six_epochs():
    experiment = read_experiment(OF_STUDIES / "squad2" / "bert_large.yaml")
    assert experiment.finetune.fractions[-6:] == (1, 2, 3, 4, 5, 6)
    assert sum(head.kind == "head" for head in experiment.heads.train) == 20
    assert {head.name for head in experiment.heads.train if head.kind == "control"} == {
        "last_linear",
        "last_adapter",
        "null_offset",
        "null_offset_scale",
    }


# SPEC 8.3 and 8.5: rate, batch and length of fine-tuning; rate, width and batch of the head.
GLUE_2021 = {
    "qqp": (1e-5, 32, 128, 1e-5, 128, 32),
    "qnli": (1e-5, 32, 128, 8.650653513727516e-4, 32, 16),
    "mnli": (1e-5, 32, 128, 1e-5, 128, 32),
    "rte": (2e-5, 16, 250, 3.593259178474023e-4, 8, 16),
    "sst2": (2e-5, 32, 128, 9.739884755578448e-4, 32, 64),
    "mrpc": (2e-5, 32, 128, 7.591458513071305e-4, 16, 16),
    "cola": (2e-5, 16, 128, 2.25972e-5, 128, 16),
    "stsb": (2e-5, 16, 128, 2.7762e-5, 128, 16),
}


def test_the_glue_runs_of_2021_have_the_settings_of_each_task():
    found = {}
    for each in read_experiments(OF_STUDIES / "glue" / "paper_2021.yaml"):
        head = next(head for head in each.heads.train if head.name == "ap_glue")
        tuning = (each.finetune.lr, each.finetune.batch.windows, each.windows.max_length)
        found[each.task] = (*tuning, each.heads.lr, head.pooler.width, each.heads.batch.windows)
        assert head.pooler.length == each.windows.max_length
        assert part_of(each.model_dump(mode="json"), {"finetune": {"optim": ADAMW_V2}}) == {
            "finetune": {"optim": ADAMW_V2}
        }
    assert found == GLUE_2021


def test_hulburds_variants_train_what_his_tables_train():
    tuned = {each.method: each.tune for each in read_experiments(OF_STUDIES / "squad2" / "hulburd.yaml")}
    named = {name: None if tune is None else (tune.train, tune.insert) for name, tune in tuned.items()}
    expected = {
        "L12": None,
        "L6": ("top:6", "none"),
        "L3": ("top:3", "none"),
        "L1": ("top:1", "none"),
        "L0": ("none", "none"),
        "L12_A64": ("all", "houlsby:64"),
        "L0_A64": ("none", "houlsby:64"),
        "L0_A768": ("none", "houlsby:768"),
    }
    assert {name: named[name] for name in expected} == expected


# SPEC 12: windows a step, rates and epochs of BERT's own paper.
BERT = {
    "glue": (32, {5e-5, 4e-5, 3e-5, 2e-5}, 3),
    "squad1": (32, {5e-5}, 3),
    "squad2": (48, {5e-5}, 2),
    "swag": (4 * 16, {2e-5}, 3),
    "ner": (32, {5e-5}, 3),
}


@pytest.mark.parametrize(("name", "recipe"), BERT.items())
def test_the_recipes_of_berts_paper_are_those_that_it_gives(name, recipe):
    windows, rates, epochs = recipe
    found = read_experiments(CONFIGS / "bert" / f"{name}.yaml")
    assert {each.finetune.lr for each in found} == rates
    assert {each.finetune.batch.windows for each in found} == {windows}
    assert {each.finetune.fractions for each in found} == {(float(epochs),)}
    assert {each.finetune.dropout for each in found} == {0.1}


def test_berts_recipe_for_glue_has_four_rates_for_each_of_eight_tasks_and_rows_to_choose_them_by():
    found = read_experiments(CONFIGS / "bert" / "glue.yaml")
    assert len(found) == 4 * 8
    assert all(each.data.held_out for each in found)
    assert len(read_experiments(CONFIGS / "bert" / "glue.yaml", ["variant=rte"])) == 4


def test_a_yaml_lies_above_its_recipe_and_an_override_above_both(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("recipe: paper-v1\nfinetune: {lr: 3e-5, optim: {eps: 1e-6}}\nheads: {lr: 0.01, epochs: 4}\n")
    experiment = read_experiment(path, ["heads.lr=0.5", "windows.stride=64"])
    assert (experiment.heads.lr, experiment.windows.stride) == (0.5, 64)  # --set
    assert (experiment.finetune.lr, experiment.finetune.optim.eps, experiment.heads.epochs) == (3e-5, 1e-6, 4)  # YAML
    assert (experiment.windows.max_length, experiment.finetune.loss, experiment.heads.batch.windows) == (386, "sum", 16)
    assert experiment.finetune.optim.max_grad_norm is None


def test_the_recipe_itself_can_be_overridden():
    assert build_experiment({"recipe": "paper-v1"}, ["recipe=paper-v2"]).windows.max_length == 384
    assert build_experiment({"recipe": "paper-v1"}, ["recipe=default"]) == build_experiment({})


@pytest.mark.parametrize(
    ("settings", "overrides", "batch"),
    [
        ({"recipe": "paper-v1"}, [], (None, 4)),
        ({"recipe": "paper-v1", "finetune": {"batch": {"tokens": 4096}}}, [], (4096, None)),
        ({"recipe": "paper-v1"}, ["finetune.batch.tokens=2048"], (2048, None)),
        ({"finetune": {"batch": {"tokens": 4096}}}, ["finetune.batch.windows=2"], (None, 2)),
        ({"finetune": {"batch": {"tokens": 4096}}}, ["finetune.batch={windows: 3}"], (None, 3)),
    ],
)
def test_a_batch_is_replaced_whole(settings, overrides, batch):
    chosen = build_experiment(settings, overrides).finetune.batch
    assert (chosen.tokens, chosen.windows) == batch


def test_where_states_come_from_is_a_word_or_a_mapping():
    assert build_experiment({}).states.source == "auto"
    assert build_experiment({"states": "live"}).states.source == "live"
    assert build_experiment({}, ["states=memory"]).states.source == "memory"
    below = {"states": {"batch": {"tokens": 65536}}}
    for overridden in (
        build_experiment({"states": "memory"}, ["states.batch.tokens=65536"]),
        build_experiment(below, ["states=memory"]),
        build_experiment({}, ["states=memory", "states.batch.tokens=65536"]),
    ):
        assert (overridden.states.source, overridden.states.batch.tokens) == ("memory", 65536)
    chosen = build_experiment({"states": {"source": "memory", "layers": [0, 6], "batch": {"tokens": 65536}}}).states
    assert (chosen.source, chosen.layers, chosen.batch.tokens) == ("memory", (0, 6), 65536)


def test_an_experiment_is_named_after_its_file_unless_it_says_so(tmp_path):
    for name, text in (("one", "task: squad1\n"), ("two", "name: other\n")):
        (tmp_path / f"{name}.yaml").write_text(text)
    assert read_experiment(tmp_path / "one.yaml").name == "one"
    assert read_experiment(tmp_path / "two.yaml").name == "other"
    assert read_experiment(tmp_path / "two.yaml", ["name=third"]).name == "third"


@pytest.mark.parametrize(
    ("file", "name"),
    [("my table (2)", "my-table-2"), ("übersicht", "ubersicht"), ("日本", "experiment"), ("-x.1", "-x.1")],
)
def test_a_files_name_that_no_experiment_can_have_is_written_plainly(tmp_path, file, name):
    (tmp_path / f"{file}.yaml").write_text("task: squad1\n")
    assert read_experiment(tmp_path / f"{file}.yaml").name == name


def test_an_error_in_a_file_names_the_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("finetun: {lr: 1e-5}\n")
    with pytest.raises(SettingsError) as caught:
        read_experiment(tmp_path / "mine.yaml")
    assert str(caught.value) == f"{tmp_path / 'mine.yaml'}: unknown key `finetun`; did you mean `finetune`?"


def test_the_quickstart_reads_the_shipped_passages_and_takes_overrides():
    experiment = quickstart_experiment(["heads.epochs=3", "finetune.lr=1e-5"])
    assert (experiment.name, experiment.data.train, experiment.data.dev) == ("quickstart", "sample:train", "sample:dev")
    assert (experiment.heads.epochs, experiment.finetune.lr) == (3, 1e-5)


def test_ensembles_are_named_after_their_members_and_how_they_are_combined():
    of = ["encoder", "last_linear"]
    experiment = build_experiment(
        {"ensembles": [{"models": of}, {"models": of, "method": "mean"}, {"models": of, "method": "logits"}]}
    )
    assert [ensemble.name for ensemble in experiment.ensembles] == [
        "encoder+last_linear",
        "encoder+last_linear-mean",
        "encoder+last_linear-logits",
    ]


def test_heads_are_given_by_catalog_name_or_with_a_changed_part():
    train = [
        "adapter_64_shared",
        {"name": "fast", "head": "learned_pooling", "lr": 1e-2},
        {"name": "adapter_96", "pooler": {"kind": "adapter", "width": 96, "skip": True}},
    ]
    heads = build_experiment({"heads": {"train": train}}).heads.train
    assert [head.name for head in heads] == ["adapter_64_shared", "fast", "adapter_96"]
    assert [head.lr for head in heads] == [None, 1e-2, None]
    assert (heads[1].pooler.kind, heads[2].pooler.width, heads[2].pooler.skip) == ("learned_pooling", 96, True)


PAIR = ["encoder", "last_linear"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"recipe": "paper-v3"}, "no recipe 'paper-v3'; known: default, paper-v1, paper-v2"),
        ({"recipe": None}, "no recipe None; known: default, paper-v1, paper-v2"),
        ({"recipe": ["paper-v1"]}, "no recipe ['paper-v1']; known: default, paper-v1, paper-v2"),
        ({"taks": "squad2"}, "unknown key `taks`; did you mean `task`?"),
        ({"finetune": {"optim": {"wamup": 0.1}}}, "unknown key `finetune.optim.wamup`; did you mean `warmup`?"),
        ({"tune": {"inser": "houlsby:8"}}, "unknown key `tune.inser`; did you mean `insert`?"),
        ({"tune": {"parasites": {"widht": 8}}}, "unknown key `tune.parasites.widht`; did you mean `width`?"),
        ({"measure": {"infrence": True}}, "unknown key `measure.infrence`; did you mean `inference`?"),
        ({"task": "squad3"}, "`task`: Input should be 'squad1', 'squad2', 'answerability', 'cola', "),
        ({"name": "a/b"}, "`name`: "),
        ({"name": ".."}, "`name`: "),
        ({"precision": "fp16"}, "`precision`: "),
        ({"data": {"on_bad": "ignore"}}, "`data.on_bad`: "),
        (
            {"data": {"extra_dev_sets": {"../../victim": "dev.json"}}},
            "`data.extra_dev_sets.../../victim.[key]`: String should match pattern",
        ),
        ({"seeds": []}, "`seeds`: "),
        ({"seeds": [1, 2, 1]}, "`seeds` holds one twice: [1, 2, 1]"),
        ({"seeds": [-1]}, "`seeds.0`: "),  # numpy's generators take no negative seed
        ({"windows": {"max_length": 4}}, "`windows.max_length`: "),
        ({"windows": {"stride": 380}}, "`windows`: an overlap (stride) of 380 leaves no room in windows of 384 tokens"),
        ({"windows": {"stride": 0, "stride_as": "step"}}, "`windows`: a step (stride) of 0 never reaches the end"),
        ({"finetune": {"fractions": [1, 0.5]}}, "`finetune`: `fractions` must ascend from 0 or more, each once, got"),
        ({"finetune": {"fractions": [0.5, 0.5]}}, "`finetune`: `fractions` must ascend from 0 or more, each once, got"),
        ({"finetune": {"fractions": [-0.1, 1]}}, "`finetune`: `fractions` must ascend from 0 or more, each once, got"),
        ({"finetune": {"fractions": [0.1, 0.10000001]}}, "`finetune`: `fractions` "),  # both are called 0.1
        ({"finetune": {"lr": 0}}, "`finetune.lr`: Input should be greater than 0, got 0"),
        ({"finetune": {"lr": "1e-5"}}, '`finetune.lr`: Input should be a valid number, got "1e-5"'),
        (
            {"heads": {"lr": [1, 2]}},
            "`heads.lr`: Input should be a valid number, got [1, 2]; a list of rates stands in",
        ),
        ({"finetune": {"dropout": 1.0}}, "`finetune.dropout`: Input should be less than 1"),
        ({"finetune": {"batch": {}}}, "`finetune.batch`: give either `tokens` or `windows`, such as batch: {tokens: "),
        ({"heads": {"batch": {"tokens": 512, "windows": 4}}}, "`heads.batch`: give either `tokens` or `windows`"),
        ({"finetune": {"batch": {"tokens": 383}}}, "finetune.batch.tokens (383) is less than one window (384)"),
        ({"heads": {"batch": {"tokens": 383}}}, "heads.batch.tokens (383) is less than one window (384)"),
        ({"states": {"batch": {"tokens": 383}}}, "states.batch.tokens (383) is less than one window (384)"),
        ({"states": "tape"}, "`states.source`: Input should be 'auto', 'live' or 'memory', got \"tape\""),
        ({"heads": {"epochs": 0}}, "`heads.epochs`: Input should be greater than or equal to 1, got 0"),
        ({"heads": {"train": ["last_linear", "last_linear"]}}, "`heads`: two heads are called 'last_linear'; give one"),
        (
            {"heads": {"train": ["lst_linear"]}},
            "`heads.train.0`: no head 'lst_linear' in the catalog; did you mean `last_linear`?",
        ),
        ({"heads": {"train": [{"head": ["last_linear"]}]}}, "`heads.train.0`: "),
        (
            {"heads": {"train": [{"name": "encoder", "head": "last_linear"}]}},
            "`heads.train.0.name`: 'encoder' cannot be",
        ),
        (
            {"heads": {"train": [{"name": "..", "head": "last_linear"}]}},
            "`heads.train.0.name`: '..' cannot be a head's",
        ),
        ({"heads": {"train": [{"name": "x", "pooler": {"kind": "adapter", "width": 0}}]}}, "`heads.train.0.pooler."),
        ({"heads": {"train": [{"name": "x", "pooler": {"kind": "cnn"}}]}}, "`heads.train.0.pooler`: Input tag 'cnn'"),
        ({"task": "classification", "finetune": "none"}, '`finetune`: Input should be an object, got "none"'),
        ({"task": "classification", "heads": 3}, "`heads`: Input should be an object, got 3"),
        ({"ensembles": [{"models": ["encoder"]}]}, "`ensembles.0.models`: "),
        (
            {"ensembles": [{"models": ["encoder", "cnn"]}]},
            "ensemble of 'cnn', which is not trained here; known: encoder, ",
        ),
        (
            {"heads": {"train": ["last_linear"]}, "ensembles": [{"models": ["encoder", "last_linaer"]}]},
            "ensemble of 'last_linaer', which is not trained here; did you mean `last_linear`?",
        ),
        ({"ensembles": [{"models": PAIR, "method": "median"}]}, "`ensembles.0.method`: "),
        ({"ensembles": [{"models": PAIR}, {"models": PAIR}]}, "two ensembles are called 'encoder+last_linear'"),
        ({"answers": {"decoders": ["reader"]}}, "`answers`: `decoders` holds `official` and, if wanted, "),
        ({"answers": {"decoders": ["official"] * 2}}, "`answers`: `decoders` holds `official` and, if wanted, "),
        (
            {"answers": {"decoders": ["legacy"]}},
            "`answers.decoders.0`: Input should be 'official' or 'reader', got ",
        ),
        ({"answers": {"n_best": 0}}, "`answers.n_best`: Input should be greater than or equal to 1, got 0"),
        (
            {"finetune": {"gradient_checkpointing": True}, "tune": {"parasites": {}}},
            "finetune.gradient_checkpointing does not go with tune.parasites, which read what earlier blocks gave; "
            "leave one of them out",
        ),
    ],
)
def test_an_impossible_experiment_is_refused_in_one_line(settings, problem):
    assert refusal(settings).startswith(problem)


def test_a_mistyped_choice_is_answered_with_the_nearest():
    assert refusal({"task": "clasification"}).endswith(', got "clasification"; did you mean `classification`?')


def test_a_head_that_scores_pairs_is_no_member_of_an_ensemble():
    settings = {"heads": {"train": ["adapter_386_shared_skip_joint", "last_linear"]}}
    of = ["last_linear", "adapter_386_shared_skip_joint"]
    assert refusal({**settings, "ensembles": [{"models": of}]}) == (
        "ensemble of 'adapter_386_shared_skip_joint', whose joint readout cannot be combined token by token; "
        "leave it out"
    )


def test_an_ensemble_knows_the_heads_of_its_own_experiment():
    settings = {"heads": {"train": ["learned_pooling"]}, "ensembles": [{"models": ["encoder", "last_linear"]}]}
    assert refusal(settings) == (
        "ensemble of 'last_linear', which is not trained here; known: encoder, learned_pooling "
        "(`ensembles: []` leaves all out)"
    )
    assert build_experiment(settings, ["heads.train=[last_linear]"]).ensembles[0].models == ("encoder", "last_linear")


def test_a_token_budget_may_be_exactly_one_window():
    settings = {"windows": {"max_length": 192, "stride": 64}, "finetune": {"batch": {"tokens": 192}}}
    assert build_experiment(settings).finetune.batch.tokens == 192


def test_a_head_that_cannot_score_spans_is_refused_before_anything_is_trained():
    with pytest.raises(SettingsError, match="'xception_abbr' is not for tasks of the kind span, as squad2 is"):
        build_experiment({"heads": {"train": ["last_linear", "xception_abbr"]}})


# What depends on the training rows


@pytest.mark.parametrize(
    ("rows", "size", "epochs"),
    [(16, 8, 150), (64, 8, 38), (250, 8, 10), (1000, 8, 3), (2000, 16, 3), (3200, 32, 3), (100_000, 32, 3)],
)
def test_heads_take_at_least_300_steps_on_any_number_of_rows(rows, size, epochs):
    fitted = fit_to_rows(build_experiment({"task": "sst2"}), rows, pairs=False)
    assert (fitted.heads.batch.windows, fitted.heads.epochs) == (size, epochs)
    assert epochs * ceil(rows / size) >= 300


def test_few_rows_leave_the_encoder_as_it_is_and_more_tune_it_for_three_epochs():
    experiment = build_experiment({"task": "mrpc"})
    few, more = (fit_to_rows(experiment, rows, pairs=True) for rows in (1999, 2000))
    assert (few.finetune.fractions, few.states.pooling) == ((), "pair_difference")
    assert (more.finetune.fractions, more.states.pooling) == ((3.0,), "mean")
    assert fit_to_rows(experiment, 64, pairs=False).states.pooling == "mean"


def test_contrastive_tuning_is_setfits_epoch_whatever_the_number_of_rows():
    experiment = build_experiment({"task": "mrpc", "finetune": {"objective": "contrastive"}})
    few, more = (fit_to_rows(experiment, rows, pairs=True) for rows in (16, 5000))
    assert few.finetune == more.finetune == experiment.finetune
    assert (few.finetune.fractions, few.finetune.batch.windows, few.finetune.optim.warmup) == ((1.0,), 32, 0.1)
    assert (few.contrast, few.states.pooling) == ("rows", "mean")
    own = build_experiment({"task": "mrpc", "finetune": {"objective": "contrastive", "lr": 3e-4, "fractions": [0, 2]}})
    assert (own.finetune.lr, own.finetune.fractions) == (3e-4, (0.0, 2.0))


def test_contrastive_tuning_on_numbers_compares_the_texts_that_heads_compare_too():
    experiment = build_experiment({"task": "stsb", "finetune": {"objective": "contrastive"}})
    fitted = fit_to_rows(experiment, 64, pairs=True)
    assert (fitted.contrast, fitted.states.pooling) == ("texts", "pair_difference")


@pytest.mark.parametrize("task", ["squad2", "answerability", "swag", "ner"])
def test_contrastive_tuning_is_for_rows_alone(task):
    with pytest.raises(SettingsError, match=f"contrastive is for classes, labels and numbers of rows, and {task} asks"):
        build_experiment({"task": task, "finetune": {"objective": "contrastive"}})


def test_a_floor_adds_epochs_to_every_fraction():
    experiment = build_experiment({"task": "sst2", "finetune": {"fractions": [1, 2], "min_steps": 100}})
    fitted = fit_to_rows(experiment, 40, pairs=False)
    assert (fitted.finetune.batch.windows, fitted.finetune.fractions) == (8, (10.0, 20.0))


@pytest.mark.parametrize("own", [{"fractions": [2]}, {"fractions": [2], "batch": {"windows": 16}}])
def test_epochs_and_batches_that_are_given_stay_as_they_are(own):
    experiment = build_experiment({"task": "sst2", "finetune": own, "heads": {"epochs": 2}})
    fitted = fit_to_rows(experiment, 30, pairs=False)
    assert fitted.finetune == experiment.finetune
    assert (fitted.heads.epochs, fitted.heads.batch.windows) == (2, 32)


def test_rows_have_the_baseline_beside_their_heads_and_questions_and_tags_do_not():
    names = lambda settings: [head.name for head in build_experiment(settings).heads.train]  # noqa: E731
    assert names({"task": "rte"})[0] == "regression"
    assert names({"task": "rte", "heads": {"train": ["mix4"]}}) == ["mix4", "last_regression"]
    assert names({"task": "rte", "heads": {"train": []}}) == []
    assert names({"task": "rte", "heads": {"train": ["mix4"], "baseline": False}}) == ["mix4"]
    assert "last_regression" not in names({"task": "ner"}) + names({"task": "squad2"})


def test_the_committed_experiments_on_rows_read_the_first_token_as_they_did():
    paths = [path for path in CONFIGS.rglob("*.yaml") if path.parent.name in ("glue", "swag", "classification")]
    assert paths
    for path in paths:
        for experiment in read_experiments(path):
            assert (experiment.states.pooling, experiment.finetune.initial_bias, experiment.heads.initial_bias) == (
                "first",
                "zero",
                "zero",
            )
            assert fit_to_rows(experiment, 600, pairs=True) == experiment
