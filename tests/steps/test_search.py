"""Searches on a tiny BERT: trials in groups, scored on held-out rows, going on, and the best one's experiment."""

import csv
import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import yaml
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.data.held_out import write_squad
from bertvision.errors import DataError, FolderError, MissingExtraError, SettingsError
from bertvision.experiment import build_experiment, read_experiment, to_settings
from bertvision.heads import training
from bertvision.progress import Silent
from bertvision.records import read_search_record
from bertvision.search_space import Range, Space
from bertvision.settings import shipped_configs
from bertvision.states.live import LiveStates
from bertvision.steps.optuna_study import ask, count_done, tell
from bertvision.steps.run import run
from bertvision.steps.search import SearchAsked, search

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
            "group": 3,
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
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=7))
    complete = [trial for trial in record.trials if trial.state == "complete"]
    assert len(record.trials) == 7
    assert record.best_trial.score == max(trial.score for trial in complete)
    best = read_experiment(tmp_path / "out" / "best.yaml")
    again = run(best, tmp_path / "again")
    row = next(each for each in again if each.row == f"trial_{record.best}")
    # The same head from the same start in the same order, beside others and alone; three decimals are a row in 10^5.
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)
    assert row.scores["accuracy"] == pytest.approx(record.dev_scores["accuracy"], abs=1e-3)
    assert record.dev_reads == 1
    assert record.provenance.versions["optuna"] == optuna.__version__


def test_a_search_says_what_scores_on_its_held_out_rows_are_worth(settings, tmp_path):
    """15 of 60 rows; scipy's binomtest(7, 15) is 21.27 to 73.41."""
    progress = Heard()
    search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=1), progress)
    (line,) = (each for each in progress.lines if each.startswith("trials are scored on"))
    assert line.startswith("trials are scored on 15 held-out rows: with 7 of 15 right, the 95% interval is 21 to 73%")


def test_a_head_without_a_width_is_told_without_one(settings, tmp_path):
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=6))
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
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=6))
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
    search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=5))
    assert finished
    assert set(finished) == {5}


def test_a_search_that_was_killed_goes_on_with_the_same_command(settings, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    command = [
        sys.executable,
        "-m",
        "bertvision",
        "search",
        str(tmp_path / "tiny.yaml"),
        "--out",
        str(tmp_path / "out"),
    ]
    command += ["--trials", "9", "--quiet"]
    dying = [sys.executable, "-c", KILLED, *command[3:]]
    assert subprocess.run(dying, check=False, env=environment()).returncode == -signal.SIGKILL
    before = opened(tmp_path / "out")
    cut_short = [each.params for each in before if each.state == optuna.trial.TrialState.RUNNING]
    assert [len(cut_short), sum(each.state.is_finished() for each in before)] == [3, 3]
    subprocess.run(command, check=True, env=environment())
    record = read_search_record(tmp_path / "out")
    assert len(record.trials) == 9
    assert all(any(params.items() <= trial.settings.items() for trial in record.trials) for params in cut_short)


KILLED = """
import os, signal, sys
from bertvision.steps import trials
train, calls = trials.HeadTrials._train, []
def dying(*args):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    train(*args)
trials.HeadTrials._train = dying
from bertvision.cli import main
main()
"""


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def test_two_workers_work_on_one_file(settings, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    outs = [tmp_path / "one", tmp_path / "two"]
    command = [sys.executable, "-m", "bertvision", "search", str(tmp_path / "tiny.yaml"), "--trials", "12", "--quiet"]
    workers = [subprocess.Popen([*command, "--storage", url, "--out", str(out)], env=environment()) for out in outs]
    assert [worker.wait() for worker in workers] == [0, 0]
    records = [read_search_record(out) for out in outs if (out / "search.json").exists()]
    assert records  # the last one at least has run the best
    # Two that ask at the same moment may ask for one more than is wanted.
    assert all(12 <= len(record.trials) <= 13 for record in records)
    assert all(len({trial.number for trial in record.trials}) == len(record.trials) for record in records)


RATES = Space("heads", {"lr": Range(low=1e-4, high=1e-2)}, {})


def test_workers_that_ask_by_turns_ask_for_no_more_than_is_wanted():
    storage = optuna.storages.InMemoryStorage()
    other = optuna.create_study(study_name="shared", storage=storage)

    class Busy(optuna.samplers.RandomSampler):
        def before_trial(self, study, trial):
            other.ask()

    study = optuna.load_study(study_name="shared", storage=storage, sampler=Busy())
    assert len(ask(study, RATES, group=4, wanted=5)) == 3
    assert len(study.trials) == 6  # the other one asked last
    assert ask(study, RATES, group=4, wanted=5) == []


def test_a_trial_that_ends_while_trials_are_counted_counts(monkeypatch):
    study = optuna.create_study(direction="maximize")
    (asked,) = ask(study, RATES, 1, 1)
    read = study.get_trials

    def read_and_end(*given, **more):
        found = read(*given, **more)
        monkeypatch.setattr(study, "get_trials", read)
        study.tell(asked.own.number, 50.0)
        return found

    monkeypatch.setattr(study, "get_trials", read_and_end)
    assert count_done(study) == 1


def test_a_trial_that_another_worker_has_told_ends_and_keeps_what_was_told():
    """SQLite, which locks no row, lets two workers take one waiting trial."""
    study = optuna.create_study(direction="maximize")
    (asked,) = ask(study, RATES, 1, 1)
    study.tell(asked.own.number, 50.0)
    asked.trial.add(1, 3, 20.0)
    assert asked.trial.note
    tell(study, asked, group=0, score=None)
    assert study.best_value == 50.0


def test_a_hopeless_trial_ends_early_and_the_others_go_on(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda self, study, trial: trial.number == 1)
    steps, step = [], training.Group.step
    monkeypatch.setattr(
        training.Group,
        "step",
        lambda self, batches: steps.extend(each.name for each in self.learners) or step(self, batches),
    )
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=3))
    assert [(trial.state, len(trial.scores)) for trial in record.trials] == [
        ("complete", 3),
        ("pruned", 1),
        ("complete", 3),
    ]
    assert record.trials[1].note == "pruned after epoch 1"
    assert record.best != 1
    in_search = {
        name: steps.count(name) for name in ("trial_0", "trial_1", "trial_2") if name != f"trial_{record.best}"
    }
    assert 3 * in_search["trial_1"] == next(count for name, count in in_search.items() if name != "trial_1")


def test_trials_that_diverge_are_pruned_and_alone_are_an_error(settings, tmp_path):
    settings["search"] |= {"lr": [1e30], "head": ["mix4"], "dropout": [0.0], "weight_decay": [0.0]}
    from bertvision.errors import TrainingError

    with pytest.raises(TrainingError, match=r"none of 3 trials has a score; search lower rates"):
        search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=3))


def test_a_grid_tries_every_value_once(settings, tmp_path):
    settings["search"] = {
        "sampler": "grid",
        "group": 2,
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
    settings["search"] = {"of": "finetune", "lr": [1e-3, 1e-4], "batch": [8], "epochs": [1, 2], "seed": [1, 2]}
    settings["finetune"] = {"optim": {"schedule": "linear"}}
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=3))
    best = read_experiment(tmp_path / "out" / "best.yaml")
    asked = record.best_trial.settings
    assert best.finetune.lr == asked["lr"]
    assert best.finetune.fractions == (asked["epochs"],)
    assert best.seeds == (asked["seed"],)
    assert [len(trial.scores) for trial in record.trials] == [trial.settings["epochs"] for trial in record.trials]
    row = next(each for each in run(best, tmp_path / "again") if each.row == "encoder")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_heads_are_searched_on_the_tuned_encoder_of_their_seed(settings, tmp_path):
    settings["finetune"] = {"fractions": [0.5, 1], "batch": {"windows": 8}, "lr": 1e-3}
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=4))
    best = read_experiment(tmp_path / "out" / "best.yaml")
    assert best.finetune.fractions == (1.0,)
    row = next(each for each in run(best, tmp_path / "again") if each.row == f"trial_{record.best}")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_another_search_in_the_same_folder_is_refused(settings, tmp_path):
    search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=2))
    with pytest.raises(FolderError, match=r"holds a search with other settings \(experiment.heads.epochs was 3 and is"):
        search(build_experiment(settings, ["heads.epochs=2"]), tmp_path / "out", SearchAsked(trials=4))
    write_rows(Path(settings["data"]["train"]), 70)
    with pytest.raises(FolderError, match=r"holds a search with other settings \(train was "):
        search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=4))


def test_more_trials_go_on_and_say_how_often_dev_was_read(settings, tmp_path):
    asked = build_experiment(settings)
    first = search(asked, tmp_path / "out", SearchAsked(trials=2))
    again = search(asked, tmp_path / "out", SearchAsked(trials=2))
    assert again == first
    more = search(asked, tmp_path / "out", SearchAsked(trials=8))
    assert len(more.trials) == 8
    assert more.dev_reads == (1 if more.best == first.best else 2)


def test_no_group_but_the_first_begins_after_the_minutes(settings, tmp_path):
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=60, minutes=1e-9))
    assert len(record.trials) == 3
    assert record.data["dev"].name == settings["data"]["dev"]


def test_layers_that_the_encoder_has_not_are_told_at_the_start(settings, tmp_path):
    settings["search"]["layers"] = [[0, 3]]
    with pytest.raises(
        SettingsError, match=r"search.layers: '0,3', and the encoder has the states 0 to 2; leave it out"
    ):
        search(build_experiment(settings), tmp_path / "out")


def test_a_storage_that_cannot_be_opened_is_told_without_its_password(settings, tmp_path):
    asked = SearchAsked(storage="nosuch://me:secret@host/db")
    with pytest.raises(SettingsError, match=r"--storage nosuch://me:\*\*\*@host/db") as told:
        search(build_experiment(settings), tmp_path / "out", asked)
    assert "secret" not in str(told.value)


def test_a_storage_that_cannot_be_opened_leaves_no_connection_behind(settings, tmp_path):
    (tmp_path / "junk.db").write_bytes(b"not a database" * 100)
    with pytest.raises(SettingsError, match="file is not a database"):
        search(build_experiment(settings), tmp_path / "out", SearchAsked(storage=f"sqlite:///{tmp_path / 'junk.db'}"))
    gc.collect()  # from Python 3.13 on an open connection that is collected here warns, which is an error


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_trials_on_states_in_memory_score_what_a_run_scores(settings, tmp_path, share):
    settings |= {"states": "memory", "heads": {**settings["heads"], "share": share}}
    record = search(build_experiment(settings), tmp_path / "out", SearchAsked(trials=6))
    best = read_experiment(tmp_path / "out" / "best.yaml")
    row = next(each for each in run(best, tmp_path / "again") if each.row == f"trial_{record.best}")
    assert row.scores["held_out_accuracy"] == pytest.approx(record.best_trial.score, abs=1e-3)


def test_the_command_prints_the_best_trials_and_writes_what_it_found(settings, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    shown = CliRunner().invoke(
        app, ["search", str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out"), "--trials", "5", "--quiet"]
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
    assert "bertvision.steps.data" in modules
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
    row = next(each for each in run(best, tmp_path / "again") if each.row == f"trial_{record.best}")
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
