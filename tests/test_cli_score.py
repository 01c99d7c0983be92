import gzip
import json

import pytest
from typer.testing import CliRunner

from bertvision.cli import app

CONTEXT = "The weir was built in 1887 by Hannah Coyle of Leeds."


def gold_of(*questions, context=CONTEXT):
    """Lay (id, gold texts) out as a SQuAD file."""
    qas = [
        {
            "id": identity,
            "question": "who?",
            "answers": [{"text": text, "answer_start": context.index(text)} for text in texts],
        }
        for identity, texts in questions
    ]
    return {"data": [{"title": "Weir", "paragraphs": [{"context": context, "qas": qas}]}]}


# Worked out by hand: `when` is right; `who` shares 2 of 2 and 4 words, so its F1 is 2/3; `why` is made up; `where` is
# declined rightly. Without odds: exact 2/4, F1 (1 + 2/3 + 0 + 1)/4. Of the answerable: 1/2 and (1 + 2/3)/2. The last
# digits are those of transformers 4.57.6 (squad_evaluate), which has the official script's arithmetic.
SQUAD2 = gold_of(("when", ["1887", "in 1887"]), ("who", ["Hannah Coyle of Leeds"]), ("why", []), ("where", []))
SQUAD1 = gold_of(("when", ["1887", "in 1887"]), ("who", ["Hannah Coyle of Leeds"]))
PREDICTIONS = {"when": "In 1887!", "who": "Hannah Coyle", "why": "Leeds", "where": ""}
ODDS = {"when": -2.0, "who": -1, "why": 0.5, "where": 3.0}
OFFICIAL = """{
  "exact": 50.0,
  "f1": 66.66666666666666,
  "total": 4,
  "HasAns_exact": 50.0,
  "HasAns_f1": 83.33333333333333,
  "HasAns_total": 2,
  "NoAns_exact": 50.0,
  "NoAns_f1": 50.0,
  "NoAns_total": 2
}
"""
# At threshold 0 the made-up answer is declined: exact 3/4, F1 (1 + 2/3 + 1 + 1)/4. Declining all is worth 2; `when`
# +1 at -2 (best exact 3/4), `who` +2/3 at -1 (best F1 3.667/4), `why` -1.
OFFICIAL_WITH_ODDS = """{
  "exact": 75.0,
  "f1": 91.66666666666666,
  "total": 4,
  "HasAns_exact": 50.0,
  "HasAns_f1": 83.33333333333333,
  "HasAns_total": 2,
  "NoAns_exact": 100.0,
  "NoAns_f1": 100.0,
  "NoAns_total": 2,
  "best_exact": 75.0,
  "best_exact_thresh": -2.0,
  "best_f1": 91.66666666666666,
  "best_f1_thresh": -1
}
"""


@pytest.fixture
def score(tmp_path):
    """Run `bertvision score` on contents: JSON values, or bytes as they are; None stands for no file."""

    def run(task, gold, predictions, odds=None, *more):
        arguments = ["score", task]
        for option, name, content in (
            ("--gold", "gold.json", gold),
            ("--predictions", "predictions.json", predictions),
            ("--null-odds", "odds.json", odds),
        ):
            if option == "--null-odds" and odds is None:
                continue
            path = tmp_path / name
            if content is not None:
                path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
            arguments += [option, str(path)]
        return CliRunner().invoke(app, [*arguments, *more])

    return run


def test_squad2_prints_exactly_what_the_official_script_prints(score):
    result = score("squad2", SQUAD2, PREDICTIONS)
    assert (result.exit_code, result.stdout, result.stderr) == (0, OFFICIAL, "")


def test_squad2_with_odds_prints_exactly_what_the_official_script_prints(score):
    result = score("squad2", SQUAD2, PREDICTIONS, ODDS, "--na-prob-thresh", "0")
    assert (result.exit_code, result.stdout, result.stderr) == (0, OFFICIAL_WITH_ODDS, "")


@pytest.mark.parametrize("task", ["squad1", "squad2"])
def test_the_folder_of_predictions_stands_for_its_predictions_json(score, tmp_path, task):
    gold = {"squad1": SQUAD1, "squad2": SQUAD2}[task]
    file = score(task, gold, PREDICTIONS)
    folder = CliRunner().invoke(
        app, ["score", task, "--gold", str(tmp_path / "gold.json"), "--predictions", str(tmp_path)]
    )
    assert (folder.exit_code, folder.stdout) == (0, file.stdout)


def test_the_threshold_is_1_unless_said_otherwise(score):
    plain = json.loads(score("squad2", SQUAD2, PREDICTIONS, ODDS).stdout)
    assert {key: value for key, value in plain.items() if not key.startswith("best")} == json.loads(OFFICIAL)


def test_a_packed_gold_file_with_a_byte_order_mark_is_read(score):
    packed = gzip.compress(b"\xef\xbb\xbf" + json.dumps(SQUAD2).encode())
    assert score("squad2", packed, PREDICTIONS).stdout == OFFICIAL


def test_golds_need_not_stand_where_they_say(score):
    gold = gold_of(("when", ["1887"]))
    gold["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 0
    assert json.loads(score("squad1", gold, {"when": "1887"}).stdout) == {"exact_match": 100.0, "f1": 100.0}


def test_squad1_prints_the_official_scores(score):
    result = score("squad1", SQUAD1, PREDICTIONS)
    assert list(json.loads(result.stdout).items()) == [("exact_match", 50.0), ("f1", 83.33333333333333)]
    assert (result.exit_code, result.stderr) == (0, "")


def test_squad1_counts_a_missing_prediction_as_0_and_says_so_beside_the_scores(score):
    result = score("squad1", SQUAD1, {"who": "Hannah Coyle of Leeds"})
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"exact_match": 50.0, "f1": 50.0})
    assert result.stderr == "1 question without a prediction, such as 'when', scores 0\n"


def refusal(result):
    """Return the one line with which a command ended."""
    assert result.exit_code == 2, result.exception
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    return result.stderr.removesuffix("\n")


UNLABELLED = {
    "data": [{"title": "Weir", "paragraphs": [{"context": CONTEXT, "qas": [{"id": "when", "question": "When?"}]}]}]
}


@pytest.mark.parametrize(
    ("task", "gold", "problem"),
    [
        ("squad2", None, "cannot be read (No such file or directory); give a SQuAD .json or .json.gz"),
        ("squad2", b"", "the file is empty"),
        ("squad2", b"{", "not JSON"),
        ("squad2", [SQUAD2], "not SQuAD"),
        ("squad2", {"data": []}, "no question in it"),
        ("squad2", b"\x1f\x8b", "the gzip file is damaged or cut off"),
        ("squad2", b'{"data": "\xff"}', "not UTF-8 text"),
        # Nothing can be compared with questions that have no `answers` at all; an empty list means unanswerable.
        ("squad2", UNLABELLED, "article 1 ('Weir'), paragraph 1, question 'when': `answers` is missing"),
        ("squad1", UNLABELLED, "article 1 ('Weir'), paragraph 1, question 'when': `answers` is missing"),
    ],
)
def test_a_bad_gold_file_ends_in_one_line(score, tmp_path, task, gold, problem):
    assert refusal(score(task, gold, PREDICTIONS)).startswith(f"error: {tmp_path / 'gold.json'}: {problem}")


@pytest.mark.parametrize(
    ("predictions", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "not JSON"),
        (b'{"when": ', "not JSON"),
        (b'{"when": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (["1887"], "expected an object with question ids as keys, got list"),
        (PREDICTIONS | {"who": 1887}, "question 'who': expected str, got int"),
        (PREDICTIONS | {"who": None}, "question 'who': expected str, got NoneType"),
        (PREDICTIONS | {"who": {"text": "x"}}, "question 'who': expected str, got dict"),
        (PREDICTIONS | {"[red]": 1}, "question '[red]': expected str, got int"),
    ],
)
@pytest.mark.parametrize("task", ["squad1", "squad2"])
def test_a_bad_predictions_file_ends_in_one_line(score, tmp_path, task, predictions, problem):
    gold = SQUAD1 if task == "squad1" else SQUAD2
    line = refusal(score(task, gold, predictions))
    assert line.startswith(f"error: {tmp_path / 'predictions.json'}: {problem}")


@pytest.mark.parametrize(
    ("odds", "problem"),
    [
        (b"nothing", "{file}: not JSON"),
        ([1.0], "{file}: expected an object with question ids as keys, got list"),
        (ODDS | {"who": "0.5"}, "{file}: question 'who': expected float, got str"),
        (ODDS | {"who": True}, "{file}: question 'who': expected float, got bool"),
        (ODDS | {"who": None}, "{file}: question 'who': expected float, got NoneType"),
        (ODDS | {"who": float("nan")}, "{file}: the odds of question 'who' are nan"),
        (ODDS | {"who": float("inf")}, "{file}: the odds of question 'who' are inf; give finite numbers"),
        (b'{"who": 1e999, "when": 0}', "{file}: the odds of question 'who' are inf"),
        (
            b'{"who": 1, "when": 0, "who": 2}',
            "{file}: not JSON that can be read (the key 'who' stands twice in one object",
        ),
        (ODDS | {"who": 10**400}, ""),  # more than a float can hold
        ({"when": 0.5}, "no null odds for 3 of 4 questions, such as 'who'"),
    ],
)
def test_a_bad_odds_file_ends_in_one_line(score, tmp_path, odds, problem):
    line = refusal(score("squad2", SQUAD2, PREDICTIONS, odds))
    assert line.startswith("error: " + problem.format(file=tmp_path / "odds.json"))


def test_missing_predictions_are_counted_in_squad2(score):
    line = refusal(score("squad2", SQUAD2, {"who": "Leeds"}))
    assert line.startswith("error: no prediction for 3 of 4 questions, such as 'when'; predict an empty string")


def test_odds_have_no_place_in_squad1(score):
    line = refusal(score("squad1", SQUAD1, PREDICTIONS, ODDS))
    assert line == "error: squad1 has no unanswerable questions; leave --null-odds out or score squad2"


def test_squad1_refuses_unanswerable_questions(score):
    line = refusal(score("squad1", SQUAD2, PREDICTIONS))
    assert line.startswith("error: ")
    assert "'why'" in line
    assert "squad2" in line


def test_a_duplicate_id_is_refused_without_advice_that_score_cannot_follow(score):
    line = refusal(score("squad2", gold_of(("when", ["1887"]), ("when", ["1887"])), PREDICTIONS))
    assert "duplicate id" in line
    assert "--set" not in line  # an option of other verbs


def test_an_unknown_task_ends_in_one_line_that_names_the_known_ones(score):
    line = refusal(score("squad3", SQUAD2, PREDICTIONS))
    assert all(f"'{task}'" in line for task in ("squad3", "squad1", "squad2"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["squad2", "--gold", "gold.json"], "--predictions"),
        (["squad2", "--predictions", "predictions.json"], "--gold"),
        (["squad2", "--gold", "g", "--predictions", "p", "--na-prob-thresh", "high"], "--na-prob-thresh"),
        (["squad2", "--gold", "g", "--predictions", "p", "--colour", "red"], "--colour"),
    ],
)
def test_a_wrong_option_is_named_and_ends_with_code_2(arguments, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "predictions.json").write_text("{}")
    result = CliRunner().invoke(app, ["score", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr.splitlines()[-1]
