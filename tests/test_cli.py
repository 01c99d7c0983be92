import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app
from bertvision.experiment import read_experiment

VERBS_BY_PANEL = {
    "Use a model": ["ask", "predict", "serve", "save"],
    "Train": ["quickstart", "run", "search", "pretrain", "encode", "show"],
    "Evaluate": ["score", "compare", "analyze", "calibrate", "ensemble", "report"],
}
VERBS = [verb for verbs in VERBS_BY_PANEL.values() for verb in verbs]


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "80"})


@pytest.fixture
def config(squad_file, encoder_folder, tmp_path):
    data = str(squad_file())
    settings = {
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": [0, 1], "batch": {"windows": 4}, "lr": 1e-3},
        "heads": {"train": ["learned_pooling", "last_linear"], "batch": {"windows": 4}},
        "device": "cpu",
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_within_80_columns(verb):
    shown = call(verb, "--help")
    assert shown.exit_code == 0
    assert f"Usage: bertvision {verb}" in shown.output
    assert max(len(line) for line in shown.output.splitlines()) <= 80


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("export", "is now `save --onnx`"),
        ("finetune", "is now `run --until encoder`"),
        ("train-heads", "is now `run --until heads`"),
        ("layers", "is now `analyze --layers`"),
        ("inspect", "is now `show data`"),
        ("heads", "is now `show heads`"),
        ("configs", "is now `show experiments`"),
        ("near-miss", "is now the setting data.near_misses, and bertvision.data.make_near_misses in Python"),
        ("push", "is gone: `save` the model, then `hf upload` its folder"),
    ],
)
def test_an_old_verb_names_the_new_one_in_one_line(old, told):
    shown = call(old, "runs/mine", "--out", "x")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (2, "", f"error: `{old}` {told}\n")


def test_a_message_of_the_library_names_settings_and_options_as_the_command_line_takes_them(tmp_path):
    (tmp_path / "rows.csv").write_text('text,label\n"a,b\n')
    told = call("show", "data", tmp_path / "rows.csv", "--task", "classification").stderr
    assert "say --set data.quoted=false" in told
    with pytest.raises(bertvision.BertVisionError, match="say `data.quoted=false`"):
        bertvision.run(
            bertvision.build_experiment({"task": "classification", "data": {"train": str(tmp_path / "rows.csv")}}),
            tmp_path / "out",
        )
    told = call("ensemble", "a", "b", "--data", "c", "--out", "d", "--held-out", "e").stderr
    assert "--held-out and --held-out-data go together" in told


def test_help_lists_every_verb_by_what_it_is_for():
    _, *panels = call("--help").output.split("\n\n")[-len(VERBS_BY_PANEL) - 1 :]
    listed = {panel.split(":")[0]: re.findall(r"^  ([a-z-]+) ", panel, flags=re.MULTILINE) for panel in panels}
    assert listed == VERBS_BY_PANEL


def test_help_says_of_every_verb_all_that_it_has_to_say_in_80_columns():
    command = [sys.executable, "-m", "bertvision", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    _, *lines = done.stdout.splitlines()  # the first shows how it is called
    assert len(lines) > 20
    assert [line for line in lines if line.endswith("...")] == []


def test_a_shell_completes_verbs():
    asked = {"_BERTVISION_COMPLETE": "complete_bash", "COMP_WORDS": "bertvision comp", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(app, [], prog_name="bertvision", env=asked)
    assert shown.output.split() == ["compare"]


def test_the_version_is_printed():
    assert call("--version").output == f"{metadata.version('bertvision')}\n"


def test_help_imports_what_parses_and_prints_alone():
    # -X importtime names every module on standard error as it is imported.
    command = [sys.executable, "-X", "importtime", "-m", "bertvision", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "bertvision.cli.console" in modules
    assert not modules & {"torch", "transformers", "numpy", "pydantic", "yaml", "rich.progress", "bertvision.records"}


@pytest.mark.flow
def test_a_run_prints_its_table_within_80_columns_and_writes_a_report(config, tmp_path):
    shown = call("run", config, "--out", tmp_path / "my out")
    assert shown.exit_code == 0, shown.output
    assert "[encoder tuned for 1 epoch]" in shown.stdout
    assert shown.stdout.count("parameters") == 1  # one table
    assert max(len(line) for line in shown.stdout.splitlines() if str(tmp_path) not in line) <= 80
    *_, silence, best, command = shown.stdout.splitlines()
    assert re.fullmatch(r"Always answering “no answer” would score \d+\.\d here\.", silence)
    assert best.startswith(("best model: heads/1/", "best model: encoder/1;"))
    assert f"predict '{tmp_path / 'my out'}' --data FILE" in command  # a shell takes it as one word
    assert (tmp_path / "my out" / "report.html").is_file()


@pytest.mark.flow
def test_a_run_of_several_seeds_calls_its_best_model_a_single_one(config, tmp_path):
    shown = call("run", config, "--out", tmp_path / "out", "--set", "seeds=[1, 2]", "--quiet")
    assert shown.exit_code == 0, shown.output
    assert "mean of 2 seeds" in shown.stdout
    assert re.search(
        r"^best single model \(the table has means of 2 seeds\): (seeds/2/)?(heads|encoder)/", shown.stdout, re.M
    )


def test_a_folder_in_the_place_of_an_experiment_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (".", tmp_path):
        told = f"error: {given}: cannot be read (Is a directory); give the path of an experiment's YAML"
        assert call("run", given).stderr.startswith(told)


def test_one_thing_is_not_told_in_the_plural(tmp_path):
    (tmp_path / "tags.conll").write_text("good O\nbread B-FOOD\n")
    shown = call("show", "data", tmp_path / "tags.conll", "--task", "ner").stdout
    assert "tags.conll: 1 example, 1 window\n" in shown
    (tmp_path / "tags.conll").write_text("good O\n\nbread B-FOOD\n")
    shown = call("show", "data", tmp_path / "tags.conll", "--task", "ner").stdout
    assert "tags.conll: 2 examples, 2 windows\n" in shown


def test_a_table_is_no_file_of_questions(tmp_path):
    (tmp_path / "reviews.csv").write_text("review,stars\ngood bread,5\n")
    told = call("show", "data", tmp_path / "reviews.csv").stderr
    assert "reviews.csv: is a table, and task squad2 needs SQuAD files (.json or .json.gz)" in told
    assert "a task such as classification" in told
    for name in ("reviews.jsonl", "reviews.jsonl.gz", "reviews.CSV"):
        told = call("show", "data", tmp_path / name).stderr
        assert f"{name}: is a table, and task squad2 needs" in told
    (tmp_path / "tags.conll").write_text("good O\nbread B-FOOD\n")
    told = call("show", "data", tmp_path / "tags.conll").stderr
    assert "tags.conll: is a file of tagged words, and task squad2 needs SQuAD files" in told
    assert "a task such as ner" in told


@pytest.mark.parametrize("name", ["reviews.csv", "reviews.jsonl.gz"])
def test_a_table_is_no_file_of_tagged_words(tmp_path, name):
    (tmp_path / name).write_text("review,stars\ngood bread,5\n")
    told = call("show", "data", tmp_path / name, "--task", "ner").stderr
    assert f"{name}: is a table, and task ner needs" in told
    assert "a task such as classification" in told


@pytest.mark.flow
def test_a_run_can_be_printed_as_json_and_kept_quiet(config, tmp_path):
    shown = call("run", config, "--out", tmp_path / "out", "--json", "--quiet", "--set", "finetune.fractions=[1]")
    assert shown.exit_code == 0, shown.output
    assert [row["model"] for row in json.loads(shown.stdout)] == ["encoder", "learned_pooling", "last_linear"]
    assert shown.stderr == ""


@pytest.mark.flow
def test_stages_print_what_they_made_and_a_model_answers_a_file(config, tmp_path, squad_file):
    made = call("run", config, "--until", "encoder", "--out", tmp_path / "out").stdout.split()
    assert made == [str(tmp_path / "out" / "encoder" / name) for name in ("0", "1")]
    heads = call("run", config, "--until", "heads", "--out", tmp_path / "out").stdout.split()
    assert len(heads) == 4
    answered = call("predict", heads[-1], "--data", squad_file(), "--out", tmp_path / "answers", "--json")
    assert answered.exit_code == 0, answered.output
    assert json.loads(answered.stdout)["examples"] == 8
    longer = call(
        "predict", made[1], "--data", squad_file(), "--out", tmp_path / "b", "--set", "answers.null_threshold=-1e9"
    )
    assert "8 questions, 8 abstained" in longer.stdout


@pytest.mark.flow
def test_a_report_is_drawn_again_from_records(config, tmp_path):
    call("run", config, "--out", tmp_path / "out")
    before = (tmp_path / "out" / "report.html").read_bytes()
    assert call("report", tmp_path / "out", "--out", tmp_path / "again").exit_code == 0
    assert (tmp_path / "again" / "report.html").read_bytes() == before


def test_inspect_counts_questions_and_windows(squad_file, encoder_folder):
    arguments = ("show", "data", squad_file(), "--encoder", encoder_folder, "--set", "windows.max_length=16")
    found = json.loads(call(*arguments, "--set", "windows.stride=2", "--json").stdout)
    assert (found["examples"], found["contexts"], found["labels"]) == (8, 8, {"answer": 7, "no answer": 1})
    assert found["windows"] > 8
    shown = call(*arguments, "--set", "windows.stride=2").stdout
    assert "1 (12.5%)" in shown
    assert max(len(line) for line in shown.splitlines()[1:]) <= 80


def test_heads_are_listed_with_the_papers_share_of_bert_large():
    shown = call("show", "heads").stdout
    assert "335,141,888" in shown
    assert max(map(len, shown.splitlines())) <= 80
    row = next(line for line in shown.splitlines() if line.startswith("adapter_386_shared_skip"))
    assert "417,000" in row
    assert "0.124" in row
    # SPEC 3.3: 6.181% and 0.080% are of the total, running statistics included.
    shares = {line.split()[0]: line.split()[-1] for line in shown.splitlines() if line.startswith("xception")}
    assert (shares["xception"], shares["xception_abbr_cls"]) == ("6.181", "0.080")


def test_heads_are_counted_for_any_encoder(encoder_folder):
    shown = call("show", "heads", "--encoder", encoder_folder, "--json").stdout
    loaded = {row["name"]: row for row in json.loads(shown)}
    assert loaded["learned_pooling"]["trainable"] == 3 + 1 + 66
    assert f"give --encoder {encoder_folder}" in call("show", "heads", encoder_folder).stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "nowhere.yaml"), "cannot be read"),
        (("run", "CONFIG", "--set", "heads.epoch=3"), "did you mean `epochs`"),
        (("run", "CONFIG", "--set", "heads"), "expected key=value"),
        (("run", "CONFIG", "--set", "out=3"), "unknown key `out`"),
        (("run", "CONFIG", "--set", "encoder=no/where"), "`default` or the folder of an encoder"),
        (("run", "CONFIG", "--set", "data.dev=nowhere.json"), "cannot be read"),
        (("run", "CONFIG", "--set", "recipe=paper-v3"), "no recipe"),
        (("run", "CONFIG", "--quiet", "--set", "states.layers=[9]"), "has the states 0 to 2"),
        (("predict", "nowhere", "--data", "x.json", "--out", "y"), "nowhere: no such folder"),
        (("report", "nowhere", "--out", "y"), "no such folder"),
        (("run", "CONFIG", "--out", "tiny.yaml"), "is a file"),
        (("predict", "nowhere", "--data", "x.json", "--out", "tiny.yaml/x"), "is a file"),
        (("show", "data", "nowhere"), "no such file"),
        (("show", "data", "sample:dev", "--set", "windows.stride=900"), "leaves no room"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, told, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = call(*(config if each == "CONFIG" else each for each in arguments))
    assert shown.exit_code == 2
    assert told in shown.stderr
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1


def test_the_experiments_that_ship_are_listed_and_printed():
    shipped = Path(bertvision.__file__).parent / "configs"
    names = {str(path.relative_to(shipped).with_suffix("")) for path in shipped.rglob("*.yaml")}
    assert "squad2/minilm" in names
    listed = call("show", "experiments")
    assert {line.split()[0] for line in listed.stdout.splitlines()} == names
    about = (shipped / "squad2" / "minilm.yaml").read_text().partition("\n")[0].removeprefix("# ")
    assert about in listed.stdout  # whole, where another program reads it
    assert set(json.loads(call("show", "experiments", "--json").stdout)) == names
    text = (shipped / "squad2" / "minilm.yaml").read_text()
    for name in ("squad2/minilm", "configs/squad2/minilm.yaml"):
        assert call("show", "experiments", name).stdout == text


def test_configs_that_there_are_not_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "did you mean `squad2/minilm`?" in call("show", "experiments", "squad2/mini_lm").stderr
    assert "see `bertvision show experiments`" in call("show", "experiments", "zzz").stderr
    (tmp_path / "mine.yaml").write_text("task: squad2")
    assert "no experiment 'mine.yaml' comes with the package" in call("show", "experiments", "mine.yaml").stderr
    assert "or a name that `bertvision show experiments` lists" in call("run", "squad2/mini_lm").stderr


@pytest.mark.parametrize("name", ["squad2/minilm", "squad2/minilm.yaml", "configs/squad2/minilm.yaml"])
def test_an_experiment_that_ships_is_named_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_experiment(Path(name)).name == "minilm"
    own = tmp_path / name
    own.parent.mkdir(parents=True)
    own.write_text("name: mine")
    assert read_experiment(Path(name)).name == "mine"


@pytest.mark.parametrize("until", [(), ("--until", "encoder"), ("--until", "heads")])
def test_a_run_can_be_asked_to_be_deterministic(config, tmp_path, until):
    shown = call("run", config, "--out", tmp_path / "out", *until, "--set", "deterministic=true", "--quiet")
    assert shown.exit_code == 0, shown.output
    assert json.loads((tmp_path / "out" / "experiment.json").read_text())["deterministic"] is True
    assert (tmp_path / "out" / "heads").exists() == (until != ("--until", "encoder"))
    assert (tmp_path / "out" / "records").exists() == (until == ())


def test_warnings_about_data_are_shown(tmp_path, encoder_folder):
    (tmp_path / "rows.csv").write_text("text,label\ngood bread,good\nwarm soup,Good\n")
    given = ("show", "data", tmp_path / "rows.csv", "--task", "classification", "--encoder", encoder_folder)
    assert call(*given).stderr.startswith("warning: labels that differ only in how they are written")
    assert len(json.loads(call(*given, "--json").stdout)["notes"]) == 1
