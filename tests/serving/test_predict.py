"""`bertvision predict`: tables of predictions, texts on the command line and by standard input."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

import bertvision
from bertvision.cli import app

TEXTS = ["the weir was built", 'hannah, "coyle"', "in the\nriver"]
LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def folder(make_shared):
    return make_shared("classification", LABELS)


@pytest.fixture(scope="module")
def expected(folder):
    """What the model says of the texts, by the library."""
    return bertvision.load(folder, device="cpu")(TEXTS)


def predict(*arguments, stdin=None):
    shown = CliRunner().invoke(app, ["predict", *map(str, arguments), "--set", "device=cpu"], input=stdin)
    assert shown.exit_code == 0, shown.output
    return shown


def refusal(*arguments, stdin=None):
    shown = CliRunner().invoke(app, ["predict", *map(str, arguments)], input=stdin)
    assert (shown.exit_code, shown.stdout) == (2, ""), shown.output
    return shown.stderr


def test_advice_names_what_predict_needs_and_what_a_model_can_do(folder, shared_reader, tmp_path):
    (tmp_path / "rows.csv").write_text("review,stars\nweir,5\n")
    told = refusal(folder, "--data", tmp_path / "rows.csv")
    assert "no column `text` in it" in told
    assert "say with data.columns.text=NAME which one holds it" in told
    assert "label" not in told
    (tmp_path / "words.conll").write_text("weir O\n")
    told = refusal(shared_reader.served.folder, "--data", tmp_path / "words.conll")
    assert "is a file of tagged words" in told
    assert "a task such as" not in told


def check(text, expected, name="text"):
    """Compare a table with what the library says."""
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [line[name] for line in lines] == TEXTS[: len(lines)]
    assert [line["label"] for line in lines] == [each.label for each in expected]
    for line, each in zip(lines, expected, strict=True):
        found = [float(line[f"probability of {label}"]) for label in LABELS]
        # Six digits are written, and a batch of other texts rounds otherwise.
        assert found == pytest.approx(list(each.probabilities.values()), abs=2e-5)


def test_texts_on_the_command_line_are_printed_as_csv(folder, expected):
    check(predict(folder, *TEXTS).stdout, expected)
    check(predict(folder, TEXTS[0]).stdout, expected[:1])


def test_as_json_probabilities_are_numbers(folder, expected):
    lines = json.loads(predict(folder, *TEXTS, "--json").stdout)
    assert [line["label"] for line in lines] == [each.label for each in expected]
    assert lines[0]["probability of good"] == pytest.approx(expected[0].probabilities["good"], abs=2e-5)


def test_a_file_is_answered_to_csv_that_train_could_read(folder, expected, tmp_path):
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, ("good", "bad", "bad"), strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = predict(folder, "--data", tmp_path / "rows.jsonl", "--out", tmp_path / "found.csv")
    check((tmp_path / "found.csv").read_text(), expected)
    right = sum(row["label"] == each.label for row, each in zip(rows, expected, strict=True))
    first, scores = shown.stdout.split("\n", 1)
    assert first == f"3 examples; predictions in {tmp_path / 'found.csv'}"
    assert json.loads(scores)["accuracy"] == pytest.approx(100 * right / 3)
    assert json.loads(predict(folder, "--data", tmp_path / "found.csv", "--out", tmp_path / "again", "--json").stdout)[
        "scores"
    ]["accuracy"] == pytest.approx(100)
    assert [path.name for path in tmp_path.glob("found*")] == ["found.csv"]


def test_bad_rows_that_are_left_out_are_counted(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nweir,good\n,bad\nriver,bad\n")
    drop = ("--set", "data.on_bad=drop")
    shown = predict(folder, "--data", tmp_path / "rows.csv", *drop)
    assert f"{tmp_path / 'rows.csv'}: 1 bad example left out, 2 kept; line 3: column `text` is empty" in shown.stderr


def test_a_bad_row_may_be_left_out_as_the_error_says(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nweir,good\n,bad\n")
    told = refusal(folder, "--data", tmp_path / "rows.csv")
    assert told.endswith("give a text, or leave it out with --set data.on_bad=drop\n")


def test_the_file_that_is_answered_is_not_replaced(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\nweir,good\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    for source in ("rows.csv", "rows.csv[:1]"):
        told = refusal(folder, "--data", tmp_path / source, "--out", tmp_path / "link.csv")
        assert "link.csv: is the file that is read; give --out another name" in told
    assert (tmp_path / "rows.csv").read_text() == "text,label\nweir,good\n"


def test_a_table_in_the_way_is_replaced_and_a_folder_is_not(folder, tmp_path):
    (tmp_path / "found.csv").write_text("old")
    predict(folder, "weir", "--out", tmp_path / "found.csv")
    assert (tmp_path / "found.csv").read_text().startswith("id,text,label,")
    (tmp_path / "folder.csv").mkdir()
    predict(folder, "weir", "--out", tmp_path / "folder.csv")
    assert (tmp_path / "folder.csv" / "predictions.json").is_file()


def test_standard_input_is_a_text_on_each_line(folder, expected):
    shown = predict(folder, "-", stdin=f"{TEXTS[0]}\r\n\n{TEXTS[1]}")
    check(shown.stdout, expected[:2])
    assert "standard input: 2 texts, one on each line\n" in shown.stderr


def test_a_table_by_standard_input_is_texts_as_any_other(folder):
    shown = predict(folder, "-", stdin="text,label\nthe weir,good\n")
    assert [line["text"] for line in csv.DictReader(io.StringIO(shown.stdout))] == ["text,label", "the weir,good"]


def test_standard_input_may_be_utf16(folder, expected):
    check(predict(folder, "-", stdin=f"{TEXTS[0]}\n{TEXTS[1]}\n".encode("utf-16")).stdout, expected[:2])


def test_a_table_has_the_users_own_names_of_columns(make_shared, tmp_path):
    pairs = make_shared("classification", LABELS, pair=True)
    (tmp_path / "rows.csv").write_text("two,one\nin 1887,the weir\n")
    shown = predict(pairs, "--data", tmp_path / "rows.csv")
    assert shown.stdout.splitlines()[0] == "id,one,two,label,probability of bad,probability of good,is_text_cut"
    assert shown.stdout.splitlines()[1].startswith("0,the weir,in 1887,")
    assert "reads two texts; give a table with the columns one and two" in refusal(pairs, "the weir")


@pytest.mark.parametrize(
    ("task", "labels"), [("classification", LABELS), ("multilabel", LABELS), ("regression", ()), ("swag", ("0", "1"))]
)
def test_a_text_that_is_longer_than_the_model_reads_is_marked_and_told(make_shared, tmp_path, task, labels):
    model = make_shared(task, labels)  # it reads 20 tokens, two of which are special, or three around an ending
    texts = ["stone " * 16, "stone " * 34] if task == "swag" else ["stone " * 18, "stone " * 36]
    more = {"ctx": "", "endings": ["weir", "was"]} if task == "swag" else {}
    rows = [{**more, "ctx" if task == "swag" else "text": text.strip()} for text in texts]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = predict(model, "--data", tmp_path / "rows.jsonl")
    assert [line["is_text_cut"] for line in csv.DictReader(io.StringIO(shown.stdout))] == ["False", "True"]
    assert "warning: 1 of 2 rows is longer than the 20 tokens that are read, and loses its end: " in shown.stderr
    left_out, share = (36, 47) if task == "swag" else (18, 47)  # of an ending's windows, 2 x 38 tokens; of 38
    assert f"{left_out} tokens, {share}% of it" in shown.stderr
    predict(model, "--data", tmp_path / "rows*.jsonl", "--out", tmp_path / "out")
    found = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert [line["is_text_cut"] for line in found] == [False, True]
    if task != "swag":
        assert [each.is_text_cut for each in bertvision.load(model, device="cpu")(texts)] == [False, True]


def test_labels_of_a_row_stand_in_one_cell(make_shared):
    model = make_shared("multilabel", ("wet", "dry", "old"))
    found = bertvision.load(model, device="cpu")("the weir")
    line = next(csv.DictReader(io.StringIO(predict(model, "the weir").stdout)))
    assert line["label"] == ", ".join(found.label)
    assert float(line["probability of dry"]) == pytest.approx(found.probabilities["dry"], abs=2e-5)


def test_numbers_have_no_probabilities(make_shared):
    model = make_shared("regression")
    line = next(csv.DictReader(io.StringIO(predict(model, "the weir").stdout)))
    assert list(line) == ["id", "text", "label", "is_text_cut"]
    assert float(line["label"]) == pytest.approx(bertvision.load(model, device="cpu")("the weir").label, rel=1e-4)


def test_questions_and_words_have_tables_too(make_shared, squad_file, questions, tmp_path):
    shown = predict(make_shared(), "--data", squad_file())
    lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [(line["id"], line["question"]) for line in lines] == [(each.id, each.text) for each in questions]
    assert {"answer", "null_odds"} <= set(lines[0])
    (tmp_path / "words.conll").write_text("hannah\ncoyle\n\nweir\n")
    lines = list(
        csv.DictReader(
            io.StringIO(predict(make_shared("ner", ("O", "B-PER")), "--data", tmp_path / "words.conll").stdout)
        )
    )
    assert [(line["sentence"], line["word"]) for line in lines] == [("0", "hannah"), ("0", "coyle"), ("1", "weir")]
    assert {line["tag"] for line in lines} <= {"O", "B-PER"}


@pytest.mark.parametrize("texts", [("hannah built it.", "the weir"), ("-",)])
def test_the_words_of_texts_are_tagged(make_shared, texts):
    model = make_shared("ner", ("O", "B-PER"))
    shown = predict(model, *texts, stdin="hannah built it.\r\n\nthe weir\n")
    lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    words = [("0", "hannah"), ("0", "built"), ("0", "it"), ("0", "."), ("1", "the"), ("1", "weir")]
    assert [(line["sentence"], line["word"]) for line in lines] == words
    tagged = bertvision.load(model, device="cpu")(["hannah built it.", "the weir"])
    assert [line["tag"] for line in lines] == [word.tag for each in tagged for word in each.words]


def test_tagged_words_are_printed_as_json(make_shared):
    shown = predict(make_shared("ner", ("O", "B-PER")), "the weir", "--json")
    assert [(each["sentence"], each["word"]) for each in json.loads(shown.stdout)] == [("0", "the"), ("0", "weir")]


def test_rows_of_questions_or_words_are_read_from_one_file_as_from_shards(make_shared, questions, tmp_path):
    rows = [{"id": each.id, "question": each.text, "context": each.context} for each in questions]
    one = tmp_path / "batch.jsonl"
    one.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = make_shared()
    lines = json.loads(predict(model, "--data", one, "--json").stdout)
    predict(model, "--data", tmp_path / "batch*.jsonl", "--out", tmp_path / "out")
    shards = [json.loads(line) for line in (tmp_path / "out" / "batch.jsonl").read_text().splitlines()]
    assert [(line["id"], line["answer"]) for line in lines] == [(line["id"], line["answer"]) for line in shards]
    assert [line["probability"] for line in lines] == pytest.approx([line["probability"] for line in shards], rel=1e-3)
    one.write_text(json.dumps(rows[0]) + '\n{"text": "the weir"}\n')
    told = refusal(model, "--data", one)
    assert "line 2: column `question`" in told
    assert "a row needs the columns `question` and `context`" in told
    words = tmp_path / "words.jsonl"
    words.write_text('{"text": "the weir"}\n')
    tags = json.loads(predict(make_shared("ner", ("O", "B-X", "I-X")), "--data", words, "--json").stdout)
    assert [line["word"] for line in tags] == ["the", "weir"]


def test_what_cannot_be_answered_is_refused_in_one_line(folder, make_shared, squad_file, tmp_path):
    assert "give texts, - for standard input, or --data FILE" in refusal(folder)
    assert "give texts, - for standard input, or --data FILE" in refusal(folder, "a", "--data", "rows.csv")
    assert "text 2 is empty" in refusal(folder, "a", " ")
    assert "there is no text" in refusal(folder, "-", stdin="\n\n")
    told = refusal(make_shared(), "who built the weir?")
    assert "a model of squad2 needs a file as --data" in told
    assert "`bertvision ask`" in told
    assert "a model of swag needs a file as --data" in refusal(make_shared("swag", ("0", "1")), "the weir")
    assert "no such folder" in refusal(tmp_path / "nowhere", "the weir")
