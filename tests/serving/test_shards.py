"""`bertvision predict` on shards: what is done, set aside and gone on with; the models are those of one file."""

import gzip
import json
import shutil
import subprocess
import sys
import threading

import pytest
from faults import content_of, was_killed
from typer.testing import CliRunner

import bertvision
from bertvision import run_folder
from bertvision.cli import app
from bertvision.errors import DataError, FolderError
from bertvision.files import locked
from bertvision.serving import shards as module
from bertvision.serving.predict import predict_file
from bertvision.serving.shards import predict_shards

CPU = {"device": "cpu"}
TEXTS = ["the weir was built", "hannah coyle", "in the river", "1887", "stone by stone", "who built the weir", "when"]


@pytest.fixture(scope="module")
def folder(make_shared):
    return make_shared("classification", ("bad", "good"))


@pytest.fixture
def write(tmp_path):
    """Write rows as a shard; gives a function of its name and rows, which may also be lines."""

    def write(name, rows):
        path = tmp_path / "shards" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        content = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def shards(write, tmp_path):
    """Three shards of the texts, one of them packed and in a folder of its own."""
    write("a.jsonl", [{"text": text} for text in TEXTS[:3]])
    write("more/b.jsonl.gz", [{"id": f"b{n}", "text": text} for n, text in enumerate(TEXTS[3:5])])
    write("c.csv", ["key,text", *(f"{n},{text}" for n, text in enumerate(TEXTS[5:]))])
    return tmp_path / "shards"


def read(path):
    content = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()]


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_every_shard_gets_one_of_predictions_that_are_the_models(folder, shards, tmp_path):
    out = tmp_path / "out"
    found = predict_shards(folder, [str(shards)], out, CPU)
    assert (found.rows, found.bad, len(found.shards)) == (7, 0, 3)
    done = [f"finished/{name}.json" for name in ("a.jsonl", "c.jsonl", "more/b.jsonl.gz")]
    assert names(out) == sorted([*done, "a.jsonl", "c.jsonl", "settings_fingerprint.json", "more/b.jsonl.gz"])
    lines = [*read(out / "a.jsonl"), *read(out / "more" / "b.jsonl.gz"), *read(out / "c.jsonl")]
    assert [(line["line"], line["id"]) for line in lines] == [
        *((1, "1"), (2, "2"), (3, "3"), (1, "b0"), (2, "b1"), (2, "2"), (3, "3"))
    ]
    expected = bertvision.load(folder, device="cpu")(TEXTS)
    assert [line["label"] for line in lines] == [each.label for each in expected]
    for line, each in zip(lines, expected, strict=True):
        assert line["probabilities"] == pytest.approx(each.probabilities, abs=2e-5)  # six digits; other batches


def test_a_chunk_more_or_less_changes_no_prediction(folder, write, tmp_path, monkeypatch):
    write("a.jsonl", [{"text": text} for text in TEXTS])
    predict_shards(folder, [str(tmp_path / "shards")], tmp_path / "one", CPU)
    monkeypatch.setitem(module.CHUNKS, "cpu", module.Chunk(rows=2, letters=10**6))
    predict_shards(folder, [str(tmp_path / "shards")], tmp_path / "several", CPU)
    one, several = (read(tmp_path / name / "a.jsonl") for name in ("one", "several"))
    assert [line["label"] for line in one] == [line["label"] for line in several]
    assert len(several) == 7


def test_bad_rows_are_set_aside_with_their_line_and_reason(folder, write, tmp_path):
    write("a.jsonl.gz", [{"text": "weir"}, "no JSON", {"text": " "}, {"text": "stone", "id": [1]}, {"text": "river"}])
    found = predict_shards(folder, [str(tmp_path / "shards")], tmp_path / "out", CPU)
    assert (found.rows, found.bad) == (2, 3)
    assert [line["line"] for line in read(tmp_path / "out" / "a.jsonl.gz")] == [1, 5]
    bad = read(tmp_path / "out" / "a.bad.jsonl.gz")
    assert [(line["line"], line["row"]) for line in bad] == [
        *((2, "no JSON"), (3, {"text": " "}), (4, {"text": "stone", "id": [1]}))
    ]
    for line, reason in zip(bad, ("not JSON", "column `text` is empty", "its id has type list"), strict=True):
        assert reason in line["reason"]


def test_a_job_that_is_killed_goes_on_and_ends_the_same(folder, shards, tmp_path):
    (shards / "a.jsonl").write_text((shards / "a.jsonl").read_text() + "bad\n")

    def predict():
        predict_shards(folder, [str(shards)], tmp_path / "out", CPU)

    def content():  # a lock of nobody's is taken by whoever comes next
        return {name: each for name, each in content_of(tmp_path / "out").items() if not name.endswith(".bv-lock")}

    predict()
    whole = content()
    shutil.rmtree(tmp_path / "out")
    at = kills = 0
    while was_killed(tmp_path / "out", predict, at):
        predict()
        assert content() == whole, at
        shutil.rmtree(tmp_path / "out")
        at, kills = at + 5, kills + 1
    assert kills > 8


def test_a_finished_shard_is_left_alone_until_its_source_changes(folder, shards, write, tmp_path):
    out = tmp_path / "out"
    predict_shards(folder, [str(shards)], out, CPU)
    before = (out / "a.jsonl").stat().st_ino
    assert predict_shards(folder, [str(shards)], out, CPU).rows == 7
    assert (out / "a.jsonl").stat().st_ino == before
    source = (shards / "a.jsonl").read_text()
    (shards / "a.jsonl").write_text(source.replace("hannah", "coyle "))  # as many bytes
    assert predict_shards(folder, [str(shards)], out, CPU).rows == 7
    assert (out / "a.jsonl").stat().st_ino != before
    write("a.jsonl", [{"text": "weir"}])
    assert predict_shards(folder, [str(shards)], out, CPU).rows == 5
    assert len(read(out / "a.jsonl")) == 1


DAMAGES = {
    "emptied": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "a bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "gone": None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_finished_shard_that_was_damaged_is_answered_again(folder, shards, tmp_path, damage):
    out = tmp_path / "out"
    (shards / "a.jsonl").write_text((shards / "a.jsonl").read_text() + "bad\n")
    predict_shards(folder, [str(shards)], out, CPU)
    whole = content_of(out)
    paths = [path for path in out.rglob("*") if path.is_file() and path.name != "settings_fingerprint.json"]
    assert len(paths) == 7  # of three shards: what was written, that it was, and a bad row
    for path in paths:
        if DAMAGES[damage] is None:
            path.unlink()
        else:
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        found = predict_shards(folder, [str(shards)], out, CPU)
        assert (found.rows, found.bad) == (7, 1)
        assert content_of(out) == whole, path


def test_a_shard_that_another_process_has_is_left_to_it(folder, shards, tmp_path):
    out = tmp_path / "out"
    with locked(out, "a.jsonl"):
        found = predict_shards(folder, [str(shards)], out, CPU)
    assert (found.rows, found.busy) == (4, 1)
    assert predict_shards(folder, [str(shards)], out, CPU).rows == 7


def test_a_damaged_shard_keeps_no_other_from_being_done(folder, shards, tmp_path):
    out, packed = tmp_path / "out", shards / "more" / "b.jsonl.gz"
    content = packed.read_bytes()
    packed.write_bytes(content[:-20])
    with pytest.raises(DataError, match=r"b.jsonl.gz: the gzip file is damaged .* all others are done"):
        predict_shards(folder, [str(shards)], out, CPU)
    assert {"a.jsonl", "c.jsonl"} < set(names(out))
    assert "more/b.jsonl.gz" not in names(out)
    packed.write_bytes(content)
    assert predict_shards(folder, [str(shards)], out, CPU).rows == 7


def test_predictions_of_two_models_do_not_mix(folder, make_shared, shards, tmp_path):
    predict_shards(folder, [str(shards)], tmp_path / "out", CPU)
    with pytest.raises(FolderError, match="made by other settings"):
        predict_shards(make_shared("classification", ("no", "yes")), [str(shards)], tmp_path / "out", CPU)


def test_files_that_would_have_one_place_are_refused(folder, write, tmp_path):
    write("a.jsonl", [{"text": "weir"}])
    write("a.csv", ["text", "weir"])
    with pytest.raises(DataError, match="would both have their predictions in"):
        predict_shards(folder, [str(tmp_path / "shards")], tmp_path / "out", CPU)
    with pytest.raises(DataError, match="no such files"):
        predict_shards(folder, [str(tmp_path / "nowhere" / "*.jsonl")], tmp_path / "out", CPU)


def test_predictions_below_the_shards_are_no_shards(folder, shards):
    predict_shards(folder, [str(shards)], shards / "out", CPU)
    assert len(predict_shards(folder, [str(shards)], shards / "out", CPU).shards) == 3


def test_questions_have_the_answers_of_the_file(make_shared, squad_file, questions, write, tmp_path):
    model = make_shared()
    expected = {each.question_id: each for each in predict_file(model, str(squad_file()), settings=CPU).predictions}
    write("q.jsonl", [{"id": each.id, "question": each.text, "context": each.context} for each in questions])
    predict_shards(model, [str(tmp_path / "shards")], tmp_path / "out", CPU)
    lines = read(tmp_path / "out" / "q.jsonl")
    assert [line["id"] for line in lines] == [each.id for each in questions]
    for line in lines:
        assert line["answer"] == expected[line["id"]].text
        assert line["null_odds"] == pytest.approx(expected[line["id"]].null_odds, abs=1e-4)


@pytest.mark.parametrize(
    ("task", "labels", "row", "given"),
    [
        ("multilabel", ("wet", "dry", "old"), {"text": "the weir"}, ("the weir",)),
        ("regression", (), {"text": "the weir"}, ("the weir",)),
        ("answerability", ("answer", "no answer"), {"question": "who?", "context": "coyle"}, ("who?", "coyle")),
        ("rte", ("entailment", "not_entailment"), {"sentence1": "weir", "sentence2": "river"}, ("weir", "river")),
    ],
)
def test_rows_of_every_kind_are_answered_as_by_the_library(make_shared, write, tmp_path, task, labels, row, given):
    model = make_shared(task, labels)
    write("a.jsonl", [row])
    predict_shards(model, [str(tmp_path / "shards")], tmp_path / "out", CPU)
    (line,) = read(tmp_path / "out" / "a.jsonl")
    expected = bertvision.load(model, device="cpu")(*given)
    label = tuple(line["label"]) if isinstance(line["label"], list) else line["label"]
    assert label == (pytest.approx(expected.label, rel=1e-4) if task == "regression" else expected.label)


def test_an_ending_is_chosen_by_its_number(make_folder, write, tmp_path):
    model = make_folder("swag", ("0", "1", "2"), "xception_abbr_cls")
    endings = ["the weir", "the river", "stone"]
    write("a.jsonl", [{"ctx": "hannah built", "endings": endings}, {"ctx": "hannah", "endings": endings[:2]}])
    assert predict_shards(model, [str(tmp_path / "shards")], tmp_path / "out", CPU).bad == 1
    (line,) = read(tmp_path / "out" / "a.jsonl")
    expected = bertvision.load(model, device="cpu")("hannah built", endings).label
    assert endings[line["label"]] == expected
    assert "chooses among 3" in read(tmp_path / "out" / "a.bad.jsonl")[0]["reason"]


def test_words_are_tagged_whether_they_are_cut_already_or_not(make_shared, write, tmp_path):
    model = make_shared("ner", ("O", "B-PER", "I-PER"))
    write(
        "a.jsonl", [{"text": "hannah coyle built it."}, {"words": ["hannah", "coyle"]}, {"words": "hannah"}, {"a": 1}]
    )
    assert predict_shards(model, [str(tmp_path / "shards")], tmp_path / "out", CPU).bad == 2
    tagger = bertvision.load(model, device="cpu")
    expected = [tagger("hannah coyle built it."), *tagger.tag_words([["hannah", "coyle"]])]
    for line, each in zip(read(tmp_path / "out" / "a.jsonl"), expected, strict=True):
        assert line["words"] == [word.text for word in each.words]
        assert line["tags"] == [word.tag for word in each.words]


def test_the_command_takes_a_pattern_and_counts(folder, shards, tmp_path):
    given = ["predict", str(folder), "--data", str(shards / "*.jsonl"), "--data", str(shards / "c.csv")]
    shown = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out"), "--set", "device=cpu"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == f"5 rows in 2 shards, 0 bad rows set aside; predictions in {tmp_path / 'out'}\n"
    shown = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out"), "--set", "device=cpu", "--json"])
    counts = {"shards": 2, "rows": 5, "bad": 0, "cut": 0, "busy": 0}
    assert json.loads(shown.stdout) == {**counts, "out": str(tmp_path / "out")}
    assert "shards need a folder" in CliRunner().invoke(app, given).stderr


def test_two_that_begin_at_the_same_moment_write_the_folders_settings_once(folder, shards, tmp_path, monkeypatch):
    given = (folder, [str(shards)], tmp_path / "out", CPU)
    second = threading.Thread(target=predict_shards, args=given)
    came, writers = threading.Event(), []

    def write_settings(*arguments):
        if not writers:  # the second one begins while the first is at it
            writers.append(threading.current_thread())
            second.start()
            assert came.wait(timeout=60)
        else:
            writers.append(threading.current_thread())
        run_folder.write_settings(*arguments)

    def is_made(*arguments):
        found = run_folder.is_made(*arguments)
        if threading.current_thread() is second:
            came.set()
        return found

    monkeypatch.setattr(module, "write_settings", write_settings)
    monkeypatch.setattr(module, "is_made", is_made)
    predict_shards(*given)
    second.join()
    assert writers == [threading.current_thread()]
    assert len(read(tmp_path / "out" / "a.jsonl")) == 3


def test_two_processes_share_the_shards(folder, shards, tmp_path):
    given = [sys.executable, "-m", "bertvision", "predict", folder, "--data", shards, "--out", tmp_path / "out"]
    shown = subprocess.run(
        [*map(str, given), "--processes", "2", "--set", "device=cpu"], capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == f"7 rows in 3 shards, 0 bad rows set aside; predictions in {tmp_path / 'out'}\n"
    assert len(read(tmp_path / "out" / "a.jsonl")) == 3


def test_processes_are_for_shards(folder, shards):
    shown = CliRunner().invoke(app, ["predict", str(folder), "--data", str(shards / "a.jsonl"), "--processes", "2"])
    assert (shown.exit_code, "--processes and --ray are for shards" in shown.stderr) == (2, True)


def test_with_ray_so_many_actors_answer_the_shards(folder, shards, tmp_path, monkeypatch):
    given = ["predict", str(folder), "--data", str(shards), "--out", str(tmp_path / "out"), "--set", "device=cpu"]
    asked = []

    def predict_on_ray(*arguments, actors, **more):
        asked.append(actors)
        return predict_shards(*arguments, **more)

    monkeypatch.setattr("bertvision.serving.shards.predict_on_ray", predict_on_ray)
    shown = CliRunner().invoke(app, [*given, "--ray", "--processes", "3"])
    assert shown.stdout == f"7 rows in 3 shards, 0 bad rows set aside; predictions in {tmp_path / 'out'}\n"
    assert asked == [3]  # and no process was started for them


def test_without_ray_the_option_names_the_extra(folder, shards, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = CliRunner().invoke(app, ["predict", str(folder), "--data", str(shards), "--out", str(tmp_path), "--ray"])
    assert (shown.exit_code, "pip install 'bertvision[ray]'" in shown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("task", "labels", "needed"),
    [("squad2", (), "the columns `question` and `context`"), ("classification", ("a", "b"), "a column `text`")],
)
def test_rows_that_are_all_bad_end_in_an_error_that_names_the_columns(make_shared, tmp_path, task, labels, needed):
    (tmp_path / "texts").mkdir()
    for name in ("one.txt", "two.txt"):
        (tmp_path / "texts" / name).write_text("It rained.\nThe weir was built in 1887.\n")
    arguments = [make_shared(task, labels), "--data", tmp_path / "texts", "--out", tmp_path / "out"]
    shown = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert f"2 rows and none that can be used: a model of {task} needs {needed}" in shown.stderr
