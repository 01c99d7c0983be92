"""Studies of the papers on a tiny BERT: what they share, what they record, and that every one can be run."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertvision.data.split import write_squad
from bertvision.errors import SettingsError
from bertvision.evaluate.compare import Shown
from bertvision.experiment import build_experiment, build_experiments
from bertvision.files import write_json
from bertvision.predictions.logits import load_logits
from bertvision.records import read_records
from bertvision.settings import CONFIGS, read_yaml
from bertvision.stages.run import run
from studies.__main__ import app
from studies.records import read_study_records
from studies.run import count_work, missing_files, plan_study, resample_claims, run_study
from studies.study import find_study, read_studies

pytestmark = pytest.mark.flow
RUNNABLE = [name for name, study in read_studies().items() if study.config]
SMALL = ["windows.max_length=24", "windows.stride=4", "device=cpu", "precision=float32", "states.source=live"]
BATCHES = ["finetune.batch.windows=4", "heads.batch.windows=4", "states.batch=null", "measure=null"]


@pytest.fixture
def folder(squad_file, tmp_path):
    """A folder of data as --data takes it."""
    for name in ("train-v2.0.json", "dev-v2.0.json", "train-v1.1.json", "dev-v1.1.json"):
        squad_file(name)
    return tmp_path


@pytest.fixture
def settings(tiny):
    return {
        **tiny,
        "finetune": {"fractions": [0.5, 1], "batch": {"windows": 2}, "lr": 1e-3},
        "heads": {"train": ["last_linear", "null_offset", "null_offset_scale"], "batch": {"windows": 4}, "lr": 1e-2},
    }


def test_every_study_is_either_run_or_says_what_it_needs():
    assert len(RUNNABLE) > 15
    assert all(study.needs for name, study in read_studies().items() if name not in RUNNABLE)


@pytest.mark.parametrize("name", RUNNABLE)
@pytest.mark.parametrize("encoder", [None, "tiny"])
def test_every_study_can_be_planned(name, encoder):
    study = find_study(name)
    plan = plan_study(study, encoder, seeds=2)
    assert {each.name for each in plan.experiments} == {name}
    assert {each.seeds for each in plan.experiments} == {(1, 2)}
    work = count_work(plan)
    assert work.tuning_epochs + work.head_passes > 0
    if encoder is not None:
        assert {each.encoder for each in plan.experiments} == {encoder}
    # Every row that a study speaks of is one that its runs make.
    rows = {"encoder"} if plan.experiments[0].variant is None else {str(each.method) for each in plan.experiments}
    for each in plan.experiments:
        own = "" if each.method is None else f"{each.method}:"
        heads = [head.variant_of or head.name for head in each.heads.train]
        rows |= {f"{own}{row}" for row in (*heads, *(ensemble.name for ensemble in each.ensembles))}
        rows |= {f"{own}{row}-of-{fraction:g}" for row in heads for fraction in each.transfer or ()}
    named = [each.row for each in study.published] + list(study.controls)
    claimed = [place for each in study.claims if each.settled is None for place in (each.one, each.other) if place]
    named += [place.row for place in claimed if not place.analysis]
    assert set(named) <= rows
    fractions = {fraction for each in plan.experiments for fraction in each.finetune.fractions}
    asked = {place.fraction for place in (*study.published, *claimed)} - {"last"}
    assert asked <= (fractions or {"given"})


@pytest.mark.parametrize("name", [name for name in RUNNABLE if find_study(name).elsewhere])
def test_what_a_study_has_for_other_encoders_changes_its_runs(name):
    study = find_study(name)
    plans = [plan_study(each, "tiny") for each in (study, study.model_copy(update={"elsewhere": {}}))]
    one, other = ([each.model_dump(mode="json") for each in plan.experiments] for plan in plans)
    assert one != other


@pytest.mark.parametrize("encoder", ["google-bert/bert-large-uncased", "models/bert-large-uncased/"])
def test_the_papers_own_encoder_is_tuned_by_its_own_recipe_wherever_it_lies(encoder):
    """As small encoders are (`elsewhere`), it would be tuned at ten times its rate."""
    plan = plan_study(find_study("span_tables"), encoder)
    (found,) = plan.experiments
    assert found.encoder == encoder
    assert (found.finetune.lr, found.finetune.batch.windows, found.windows.max_length) == (1e-5, 4, 386)  # SPEC 5


LARGE_2021 = {  # rates and batches of heads, as wide as rows are long (SPEC 8.5)
    "qqp": (1e-5, 32),
    "qnli": (1e-5, 32),
    "mnli": (1e-5, 32),
    "rte": (1.2614e-5, 16),
    "sst2": (2e-5, 32),
    "mrpc": (1.4399e-5, 32),
    "cola": (2.99619e-5, 16),
    "stsb": (2.98363e-5, 16),
}


def test_bert_large_of_2021_has_heads_of_its_own_and_is_tuned_as_bert_base():
    large, base = (plan_study(find_study(name)).experiments for name in ("glue_2021_large", "glue_2021"))
    assert {each.task: (each.heads.lr, each.heads.batch.windows) for each in large} == LARGE_2021
    for each, small in zip(large, base, strict=True):
        pooler = next(head.pooler for head in each.heads.train if head.name == "ap_glue")
        assert pooler.width == pooler.length == each.windows.max_length == small.windows.max_length
        assert each.finetune == small.finetune


def test_glue_of_2018_is_tuned_at_four_rates_of_which_held_out_rows_choose():
    """SPEC 12: batch 32, 3 epochs, rates of 5, 4, 3 and 2e-5."""
    for name in ("bert_glue", "bert_glue_large"):
        runs = plan_study(find_study(name)).experiments
        assert len(runs) == 8 * 4
        assert {(each.finetune.fractions, each.finetune.batch.windows) for each in runs} == {((3.0,), 32)}
        for task in {each.task for each in runs}:
            assert {each.finetune.lr for each in runs if each.task == task} == {5e-5, 4e-5, 3e-5, 2e-5}
        assert all(each.data.held_out for each in runs)


RECORDED = Path(__file__).parents[2] / "results/reproduce"
# What a user may choose without making another study of it; a run may also leave out fractions. A decoder more adds
# scores and changes none.
FREE = ("data.train", "data.dev", "seeds", "precision", "answers.n_best", "answers.decoders")


def leaves(settings, place=""):
    """Return all values of nested settings by their dotted names."""
    if not isinstance(settings, dict):
        return {place: settings}
    parts = [leaves(value, f"{place}.{name}".lstrip(".")) for name, value in settings.items()]
    return {name: value for part in parts for name, value in part.items()}


@pytest.mark.parametrize("name", sorted(folder.name for folder in RECORDED.iterdir()))
def test_committed_records_are_of_the_settings_that_the_study_has_today(name):
    records = read_records(RECORDED / name)
    assert records
    (encoder,) = {record.config["encoder"] for record in records}
    planned = {each.variant: each for each in plan_study(find_study(name), encoder).experiments}
    for record in records:
        asked, made = leaves(planned[record.variant].model_dump(mode="json")), leaves(record.config)
        assert set(made["finetune.fractions"]) <= set(asked.pop("finetune.fractions"))
        differs = {key for key, value in asked.items() if key in made and made[key] != value}
        assert differs <= set(FREE), record.model


# Experiments of configs/ whose records lie below a folder of the same name.
SHIPPED = [
    path for path in sorted(CONFIGS.glob("*/*.yaml")) if (RECORDED.parent / path.parent.name / path.stem).is_dir()
]
CHANGED = (
    "data",
    "encoder",
    "name",
    "seeds",
    "heads.train",
    "heads.batch",
    "ensembles",
    "answers.decoders",
    "states.source",
)  # --set of docs/, and fields since


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_committed_records_are_of_the_settings_that_the_experiment_has_today(path):
    assert len(SHIPPED) > 14
    experiments = {each.variant: each for each in build_experiments(read_yaml(path), [], path.stem)}
    for record in read_records(RECORDED.parent / path.parent.name / path.stem):
        asked, made = leaves(experiments[record.variant].model_dump(mode="json")), leaves(record.config)
        differs = [key for key, value in asked.items() if key in made and made[key] != value]
        assert [key for key in differs if not key.startswith(CHANGED)] == [], record.model


@pytest.mark.parametrize("name", read_studies())
def test_every_study_dry_runs_on_a_tiny_encoder_and_makes_nothing(name, saved_encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["run", name, "--dry-run", "--encoder", str(saved_encoder), "--seeds", "2"])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    study = find_study(name)
    assert f"{name}: {study.title}" in text
    assert ("takes: " in text and "over the paper's" in text and "run: " in text) == bool(study.config)
    assert list(tmp_path.iterdir()) == []


# Fewer fractions where claims are about some of them alone.
FRACTIONS = {"span_curve": "[0.1, 1, 2]", "ensembles": "[1]", "later_states": "[0.3, 1]", "null_offset": "[1]"}


@pytest.mark.parametrize("name", [*FRACTIONS, "two_epochs", "analysis"])
def test_a_study_runs_on_a_tiny_encoder_and_writes_its_record(name, folder, saved_encoder, tmp_path):
    study, out = find_study(name), tmp_path / "out"
    overrides = [*SMALL, *BATCHES, "data.held_out=0"]
    overrides += [f"finetune.fractions={FRACTIONS[name]}"] if name in FRACTIONS else []
    plan = plan_study(study, str(saved_encoder), folder, 2, overrides)
    record = run_study(plan, out)
    assert read_study_records(out) == [record]
    assert record.seeds == (1, 2)
    assert [each.text for each in record.claims] == [each.text for each in study.claims if each.settled is None]
    judged = [each for each in record.claims if each.verdict is not None]
    assert judged
    assert all(each.ours.seeds == 2 for each in judged)
    page = (out / name / "study.md").read_text(encoding="utf-8")
    assert study.title in page
    assert all(each.text in page for each in record.claims if "“" not in each.text and "_" not in each.text)
    if study.controls:
        assert set(study.controls) <= {each.row for each in record.results}
    if name == "analysis":
        assert len(record.analyses) == 2
        assert {each.verdict for each in record.claims if "second answer" in each.text} != {None}


def test_shares_of_the_data_have_one_encoder_between_them(folder, saved_encoder, tmp_path):
    shares = ["variant=share_30", "variant=share_60", "variant=share_100", "heads.train=[adapter_386_shared_skip]"]
    plan = plan_study(find_study("less_data"), str(saved_encoder), folder, 1, [*SMALL, *BATCHES, *shares])
    record = run_study(plan, tmp_path / "out")
    encoders = list((tmp_path / "out").rglob("encoder/1/model.safetensors"))
    assert len(encoders) == 3
    assert all(each.samefile(encoders[0]) for each in encoders)
    assert [claim.verdict for claim in record.claims] == ["cannot tell", "cannot tell", None]  # one seed; not run
    assert {each.row for each in record.results} == {
        "share_100",
        *(f"share_{share}:adapter_386_shared_skip" for share in (30, 60, 100)),
    }


@pytest.fixture
def rte_folder(tmp_path):
    """A folder of data that has RTE alone."""
    rows = [
        f"{n}\tthe weir was built\tcoyle built the weir\t{label}"
        for n, label in enumerate(("entailment", "not_entailment") * 4)
    ]
    text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows, ""])
    for name in ("train.tsv", "dev.tsv"):
        place = tmp_path / "glue" / "RTE" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path


def test_a_study_of_several_tasks_runs_those_that_are_chosen(rte_folder, saved_encoder, tmp_path):
    plan = plan_study(find_study("glue_2021"), str(saved_encoder), rte_folder, 2, ["variant=rte", "device=cpu"])
    record = run_study(plan, tmp_path / "out")
    assert {each.row for each in record.results} == {"rte", "rte:ap_glue", "rte:last_linear"}
    assert {each.text: each.verdict is not None for each in record.claims}["ap_glue is above BERT-base on RTE."]
    assert sum(each.verdict is not None for each in record.claims) == 2  # both of RTE


def test_parasites_are_set_beside_the_encoder_that_is_tuned_whole(rte_folder, saved_encoder, tmp_path):
    chosen = ["variant=rte", "variant=rte_p16", "variant=rte_p64", "device=cpu", "finetune.fractions=[1]"]
    plan = plan_study(find_study("parasites_2021"), str(saved_encoder), rte_folder, 2, chosen)
    record = run_study(plan, tmp_path / "out")
    assert {each.row for each in record.results} == {"rte", "rte_p16", "rte_p64"}
    assert [each.text for each in record.claims if each.verdict is not None] == [
        "Parasites of width 64 in a frozen BERT are below BERT on RTE."
    ]
    # Frozen blocks and norms: what learns are the parasites and the output layer, here of one state of width 32.
    trained = {each.method: each.parameters.trainable for each in read_records(tmp_path / "out" / "parasites_2021")}
    assert trained["rte_p64"] - trained["rte_p16"] == 2 * 48 * (2 * 32 + 1)  # two blocks, 48 wider, with biases
    assert trained["rte_p16"] < trained["rte"]


@pytest.fixture
def mrpc_folder(tmp_path):
    """A folder of data that has MRPC alone, with the file that was dev in 2021."""
    rows = [f"{n % 2}\t{n}\t{n}\tthe weir was built\tcoyle built the weir" for n in range(8)]
    text = "\n".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows, ""])
    (tmp_path / "glue" / "MRPC").mkdir(parents=True)
    for name in ("train.tsv", "msr_paraphrase_test.txt"):
        (tmp_path / "glue" / "MRPC" / name).write_text(text)
    return tmp_path


def test_shares_of_frozen_weights_are_set_beside_the_encoder_that_is_tuned_whole(mrpc_folder, saved_encoder, tmp_path):
    shares = {"mrpc": 0, "mrpc_05": 0.05, "mrpc_50": 0.5, "mrpc_80": 0.8, "mrpc_95": 0.95}
    chosen = [*(f"variant={name}" for name in (*shares, "mrpc_frozen")), "device=cpu", "finetune.fractions=[1]"]
    plan = plan_study(find_study("freezing_2021"), str(saved_encoder), mrpc_folder, 2, chosen)
    record = run_study(plan, tmp_path / "out")
    assert [each.text for each in record.claims if each.verdict is not None] == [
        "Freezing half of the weights costs points (MSR).",
        "Freezing a twentieth of the weights costs nothing (MSR).",
        "With 95% of the weights frozen nothing is learned (MSR).",
    ]
    trained = {each.method: each.parameters.trainable for each in read_records(tmp_path / "out" / "freezing_2021")}
    output = trained.pop("mrpc_frozen")
    whole = trained["mrpc"] - output
    for name, share in shares.items():
        deviation = (share * (1 - share) / whole) ** 0.5  # of a binomial share
        assert abs((trained[name] - output) / whole - (1 - share)) <= 4 * deviation


def test_a_study_that_was_run_is_not_run_again(folder, saved_encoder, tmp_path):
    out = tmp_path / "out"
    plan = plan_study(find_study("two_epochs"), str(saved_encoder), folder, 1, [*SMALL, *BATCHES])
    first = run_study(plan, out)
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert run_study(plan, out) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == times


def test_a_study_without_its_files_says_which_are_missing(saved_encoder, tmp_path):
    plan = plan_study(find_study("two_epochs"), str(saved_encoder), tmp_path, 1)
    assert missing_files(plan) == [str(tmp_path / "train-v2.0.json"), str(tmp_path / "dev-v2.0.json")]


def test_data_are_found_below_a_folder_and_compressed(tmp_path):
    (tmp_path / "squad2").mkdir()
    for name in ("train-v2.0.json.gz", "dev-v2.0.json"):
        (tmp_path / "squad2" / name).touch()
    data = plan_study(find_study("two_epochs"), None, tmp_path, 1).experiments[0].data
    assert (data.train, data.dev) == (
        str(tmp_path / "squad2/train-v2.0.json.gz"),
        str(tmp_path / "squad2/dev-v2.0.json"),
    )


def test_a_study_that_needs_what_is_not_here_cannot_be_planned():
    with pytest.raises(SettingsError, match="needs pre-training"):
        plan_study(find_study("bert_pretraining"))


def test_an_encoder_that_another_run_tuned_by_the_same_settings_is_not_tuned_again(settings, tmp_path):
    run(build_experiment(settings, ["finetune.fractions=[0.5, 1]", "heads.train=[]"]), tmp_path / "runs" / "one")
    other = build_experiment(settings, ["finetune.fractions=[1]", "name=other"])
    run(other, tmp_path / "runs" / "two", lender=tmp_path / "runs")
    run(build_experiment(settings, ["finetune.fractions=[1]", "finetune.lr=0.002"]), tmp_path / "c", lender=tmp_path)
    one, two, third = (
        tmp_path / each / "encoder" / "1" / "model.safetensors" for each in ("runs/one", "runs/two", "c")
    )
    assert two.samefile(one)
    assert third.read_bytes() != one.read_bytes()


def test_controls_of_the_null_threshold_learn_in_the_same_pass_from_the_encoders_own_scores(settings, tmp_path):
    records = run(build_experiment(settings), tmp_path / "out")
    trained = {(each.model, each.fraction): each for each in records}
    assert trained["null_offset", 1].parameters.trainable == 1
    assert trained["null_offset_scale", 1].parameters.trainable == 2
    assert trained["null_offset", 1].kind == "control"
    folder = tmp_path / "out" / "predictions" / "1"
    grid, theirs = load_logits(folder / "encoder" / "logits.safetensors")
    _, ours = load_logits(folder / "null_offset" / "logits.safetensors")
    first = grid.window_at[:-1]
    moved = ours - theirs
    # The first token of every window moves by one and the same number; nothing else does.
    assert abs(moved[first]).min() > 0.01
    assert moved[first].std() < 1e-4
    moved[first] = 0
    assert abs(moved).max() < 1e-4


def test_a_null_offset_needs_an_output_layer_to_correct(settings, tmp_path):
    with pytest.raises(SettingsError, match="'null_offset' corrects the scores of a linear output layer"):
        run(build_experiment(settings, ["finetune.fractions=[]"]), tmp_path / "out")
    with pytest.raises(SettingsError, match="tune the encoder with one"):
        run(build_experiment(settings, ["finetune.head=adapter_64_shared"]), tmp_path / "other")


def test_heads_of_an_early_fraction_answer_with_later_states(settings, tmp_path):
    settings = {**settings, "heads": {**settings["heads"], "train": ["last_linear"]}, "transfer": [0.5]}
    records = {(each.model, each.fraction): each for each in run(build_experiment(settings), tmp_path / "out")}
    moved = records["last_linear-of-0.5", 1]
    assert moved.head_fraction == 0.5
    assert ("last_linear-of-0.5", 0.5) not in records
    folder = tmp_path / "out" / "predictions"
    logits = [
        load_logits(folder / place / "logits.safetensors")[1] for place in ("1/last_linear-of-0.5", "1/last_linear")
    ]
    assert abs(logits[0] - logits[1]).max() > 1e-4
    assert len(read_records(tmp_path / "out")) == 5
    assert run(build_experiment(settings), tmp_path / "out") == list(records.values())


def test_heads_of_a_fraction_that_is_not_tuned_for_are_refused(settings):
    with pytest.raises(SettingsError, match=r"`transfer` has 0\.3, which is none of finetune\.fractions"):
        build_experiment({**settings, "transfer": [0.3]})


def test_questions_without_an_answer_are_left_out_of_squad_1_where_that_is_asked_for(folder, saved_encoder, tmp_path):
    plan = plan_study(
        find_study("no_null"), str(saved_encoder), folder, 1, [*SMALL, *BATCHES, "finetune.fractions=[1]"]
    )
    record = run_study(plan, tmp_path / "out")
    made = json.loads(next((tmp_path / "out").rglob("encoder-1-seed1.json")).read_text())
    assert made["data"]["train"]["dropped"] == 1  # of eight
    assert {each.row for each in record.results} >= {"last_linear", "last_adapter"}


def test_heads_on_some_layers_are_trained_kept_and_asked_with_others(folder, saved_encoder, tmp_path):
    """Those of the mechanism that a tiny encoder of three states has; the encoder is lent by another study."""
    heads = "[adapter_386_shared, last_linear, null_offset"
    some = [f"{{name: adapter_{name}, head: adapter_386_shared, layers: {layers}}}" for name, layers in SOME.items()]
    joint = "{name: joint_last, pooler: {kind: last_state}, readout: joint, rank: 1, layers: [-1]}"
    overrides = [*SMALL, *BATCHES, "data.held_out=0", f"heads.train={heads}, {', '.join(some)}, {joint}]"]
    record = run_study(plan_study(find_study("mechanism"), str(saved_encoder), folder, 2, overrides), tmp_path / "out")
    rows = {each.row: each for each in record.results}
    assert {"adapter_last", "adapter_ends", "adapter_copies", "joint_last"} <= rows.keys()
    sizes = {each.model: each.parameters.trainable for each in read_records(tmp_path / "out")}
    assert sizes["adapter_copies"] == sizes["adapter_386_shared"]
    assert (
        sizes["adapter_386_shared"] - sizes["adapter_last"] == 2 * 2 * 12
    )  # two layers of 12 features less, read twice
    judged = [each.text for each in record.claims if each.verdict is not None]
    assert len(judged) == 4


SOME = {"last": "[-1]", "ends": "[0, -1]", "copies": "[-1, -1, -1]"}


def test_claims_about_f1_resample_articles_and_seeds_together(folder, questions, make_record, tmp_path):
    """The head is right about one article with seed 1, about all with seed 2; the encoder answers nothing."""
    asked = [replace(each, title="a" if number < 4 else "b") for number, each in enumerate(questions)]
    write_squad(folder / "dev-v2.0.json", asked)
    golds = {each.id: each.answers[0].text if each.answers else "" for each in asked}
    nothing = dict.fromkeys(golds, "")
    shown = []
    for seed, right in ((1, ("q0", "q1", "q3")), (2, golds)):
        for row, answers in (("encoder", nothing), ("adapter_386_shared_skip", {**nothing, **_only(golds, right)})):
            record = make_record(model=row, seed=seed, scores={"f1": 0.0}, config={"seeds": [1, 2]})
            shown.append(Shown(record, row, tmp_path / row / str(seed)))
            write_json(shown[-1].answers, answers)
    found = resample_claims(find_study("null_offset"), shown, str(folder / "dev-v2.0.json"))
    # Of two articles, or seeds, one resample of four draws the same twice: article b with seed 1 gains nothing,
    # with seed 2 all that is there.
    assert found == {"At threshold 0 the head on all layers is above the encoder.": (0.0, 100.0)}


def test_seeds_that_were_run_one_by_one_are_judged_as_one_study(folder, saved_encoder, tmp_path):
    study, dev = find_study("null_offset"), str(folder / "dev-v2.0.json")
    overrides = [*SMALL, *BATCHES, "finetune.fractions=[1]", "data.held_out=0"]
    overrides += ["heads.train=[adapter_386_shared_skip, last_adapter, null_offset]"]
    for seed in (1, 2):
        plan = plan_study(study, str(saved_encoder), folder, 2, [*overrides, f"seeds=[{seed}]"])
        run_study(plan, tmp_path / f"out{seed}")
    runs = [tmp_path / f"out{seed}" / "null_offset" for seed in (1, 2)]
    runpy.run_path(str(TOOLS / "judge_seeds.py"))["judge_seeds"]("null_offset", dev, tmp_path / "both", runs)
    expected = run_study(plan_study(study, str(saved_encoder), folder, 2, overrides), tmp_path / "whole")
    (judged,) = read_study_records(tmp_path / "both")
    assert judged.claims == expected.claims
    assert judged.results == expected.results


TOOLS = Path(__file__).parents[2] / "tools"


def _only(golds, chosen):
    return {question: golds[question] for question in chosen}
