"""A run that something happens to before a file operation of it: `make faults` tries all of them, the suite a few."""

import json
import os
import random
import shutil
import signal
import time
from contextlib import contextmanager

import pytest
from faults import content_of, disk_full, unsafe_renames, was_killed, watched
from safetensors import SafetensorError
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.errors import BertVisionError, FolderError
from bertvision.experiment import build_experiment
from bertvision.files import given_folder
from bertvision.predictions.files import PREDICTION_FILES
from bertvision.progress import Silent
from bertvision.serving.predict import predict_file
from bertvision.stages.run import run, run_finetune, run_train_heads
from bertvision.tasks import TASKS

pytestmark = pytest.mark.flow
FEW = 6  # moments of a run that the suite tries
SHARES = 8  # of all moments, each a test of its own, so that processes can share them
STAGES = {"finetune": run_finetune, "heads": run_train_heads, "predict": run}
PARTS = ["", "encoder", "heads", "predictions", "records", "unfinished"]
ONE_LINE = (BertVisionError, OSError, SafetensorError)  # what the command line prints in one line


@pytest.fixture(scope="module", autouse=True)
def commit():
    """Records name a commit without asking git for it a dozen times a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTVISION_COMMIT", "0" * 40)
        yield


@pytest.fixture(scope="module")
def experiment(saving_always):
    return build_experiment(saving_always)


@pytest.fixture(scope="module")
def whole(experiment, tmp_path_factory):
    """What a run holds that nothing happened to, and what it did."""
    folder = tmp_path_factory.mktemp("whole")
    with watched(folder) as watch:
        run(experiment, folder / "out")
    return content_of(folder / "out"), watch.operations


@pytest.fixture
def ends_the_same(experiment, tmp_path, whole):
    """Return a function of something that happens to a run: whether the run ends the same when it is run again."""

    def check(happen):
        happen(tmp_path / "out")
        run(experiment, tmp_path / "out")
        is_same = content_of(tmp_path / "out") == whole[0]
        shutil.rmtree(tmp_path / "out")
        return is_same

    return check


def spread_over(operations, count):
    return [len(operations) * place // count for place in range(count)]


def kill(experiment, at):
    def happen(out):
        assert was_killed(out.parent, lambda: run(experiment, out), at)

    return happen


def fill_disk(experiment, at):
    def happen(out):
        try:
            with watched(out.parent, at, disk_full):
                run(experiment, out)
        except ONE_LINE:
            pass

    return happen


def remove(experiment, whole, at, part):
    def happen(out):
        gone = []

        def fault(operation):
            if not gone and (out / part).exists():
                gone.append(shutil.rmtree(out / part))

        try:
            with watched(out.parent, at, fault):
                run(experiment, out)
        except ONE_LINE:
            return
        assert content_of(out) == whole[0]  # nobody was told that anything is missing

    return happen


def test_a_run_that_is_killed_before_a_file_operation_goes_on_and_ends_the_same(experiment, whole, ends_the_same):
    moments = spread_over(whole[1], FEW)
    assert [whole[1][at] for at in moments if not ends_the_same(kill(experiment, at))] == []


def test_whatever_gets_a_name_is_on_the_disk_by_then_and_its_name_is_soon(whole):
    assert sum(each.what in ("rename", "swap") for each in whole[1]) > 50
    assert unsafe_renames(whole[1]) == []


@pytest.mark.parametrize("part", ["", "heads", "unfinished"])
def test_a_folder_that_is_removed_during_a_run_is_an_error_or_made_again(experiment, whole, ends_the_same, part):
    at = next(n for n, each in enumerate(whole[1]) if each.path.name == ".last_linear.bv-part" and n > 300)
    assert ends_the_same(remove(experiment, whole, at, part))


def test_progress_that_a_kill_left_is_not_gone_on_with_by_another_run(experiment, tmp_path, whole):
    """The removal of an unfinished stage is killed, its results are deleted, and another learning rate is asked for."""
    removal = next(n for n, each in enumerate(whole[1]) if each.what == "remove" and "unfinished" in each.path.parts)
    other = experiment.model_copy(update={"finetune": experiment.finetune.model_copy(update={"lr": 1e-2})})
    run_finetune(other, tmp_path / "other")
    for at in (removal - 2, removal + 2):
        assert was_killed(tmp_path, lambda: run_finetune(experiment, tmp_path / "out"), at)
        shutil.rmtree(tmp_path / "out" / "encoder")
        try:
            run_finetune(other, tmp_path / "out")
        except FolderError as error:
            assert "lr was 0.001 and is now 0.01" in str(error)  # noqa: PT017 (either is right)
        else:
            assert content_of(tmp_path / "out" / "encoder") == content_of(tmp_path / "other" / "encoder")
        shutil.rmtree(tmp_path / "out")


@pytest.mark.faults
@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_that_is_killed_before_any_file_operation_goes_on_and_ends_the_same(
    experiment, whole, ends_the_same, share
):
    moments = range(share, len(whole[1]), SHARES)
    assert [whole[1][at] for at in moments if not ends_the_same(kill(experiment, at))] == []


@pytest.mark.faults
@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_on_a_disk_that_is_full_from_any_moment_on_goes_on_with_more_room(
    experiment, whole, ends_the_same, share
):
    moments = range(share, len(whole[1]), SHARES)
    assert [whole[1][at] for at in moments if not ends_the_same(fill_disk(experiment, at))] == []


@pytest.mark.faults
@pytest.mark.parametrize("part", PARTS)
def test_a_folder_that_is_removed_at_some_moment_is_an_error_or_made_again(experiment, whole, ends_the_same, part):
    moments = spread_over(whole[1], 60)
    assert [whole[1][at] for at in moments if not ends_the_same(remove(experiment, whole, at, part))] == []


@pytest.mark.faults
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_killed_at_a_random_moment_goes_on_and_ends_the_same(
    experiment, tmp_path, ends_the_same, stage
):
    started = time.perf_counter()
    run(experiment, tmp_path / "timed")
    seconds, moments = time.perf_counter() - started, random.Random(stage)

    def happen(out):
        kill_after(moments.uniform(0, seconds), lambda: STAGES[stage](experiment, out))

    assert all(ends_the_same(happen) for _ in range(20))


def kill_after(seconds, action):
    child = os.fork()
    if child == 0:
        action()
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.fixture(autouse=True)
def interruptible():
    """A shell lets its jobs in the background, such as this process may be, ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class SignalAt(Silent):
    """Progress that sends this process signals while a step of some work is under way."""

    def __init__(self, work, step, *signals):
        self._work, self._left, self._signals = work, step, signals

    @contextmanager
    def bar(self, what, total):
        with super().bar(what, total) as silent:
            yield self if what.startswith(self._work) else silent

    def advance(self, amount, note=None):
        self._left -= note is not None  # a bar is first told what was done before
        if self._left == 0:
            for each in self._signals:
                signal.raise_signal(each)


@pytest.fixture(scope="module")
def saving_never(saving_always):
    """Settings of a run of four steps an epoch that saves when a signal comes and never else."""
    seldom = {"batch": {"windows": 2}, "save_every": 1e6}
    return {**saving_always, **{stage: {**saving_always[stage], **seldom} for stage in ("finetune", "heads")}}


@pytest.fixture(scope="module")
def uninterrupted(saving_never, tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted") / "out"
    run_train_heads(build_experiment(saving_never), out)
    return content_of(out)


@pytest.fixture
def call(saving_never, tmp_path, monkeypatch, signals_act):
    """Return a function that trains as the command line does, reporting to what is given."""
    (tmp_path / "tiny.yaml").write_text(json.dumps(saving_never))

    def train(progress):
        monkeypatch.setattr("bertvision.cli.train.progress_for", lambda quiet: progress)
        given = [str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]
        return CliRunner().invoke(app, ["run", *given, "--until", "heads"])

    return train


@pytest.mark.parametrize(
    ("work", "step", "number", "code", "stage", "position"),
    [
        ("fine-tune", 2, signal.SIGHUP, 129, "finetune", {"step": 2}),  # where an encoder is kept
        ("fine-tune", 3, signal.SIGTERM, 143, "finetune", {"step": 3}),
        ("fine-tune", 4, signal.SIGINT, 130, "finetune", {"step": 4}),
        ("train 1 head, epoch 1", 4, signal.SIGHUP, 129, "heads-0.5", {"epoch": 0, "step": 4}),
        ("train 1 head, epoch 2", 3, signal.SIGINT, 130, "heads-0.5", {"epoch": 1, "step": 3}),
    ],
)
def test_a_training_that_a_signal_stops_goes_on_from_that_very_step_and_ends_the_same(
    call, tmp_path, uninterrupted, work, step, number, code, stage, position
):
    stopped, saved = call(SignalAt(work, step, number)), tmp_path / "out" / "unfinished" / stage / "progress"
    assert stopped.stderr == f"stopped; progress is saved in {saved}, and the same run goes on from there\n"
    assert stopped.exit_code == code
    assert json.loads((saved / "position.json").read_text()).items() >= position.items()
    assert call(Silent()).exit_code == 0
    assert content_of(tmp_path / "out") == uninterrupted


def test_a_second_signal_ends_a_training_at_once(call, tmp_path):
    stopped = call(SignalAt("fine-tune", 3, signal.SIGTERM, signal.SIGINT))
    assert stopped.stderr.startswith("stopped; the same run goes on from its last saving")
    assert stopped.exit_code == 130
    assert not (tmp_path / "out" / "unfinished" / "finetune" / "progress").exists()


@pytest.mark.usefixtures("signals_act")
@pytest.mark.parametrize("work", ["fine-tune", "train 1 head, epoch 1"])
def test_a_python_caller_gets_the_interrupt_once_all_is_saved(saving_never, tmp_path, work):
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(build_experiment(saving_never), tmp_path / "out", SignalAt(work, 1, signal.SIGINT))
    (saved,) = (tmp_path / "out" / "unfinished").glob("*/progress")
    assert stopped.value.__notes__ == [f"progress is saved in {saved}, and the same run goes on from there"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("last_stage", "name"),
    [
        ("encoder", "encoder/0.5/model.safetensors"),
        ("encoder", "encoder/0.5/tokenizer.json"),
        ("heads", "encoder/1/head.safetensors"),
        ("heads", "heads/1/last_linear/head.safetensors"),
        ("heads", "heads/1/last_linear/training.json"),
    ],
)
def test_a_bit_that_flips_between_two_stages_is_told_in_one_line(experiment, models, tmp_path, last_stage, name):
    out = tmp_path / "out"
    shutil.copytree(models[0].parents[1], out)
    for later in {"encoder": ("heads", "predictions", "records"), "heads": ("predictions", "records")}[last_stage]:
        shutil.rmtree(out / later)
    flip_a_bit(out / name)
    with pytest.raises(FolderError) as caught:
        run(experiment, out)
    assert str(caught.value).startswith(f"{out / name}: damaged")
    assert "\n" not in str(caught.value)


def test_a_bit_that_flips_in_what_a_stopped_stage_left_is_told_in_one_line(experiment, tmp_path, whole):
    progress = tmp_path / "out" / "unfinished" / "finetune" / "progress"
    at = next(n for n, each in enumerate(whole[1]) if each.path.name == ".1.bv-part")
    assert was_killed(tmp_path, lambda: run(experiment, tmp_path / "out"), at)
    assert {path.name for path in progress.iterdir()} > {"position.json", "0.model.safetensors"}
    for path in sorted(progress.iterdir()):
        content = path.read_bytes()
        flip_a_bit(path)
        with pytest.raises(FolderError, match=f"{progress}") as caught:
            run(experiment, tmp_path / "out")
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
    run(experiment, tmp_path / "out")
    assert content_of(tmp_path / "out") == whole[0]


@pytest.fixture(scope="module")
def models(experiment, tmp_path_factory):
    """Two models that answer differently."""
    out = tmp_path_factory.mktemp("models")
    run(experiment, out)
    return out / "encoder" / "0.5", out / "heads" / "1" / "last_linear"


@pytest.fixture
def finished(models, tmp_path):
    """A copy of a finished run."""
    shutil.copytree(models[0].parents[1], tmp_path / "out")
    return tmp_path / "out"


def test_a_score_that_was_edited_is_neither_reported_nor_taken_for_a_finished_one(experiment, finished, tmp_path):
    path = finished / "records" / "last_linear-1-seed1.json"
    record = json.loads(path.read_text())
    record["scores"]["f1"] = 99.5
    path.write_text(json.dumps(record))
    shown = CliRunner().invoke(app, ["report", str(finished), "--out", str(tmp_path / "report")])
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"error: {path}: damaged (sha256 ")
    assert shown.stderr.count("\n") == 1
    with pytest.raises(FolderError, match=f"{path}: damaged"):
        run(experiment, finished)


def test_records_that_were_copied_without_their_hashes_are_reported(finished, tmp_path):
    (finished / "records" / "sha256.json").unlink()
    shown = CliRunner().invoke(app, ["report", str(finished), "--out", str(tmp_path / "report")])
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("settings_fingerprint", ["run", "predict", "ensemble"])
def test_predictions_that_were_damaged_are_not_judged(experiment, models, finished, tmp_path, settings_fingerprint):
    data = str(experiment.data.dev)
    places = [finished / "predictions" / "1" / row for row in ("encoder", "last_linear")]
    if settings_fingerprint == "predict":
        predict_file(models[0], data, tmp_path / "answers")
        places = [tmp_path / "answers"]
    if settings_fingerprint == "ensemble":
        told = ["ensemble", *map(str, places), "--data", data, "--out", str(tmp_path / "answers")]
        assert CliRunner().invoke(app, told).exit_code == 0
        places = [tmp_path / "answers"]
    command = ["score", "squad2", "--gold", data, "--predictions", str(places[0])]
    assert CliRunner().invoke(app, command).exit_code == 0
    path = places[0] / "predictions.json"
    answers = json.loads(path.read_text())
    path.write_text(json.dumps(dict.fromkeys(answers, "")))
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"error: {path}: damaged (sha256 ")
    assert shown.stderr.count("\n") == 1


def test_predictions_are_one_models_whenever_they_are_killed(experiment, models, tmp_path):
    old, new, out = tmp_path / "old", tmp_path / "new", tmp_path / "out"
    for model, place in zip(models, (old, new), strict=True):
        predict_file(model, experiment.data.dev, place)
    assert content_of(old) != content_of(new)
    found, at = [], 0
    while True:
        shutil.copytree(old, out)
        if not was_killed(tmp_path, lambda: predict_file(models[1], experiment.data.dev, out), at):
            break
        found.append(content_of(out))
        shutil.rmtree(out)
        at += 4
    assert (found[0], found[-1]) == (content_of(old), content_of(new))
    assert all(each in (found[0], found[-1]) for each in found)
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new", "out"}


def test_of_two_predictions_into_one_folder_the_second_is_refused(experiment, models, tmp_path):
    with given_folder(tmp_path / "out"), pytest.raises(FolderError, match="another bertvision is working in it"):
        predict_file(models[0], experiment.data.dev, tmp_path / "out")


def test_of_another_model_no_file_stays_in_a_folder_of_predictions(experiment, models, tmp_path):
    for name in ("nbest_predictions.json", "STS-B.tsv", "predictions.conll", "mine.txt"):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_text("old")
    predict_file(models[0], experiment.data.dev, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("predictions.json", "probabilities.json", "null_odds.json", "best_spans.json", "logits.safetensors"),
        *("official", "sha256.json", "mine.txt"),
    }


def test_every_file_that_a_task_submits_belongs_to_a_folder_of_predictions():
    names = {name for task in TASKS.values() for name in task.submission.values()}
    assert len(names) > 5
    assert names < set(PREDICTION_FILES)
