import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.predictions.logits import TokenGrid, save_logits

CONTEXT = "The weir was built in 1887 by Hannah Coyle of Leeds."
GOLDS = {"when": ["1887", "in 1887"], "who": ["Hannah Coyle of Leeds"], "why": [], "where": []}
ONE = {"when": "1887", "who": "Hannah Coyle", "why": "Leeds", "where": ""}
OTHER = {"when": "1887", "who": "Hannah Coyle of Leeds", "why": "", "where": "Leeds"}


def gold_of(golds, context=CONTEXT):
    qas = [
        {
            "id": key,
            "question": f"{key}?",
            "answers": [{"text": text, "answer_start": context.index(text)} for text in texts],
        }
        for key, texts in golds.items()
    ]
    return {"data": [{"title": "Weir", "paragraphs": [{"context": context, "qas": qas}]}]}


def nbest_of(answers):
    """Return every question its answer and, behind it, no answer or a made-up one."""
    numbers = {"probability": 0.5, "start_logit": 1.0, "end_logit": 2.0}
    return {
        key: [{"text": text, **numbers}, {"text": "" if text else "Leeds", **numbers}] for key, text in answers.items()
    }


@pytest.fixture
def write(tmp_path):
    """Write JSON, or bytes as they are, under a name."""

    def to(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return to


@pytest.fixture
def folder(write, tmp_path):
    """Write a prediction folder; a file named with None is left out."""

    def make(name, answers, **files):
        contents = {
            "predictions": answers,
            "nbest_predictions": nbest_of(answers),
            "null_odds": dict.fromkeys(answers, -1.0),
            "best_spans": answers,
        }
        for key, content in (contents | files).items():
            if content is not None:
                write(f"{name}/{key}.json", content)
        return tmp_path / name

    return make


@pytest.fixture
def call(write):
    """Run a verb against the gold file."""

    def run(verb, *arguments, gold=None):
        path = write("gold.json", gold_of(GOLDS) if gold is None else gold)
        return CliRunner().invoke(app, [verb, *map(str, arguments), "--gold", str(path)])

    return run


def refusal(result):
    assert result.exit_code == 2, result.exception
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").removesuffix("\n")


def test_two_files_are_compared(call, write):
    result = call("compare", write("a.json", ONE), write("b.json", OTHER), "--resamples", 500)
    assert result.exit_code == 0, result.exception
    lines = result.stdout.splitlines()
    assert lines[0] == "4 questions"
    assert next(line.split()[:4] for line in lines if line.startswith("exact")) == ["exact", "50.00", "75.00", "+25.00"]
    assert next(line.split() for line in lines if line.startswith("all")) == ["all", "1", "1", "2", "0", "4"]
    assert "all questions: p 1.0000." in result.stdout


def test_the_same_command_prints_the_same_bytes(call, write):
    arguments = ("compare", write("a.json", ONE), write("b.json", OTHER), "--json")
    assert call(*arguments).stdout == call(*arguments).stdout


def test_json_has_everything(call, write):
    result = call("compare", write("a.json", ONE), write("b.json", OTHER), "--metric", "exact", "--json")
    found = json.loads(result.stdout)
    assert [each["metric"] for each in found["differences"]] == ["exact"]
    assert found["outcomes"]["has answer"] == {"both": 1, "only_a": 0, "only_b": 1, "neither": 0}
    assert (found["resampled"], found["units"], found["resamples"], found["seed"]) == ("question", 4, 10_000, 1)


def test_folders_are_compared_as_their_files_are(call, folder):
    one, other = folder("a", ONE), folder("b", OTHER)
    by_folder = json.loads(call("compare", one, other, "--json").stdout)
    by_file = json.loads(call("compare", one / "predictions.json", other / "predictions.json", "--json").stdout)
    assert by_folder["differences"] == by_file["differences"]


def test_articles_can_be_resampled(call, write):
    both = gold_of({"when": ["1887"], "who": []})["data"] + gold_of({"why": [], "where": []})["data"]
    both[1]["title"] = "Mill"
    files = write("a.json", ONE), write("b.json", OTHER)
    result = call("compare", *files, "--clusters", "article", "--json", gold={"data": both})
    assert (json.loads(result.stdout)["resampled"], json.loads(result.stdout)["units"]) == ("article", 2)
    assert "single article" in refusal(call("compare", *files, "--clusters", "article"))


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (ONE | {"zoo": "x"}, "b.json: 1 of its 5 questions are not in the gold file, such as 'zoo'"),
        ({"when": "1887"}, "b.json: no prediction for 3 of 4 questions, such as 'where'"),
        (ONE | {"who": 1887}, "b.json: question 'who': expected str, got int"),
        (["1887"], "b.json: expected an object with question ids as keys, got list"),
        (b"{", "b.json: not JSON"),
    ],
)
def test_bad_predictions_end_in_one_line(call, write, answers, problem):
    assert problem in refusal(call("compare", write("a.json", ONE), write("b.json", answers)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--metric", "bleu"), "--metric bleu: expected one of exact, f1"),
        (("--clusters", "title"), "--clusters title: expected one of question, article"),
    ],
)
def test_unknown_choices_name_the_known_ones(call, write, options, problem):
    assert refusal(call("compare", write("a.json", ONE), write("b.json", OTHER), *options)) == problem


def test_gold_without_answers_is_refused(call, write):
    gold = gold_of(GOLDS)
    del gold["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert "`answers` is missing" in refusal(call("compare", write("a.json", ONE), write("b.json", OTHER), gold=gold))


@pytest.mark.parametrize("verb", ["compare", "analyze"])
def test_what_is_no_prediction_folder_is_refused(call, tmp_path, verb):
    (tmp_path / "empty").mkdir()
    more = [tmp_path / "empty"] if verb == "compare" else []
    assert "empty: no predictions.json in it; give OUT/predictions" in refusal(call(verb, tmp_path / "empty", *more))


def test_a_folder_is_analyzed(call, folder):
    result = call("analyze", folder("a", ONE))
    assert result.exit_code == 0, result.exception
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "has answer 2 50.0 83.3 0.0" in lines
    assert "who 1 0.0 66.7 0.0" in lines
    assert "which 0" in lines  # no score, not a score of 0
    assert "of these: second answer right 1" in lines  # declining `why`
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith("A: ")) <= 80


def test_a_folder_is_analyzed_against_another(call, folder):
    arguments = ("analyze", folder("a", ONE), "--against", folder("b", OTHER))
    printed = call(*arguments).stdout
    assert "3. only A right: where (Weir)" in printed
    assert max(len(line) for line in printed.splitlines() if not line.startswith(("A: ", "B: "))) <= 80
    found = json.loads(call(*arguments, "--disagreements", 1, "--json").stdout)
    assert found["groups"]["question type"]["no answer"]["B"] == {"exact": 50.0, "f1": 50.0, "abstained": 50.0}
    assert found["groups"]["question word"]["which"]["A"] == {"exact": None, "f1": None, "abstained": None}
    assert found["against"]["context_lengths"]["only A"] == {
        "questions": 1,
        "mean_words": 11.0,
        "mean_pieces": None,
    }
    assert len(found["against"]["disagreements"]) == 1


def test_contexts_are_measured_in_word_pieces_where_the_folder_has_logits(call, folder):
    one, other = folder("a", ONE), folder("b", OTHER)
    pieces = {"when": 3, "who": 5, "why": 7, "where": 9}  # behind a first token that is not of the context
    window_at = np.cumsum([0, *(count + 1 for count in pieces.values())])
    offsets = [pair for count in pieces.values() for pair in [(-1, -1), *((at, at + 1) for at in range(count))]]
    numbers = np.arange(4, dtype=np.int32)
    grid = TokenGrid(tuple(pieces), numbers, window_at, np.ones_like(numbers), np.array(offsets, np.int32))
    save_logits(one / "logits.safetensors", grid, np.zeros((len(offsets), 2), np.float32))
    found = json.loads(call("analyze", one, "--against", other, "--json").stdout)
    assert found["against"]["context_lengths"]["only A"]["mean_pieces"] == 9  # where
    assert found["against"]["context_lengths"]["only B"]["mean_pieces"] == (5 + 7) / 2
    assert found["counts"]["context length in word pieces"] == {
        "first quarter, 3-3": 1,
        "second quarter, 5-5": 1,
        "third quarter, 7-7": 1,
        "last quarter, 9-9": 1,
    }
    printed = call("analyze", one, "--against", other).stdout
    assert max(len(line) for line in printed.splitlines() if not line.startswith(("A: ", "B: "))) <= 80


def test_a_folder_of_answers_alone_has_empty_cells_for_second_answers(call, folder):
    result = call("analyze", folder("a", ONE, nbest_predictions=None, null_odds=None, best_spans=None), "--json")
    assert json.loads(result.stdout)["second_answers"] is None


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"null_odds": {"when": float("nan"), "who": 0, "why": 0, "where": 0}},
            "odds of question 'when' are nan",
        ),
        ({"null_odds": {"when": 1.0}}, "null_odds.json and predictions.json hold different questions, such as 'where'"),
        (
            {"best_spans": ONE | {"zoo": ""}},
            "best_spans.json and predictions.json hold different questions, such as 'zoo'",
        ),
        ({"nbest_predictions": {}}, "nbest_predictions.json and predictions.json hold different questions"),
        ({"nbest_predictions": dict.fromkeys(ONE, "x")}, "question 'when': expected a list of text, probability"),
        ({"nbest_predictions": dict.fromkeys(ONE, 7)}, "question 'when': expected a list of text, probability"),
        ({"nbest_predictions": dict.fromkeys(ONE, [{"text": "x"}])}, "question 'when': expected a list of text"),
    ],
)
def test_a_damaged_folder_ends_in_one_line(call, folder, files, problem):
    assert problem in refusal(call("analyze", folder("a", ONE, **files)))


def test_folders_of_other_data_are_refused(call, folder):
    other = folder("b", {"zoo": "x"})
    assert "b: 1 of its 1 questions are not in the gold file" in refusal(
        call("analyze", folder("a", ONE), "--against", other)
    )


def test_neither_verb_needs_torch():
    code = (
        "import sys, bertvision.cli, bertvision.evaluate.compare, bertvision.evaluate.score;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
