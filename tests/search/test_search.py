"""Searches on a tiny BERT: trials in groups, scored on held-out rows, going on, and the best one's experiment."""

import csv
import gc
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import yaml
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.data.split import write_squad
from bertvision.errors import DataError, FolderError, MissingExtraError, SettingsError
from bertvision.experiment import build_experiment, read_experiment, to_settings
from bertvision.files import locked
from bertvision.progress import Silent
from bertvision.records import read_search_record
from bertvision.search.search import search
from bertvision.settings import shipped_configs
from bertvision.stages.run import run
from bertvision.states.live import LiveStates

pytestmark = pytest.mark.flow


class Heard(Silent):
    """Progress that keeps what is said."""

    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)


PLACES = ("river", "weir", "stone", "coyle", "hannah")


def write_rows(path, count, shift=0):
    """Write rows whose label is told by a word, no two alike."""
    words = ["the", "built", "by", "in", "was", "when"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for n in range(shift, shift + count):
            label = "yes" if n % 2 else "no"
            rest = " ".join(words[(n // step) % 6] for step in (1, 6, 36))
            writer.writerow([f"{rest} {PLACES[n % 5]} {'1887' if n % 2 else 'stone'}", label])
    return path


@pytest.fixture
def settings(saved_encoder, tmp_path):
    """Classes of rows on an encoder as given, three epochs."""
    return {
        "name": "tiny",
        "task": "classification",
        "data": {
            "train": str(write_rows(tmp_path / "train.csv", 60)),
            "dev": str(write_rows(tmp_path / "dev.csv", 20, shift=100)),
            "held_out": 0.25,
        },
        "encoder": str(saved_encoder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": []},
        "heads": {"epochs": 3, "batch": {"windows": 8}},
        "device": "cpu",
        "search": {
            "group_size": 3,
            "head": ["learned_pooling", "adapter_64_shared_skip", "mix4"],
            "width": [2, 4],
            "layers": ["all", [0, 2]],
            "lr": {"low": 1e-3, "high": 1e-1},
            "seed": [1, 2],
        },
    }


def opened(path):
    """Return the trials of a search's own file."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{path / 'search.db'}")
    trials = optuna.load_study(study_name="tiny", storage=storage).get_trials(deepcopy=False)
    storage.remove_session()
    storage.engine.dispose()
    return trials


def test_the_best_trial_on_held_out_rows_is_run_and_scores_what_it_scored(settings, tmp_path):
    record = search(build_experiment(settings), tmp_path / "out", trials=7)
    complete = [trial for trial in record.trials if trial.state == "complete"]
    assert len(record.trials) == 7
    assert record.best_trial.score == max(trial.score for trial in complete)
    best = read_experiment(tmp_path / "out" / "best.yaml")
    again = run(best, tmp_path / "again")
    row = next(each for each in again if each.model == f"trial_{record.best}")
    # The same head from the same start in the same order, beside others and alone; three decimals are a row in 10^5.
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)
    assert row.scores["accuracy"] == pytest.approx(record.dev_scores["accuracy"], abs=1e-3)
    assert record.dev_reads == 1
    assert record.provenance.versions["optuna"] == optuna.__version__


def test_a_search_says_what_scores_on_its_held_out_rows_are_worth(settings, tmp_path):
    """15 of 60 rows; scipy's binomtest(7, 15) is 21.27 to 73.41."""
    progress = Heard()
    search(build_experiment(settings), tmp_path / "out", trials=1, progress=progress)
    (line,) = (each for each in progress.lines if each.startswith("trials are scored on"))
    assert line.startswith("trials are scored on 15 held-out rows: with 7 of 15 right, the 95% interval is 21 to 73%")


def test_a_head_without_a_width_is_told_without_one(settings, tmp_path):
    record = search(build_experiment(settings), tmp_path / "out", trials=6)
    heads = {trial.settings["head"]: "width" in trial.settings for trial in record.trials}
    assert heads == {"learned_pooling": False, "adapter_64_shared_skip": True, "mix4": True}
    assert "width" not in record.importances  # not all have it
    with (tmp_path / "out" / "trials.csv").open(newline="") as file:
        told = {row["head"]: bool(row["width"]) for row in csv.DictReader(file)}
    assert told == heads


def test_trials_of_a_group_share_a_seed_and_one_pass_over_the_states(settings, tmp_path, monkeypatch):
    settings |= {"states": "live", "heads": {**settings["heads"], "epochs": 1, "baseline": False}}
    passes, epoch = [], LiveStates.epoch
    monkeypatch.setattr(LiveStates, "epoch", lambda *args, **more: passes.append(1) or epoch(*args, **more))
    record = search(build_experiment(settings), tmp_path / "out", trials=6)
    groups = {}
    for trial in record.trials:
        groups.setdefault(trial.group, []).append(trial.settings)
    assert [len(group) for group in groups.values()] == [3, 3]
    assert [{each["seed"] for each in group} for group in groups.values()] == [{1}, {2}]
    assert {each["layers"] for group in groups.values() for each in group} == {"all", "0,2"}
    assert len(passes) == 2 + 1  # a pass for each group, and one for the best when it is run


def test_dev_is_not_opened_before_the_trials_are_over(settings, tmp_path):
    dev, finished = settings["data"]["dev"], []

    def watch(event, args):
        if event == "open" and args[0] == dev:
            finished.append(len([each for each in opened(tmp_path / "out") if each.state.is_finished()]))

    sys.addaudithook(watch)
    search(build_experiment(settings), tmp_path / "out", trials=5)
    assert finished
    assert set(finished) == {5}


@pytest.fixture
def command(settings, tmp_path):
    """Return the arguments of a search of nine trials, in groups of three, in OUT."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    return lambda out, trials=9: [
        "search",
        str(tmp_path / "tiny.yaml"),
        "--out",
        str(out),
        "--set",
        f"search.trials={trials}",
        "-q",
    ]


def in_child(command, limit=None, kill_at=None):
    """Give a command in a process of its own, whose files may have so many bytes, and which may be killed.

    It is killed when it opens the study's file for that time. Return how it ended, and how often it opened the file.
    """
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        count = [0]

        def hear(event, given):
            if event == "sqlite3.connect":
                count[0] += 1
                if count[0] == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hear)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        shown = CliRunner().invoke(app, command)
        os.write(tells, json.dumps([shown.exit_code, shown.stderr, count[0]]).encode())
        os._exit(0)
    os.close(tells)
    with os.fdopen(told, "rb") as file:
        found = file.read()
    assert (os.waitpid(child, 0)[1] == 0) == bool(found)
    return json.loads(found) if found else [-signal.SIGKILL, "", kill_at]


def trials_of(out):
    """Return what a search tried and found, without its times."""
    record = json.loads((out / "search.json").read_text())
    tried = [
        {name: value for name, value in each.items() if name not in ("seconds", "group")} for each in record["trials"]
    ]
    return record["best"], record["dev_scores"], tried


def killed_at(command, tmp_path, moments):
    """Return at which of some moments a killed search does not go on to the trials of one that was not killed."""
    assert in_child(command(tmp_path / "whole"))[0] == 0
    expected, others = trials_of(tmp_path / "whole"), []
    for at in moments:
        assert in_child(command(tmp_path / "out"), kill_at=at)[0] == -signal.SIGKILL
        assert in_child(command(tmp_path / "out"))[:2] == [0, ""]
        if trials_of(tmp_path / "out") != expected:
            others.append(at)
        left = [path for path in (tmp_path / "out").rglob("*") if ".bv-" in path.name or path.name == "unfinished"]
        assert left == []
        shutil.rmtree(tmp_path / "out")
    return others


def test_a_search_that_was_killed_goes_on_to_the_same_trials_and_the_same_best(command, tmp_path):
    whole = in_child(command(tmp_path / "timed"))[2]
    assert killed_at(command, tmp_path, [whole // 3, whole // 2, 2 * whole // 3]) == []


@pytest.mark.faults
@pytest.mark.parametrize("share", range(4))
def test_a_search_that_is_killed_before_any_use_of_its_file_goes_on_to_the_same_trials(command, tmp_path, share):
    whole = in_child(command(tmp_path / "timed"))[2]
    assert killed_at(command, tmp_path, range(1 + share, whole, 4)) == []


def test_a_search_in_stages_draws_what_one_in_a_go_draws(command, tmp_path):
    for trials in (3, 6, 9):
        assert CliRunner().invoke(app, command(tmp_path / "stages", trials)).exit_code == 0
    assert CliRunner().invoke(app, command(tmp_path / "once")).exit_code == 0
    assert trials_of(tmp_path / "stages") == trials_of(tmp_path / "once")


def test_a_second_search_in_one_folder_is_refused(command, tmp_path):
    with locked(tmp_path / "out"):
        shown = CliRunner().invoke(app, command(tmp_path / "out"))
    assert shown.exit_code == 2
    assert "another bertvision is working in it" in shown.stderr


def test_a_search_whose_file_finds_no_room_is_told_in_one_line_and_goes_on_with_more(command, tmp_path):
    assert in_child(command(tmp_path / "out", 3))[0] == 0
    size = (tmp_path / "out" / "search.db").stat().st_size
    code, told, _ = in_child(command(tmp_path / "out", 60), limit=size)
    assert code == 2
    assert told.startswith(f"error: {tmp_path / 'out' / 'search.db'}: cannot be used as the file of a search")
    assert told.count("\n") == 1
    assert in_child(command(tmp_path / "out"))[:2] == [0, ""]


def test_a_file_that_holds_no_search_is_told_in_one_line(command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.db").write_bytes(b"not a database" * 100)
    shown = CliRunner().invoke(app, command(tmp_path / "out"))
    assert shown.exit_code == 2
    assert "search.db: cannot be used as the file of a search" in shown.stderr
    assert "file is not a database" in shown.stderr
    gc.collect()  # from Python 3.13 on an open connection that is collected here warns, which is an error


def test_a_trial_below_the_median_of_earlier_ones_ends_and_the_others_of_its_group_go_on(settings, tmp_path):
    settings["search"] |= {"lr": {"low": 1e-5, "high": 1e-1}, "head": ["mix4"]}
    record = search(build_experiment(settings), tmp_path / "out", trials=24)
    pruned = [trial for trial in record.trials if trial.note.startswith("pruned")]
    assert pruned
    for trial in record.trials:
        first = trial.number // 3 * 3
        complete = [each for each in record.trials if each.state == "complete" and each.number < first]
        below = [
            len(complete) >= 10
            and max(trial.scores[:epoch]) < statistics.median(each.scores[epoch - 1] for each in complete)
            for epoch in (1, 2, 3)
        ]
        epochs = below.index(True, 0, 2) + 1 if True in below[:2] else 3
        assert len(trial.scores) == epochs
        assert trial.note == ("" if epochs == 3 else f"pruned after epoch {epochs}")


def test_trials_that_diverge_are_pruned_and_alone_are_an_error(settings, tmp_path):
    settings["search"] |= {"lr": [1e30], "head": ["mix4"], "dropout": [0.0], "weight_decay": [0.0]}
    from bertvision.errors import TrainingError

    with pytest.raises(TrainingError, match=r"none of 3 trials has a score; search lower rates"):
        search(build_experiment(settings), tmp_path / "out", trials=3)


def test_a_grid_tries_every_value_once(settings, tmp_path):
    settings["search"] = {
        "sampler": "grid",
        "group_size": 2,
        "head": ["learned_pooling"],
        "lr": [1e-3, 1e-2],
        "weight_decay": [0.0],
        "width": [4],
        "dropout": [0.0],
        "layers": ["all", "last:1"],
        "seed": [1, 2],
    }
    record = search(build_experiment(settings), tmp_path / "out")
    tried = [(trial.settings["seed"], trial.settings["layers"], trial.settings["lr"]) for trial in record.trials]
    assert sorted(tried) == [(seed, word, lr) for seed in (1, 2) for word in ("all", "last:1") for lr in (1e-3, 1e-2)]
    assert len({trial.group for trial in record.trials}) == 8 // 2


def test_fine_tuning_is_searched_with_restarts(settings, tmp_path):
    settings["search"] = {"target": "finetune", "lr": [1e-3, 1e-4], "batch": [8], "epochs": [1, 2], "seed": [1, 2]}
    settings["finetune"] = {"optim": {"schedule": "linear"}}
    record = search(build_experiment(settings), tmp_path / "out", trials=3)
    best = read_experiment(tmp_path / "out" / "best.yaml")
    asked = record.best_trial.settings
    assert best.finetune.lr == asked["lr"]
    assert best.finetune.fractions == (asked["epochs"],)
    assert best.seeds == (asked["seed"],)
    assert [len(trial.scores) for trial in record.trials] == [trial.settings["epochs"] for trial in record.trials]
    row = next(each for each in run(best, tmp_path / "again") if each.model == "encoder")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_heads_are_searched_on_the_tuned_encoder_of_their_seed(settings, tmp_path):
    settings["finetune"] = {"fractions": [0.5, 1], "batch": {"windows": 8}, "lr": 1e-3}
    record = search(build_experiment(settings), tmp_path / "out", trials=4)
    best = read_experiment(tmp_path / "out" / "best.yaml")
    assert best.finetune.fractions == (1.0,)
    row = next(each for each in run(best, tmp_path / "again") if each.model == f"trial_{record.best}")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_another_search_in_the_same_folder_is_refused(settings, tmp_path):
    search(build_experiment(settings), tmp_path / "out", trials=2)
    with pytest.raises(FolderError, match=r"holds a search with other settings \(experiment.heads.epochs was 3 and is"):
        search(build_experiment(settings, ["heads.epochs=2"]), tmp_path / "out", trials=4)
    write_rows(Path(settings["data"]["train"]), 70)
    with pytest.raises(FolderError, match=r"holds a search with other settings \(train was "):
        search(build_experiment(settings), tmp_path / "out", trials=4)


def test_more_trials_go_on_and_say_how_often_dev_was_read(settings, tmp_path):
    asked = build_experiment(settings)
    first = search(asked, tmp_path / "out", trials=2)
    again = search(asked, tmp_path / "out", trials=2)
    assert again == first
    more = search(asked, tmp_path / "out", trials=8)
    assert len(more.trials) == 8
    assert more.dev_reads == (1 if more.best == first.best else 2)


def test_no_group_but_the_first_begins_after_the_minutes(settings, tmp_path):
    record = search(build_experiment(settings), tmp_path / "out", trials=60, minutes=1e-9)
    assert len(record.trials) == 3
    assert record.data["dev"].name == settings["data"]["dev"]


def test_layers_that_the_encoder_has_not_are_told_at_the_start(settings, tmp_path):
    settings["search"]["layers"] = [[0, 3]]
    with pytest.raises(
        SettingsError, match=r"search.layers: '0,3', and the encoder has the states 0 to 2; leave it out"
    ):
        search(build_experiment(settings), tmp_path / "out")


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_trials_on_states_in_memory_score_what_a_run_scores(settings, tmp_path, share):
    settings |= {"states": "memory", "heads": {**settings["heads"], "data_fraction": share}}
    record = search(build_experiment(settings), tmp_path / "out", trials=6)
    best = read_experiment(tmp_path / "out" / "best.yaml")
    row = next(each for each in run(best, tmp_path / "again") if each.model == f"trial_{record.best}")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_the_command_prints_the_best_trials_and_writes_what_it_found(settings, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    shown = CliRunner().invoke(
        app, ["search", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--set", "search.trials=5", "-q"]
    )
    assert shown.exit_code == 0, shown.output
    assert "The best of 5 trials" in shown.output or "trial" in shown.output
    assert "on dev" in shown.output
    with (tmp_path / "out" / "trials.csv").open() as file:
        lines = list(csv.DictReader(file))
    record = read_search_record(tmp_path / "out")
    assert [int(line["trial"]) for line in lines] == [trial.number for trial in record.trials]
    assert all(float(line["lr"]) == trial.settings["lr"] for line, trial in zip(lines, record.trials, strict=True))
    assert (tmp_path / "out" / "importance.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "out" / "search.json").read_text())["best"] == record.best


def test_without_optuna_one_line_names_the_extra(settings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"optuna: pip install 'bertvision\[search\]'"):
        search(build_experiment(settings), tmp_path / "out")


def test_a_dev_file_that_is_not_there_is_told_at_the_start(settings, tmp_path):
    Path(settings["data"]["dev"]).unlink()
    with pytest.raises(DataError, match=r"dev.csv: no such file; data.dev is read at the end"):
        search(build_experiment(settings), tmp_path / "out")


@pytest.mark.parametrize("gone", ["train", "dev"])
def test_the_command_tells_a_missing_file_before_torch_is_imported(settings, tmp_path, gone):
    Path(settings["data"][gone]).unlink()
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    # -X importtime names every module on standard error as it is imported.
    command = [sys.executable, "-X", "importtime", "-m", "bertvision", "search", str(tmp_path / "tiny.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{gone}.csv: no such file" in done.stderr or f"{gone}.csv: cannot be read" in done.stderr
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "bertvision.stages.prepare" in modules
    assert not modules & {"torch", "transformers"}


def write_questions(path, questions):
    write_squad(path, [replace(each, title=f"article {n // 2}") for n, each in enumerate(questions)])


def write_sentences(path):
    """Write eight documents of one sentence each, with a name in every one."""
    words = ["hannah", "coyle", "weir", "stone", "river", "built", "was", "by"]
    documents = [f"{words[n]} {words[(n + 3) % 8]} {words[(n + 5) % 8]}" for n in range(8)]
    lines = [
        "".join(f"{word} {'B-X' if k == 0 else 'O'}\n" for k, word in enumerate(each.split())) for each in documents
    ]
    path.write_text("\n".join(f"-DOCSTART- O\n\n{each}" for each in lines))


@pytest.mark.parametrize(("task", "metric"), [("squad2", "f1"), ("ner", "f1")])
def test_questions_and_tags_are_searched_with_their_readouts(task, metric, saved_encoder, questions, tmp_path):
    path = tmp_path / ("data.json" if task == "squad2" else "data.conll")
    write_questions(path, questions) if task == "squad2" else write_sentences(path)
    settings = {
        "name": "tiny",
        "task": task,
        "data": {"train": str(path), "dev": str(path), "held_out": 0.25},
        "encoder": str(saved_encoder),
        "windows": {"max_length": 24, "stride": 4},
        "finetune": {"fractions": []},
        "heads": {"epochs": 2, "batch": {"windows": 4}},
        "states": "live",
        "device": "cpu",
        "search": {"head": ["learned_pooling", "mix4"], "width": [4], "layers": ["all", "last:2"], "sampler": "grid"},
    }
    settings["search"] |= {"lr": [1e-2], "weight_decay": [0.0], "dropout": [0.0]}
    settings["search"] |= {"readout": ["linear", "joint" if task == "squad2" else "bilstm"]}
    record = search(build_experiment(settings), tmp_path / "out")
    assert len(record.trials) == 2 * 2 * 2
    best = read_experiment(tmp_path / "out" / "best.yaml")
    row = next(each for each in run(best, tmp_path / "again") if each.model == f"trial_{record.best}")
    assert record.metric == metric
    assert row.scores[f"held_out_{metric}"] == pytest.approx(record.best_trial.score, abs=1e-3)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"head": ["laddr"]}, "did you mean `ladder`"),
        ({"head": ["regression"]}, "fitted at once and has nothing to search"),
        ({"lr": {"low": 1, "high": 0.1}}, "give the smaller one as `low`"),
        ({"layers": ["top"]}, r"expected all, last:4, every:2 or a list such as \[0, 6, 12\], got 'top'"),
        ({"epochs": [2]}, "`epochs` is searched with `of: finetune`"),
        ({"sampler": "grid", "lr": {"low": 0.1, "high": 1}}, "`lr` is a range; give a list"),
        ({"readout": ["joint"]}, "with readout joint is not for tasks of the kind class"),
        ({"widht": [2]}, "did you mean `width`"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(settings, given, told):
    with pytest.raises(SettingsError, match=told):
        build_experiment({**settings, "search": given})


@pytest.mark.parametrize("name", [name for name in shipped_configs() if not name.startswith("pretrain/")])
def test_short_settings_build_every_shipped_experiment_again(name):
    from bertvision.experiment import read_experiments

    for experiment in read_experiments(shipped_configs()[name]):
        settings = yaml.safe_load(yaml.safe_dump(to_settings(experiment)))
        assert build_experiment(settings) == experiment
