"""`bertvision compare` and `analyze` for all tasks but spans, which test_cli_compare.py has."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from bertvision.cli import app

RTE = "index\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{row}\tIt's {row} cats, said Ann.\tCats\t{label}\n"
    for row, label in enumerate(["entailment", "entailment", "not_entailment", "not_entailment"])
)
ONE = {"0": "entailment", "1": "not_entailment", "2": "entailment", "3": "not_entailment"}
OTHER = ONE | {"1": "entailment", "3": "entailment", "2": "not_entailment"}
CONLL = "Anna B-PER\nBerg I-PER\nsings O\n\nLeeds B-LOC\n"
SQUAD = {
    "data": [
        {
            "title": title,
            "paragraphs": [
                {
                    "context": "Built in 1887.",
                    "qas": [
                        {"id": f"{title} when", "question": "?", "answers": [{"text": "1887", "answer_start": 9}]},
                        {"id": f"{title} why", "question": "?", "answers": []},
                    ],
                }
            ],
        }
        for title in ("Weir", "Mill")
    ]
}
STSB = "sentence1\tsentence2\tscore\n" + "".join(f"a b\tc\t{row % 6}\n" for row in range(12))
SWAG = "".join(json.dumps({"ctx": "a", "endings": ["b", "c"], "label": str(row % 2)}) + "\n" for row in range(4))
KINDS = {
    "rte": (RTE, "dev.tsv", ONE, OTHER),
    "cola": ("a\t1\t\tx\na\t0\t*\ty\na\t1\t\tz\n", "dev.tsv", {"0": 1, "1": 0, "2": 0}, {"0": 1, "1": 0, "2": 1}),
    "stsb": (STSB, "dev.tsv", {str(row): row % 6 + row / 9 for row in range(12)}, {str(row): row for row in range(12)}),
    "swag": (SWAG, "dev.jsonl", dict.fromkeys("0123", 0), {"0": 0, "1": 1, "2": 1, "3": 0}),
    "ner": (CONLL, "dev.conll", {"0": ["B-PER", "O", "O"], "1": ["B-LOC"]}, {"0": ["B-PER", "I-PER", "O"], "1": ["O"]}),
    "answerability": (
        SQUAD,
        "dev.json",
        {"Weir when": "answer", "Weir why": "answer", "Mill when": "answer", "Mill why": "no answer"},
        {"Weir when": "answer", "Weir why": "no answer", "Mill when": "no answer", "Mill why": "no answer"},
    ),
    "classification": (
        "text,label\na,x\nb,y\nc,z\n",
        "dev.csv",
        {"0": "x", "1": "x", "2": "z"},
        dict.fromkeys("012", "w"),
    ),
    "multilabel": ("text,label\na,x;y\nb,\n", "dev.csv", {"0": ["x"], "1": ["z"]}, {"0": ["x", "y"], "1": []}),
    "regression": ("text,label\na,1\nb,3\nc,4\n", "dev.csv", {"0": 2, "1": 2, "2": 3}, {"0": 1, "1": 3, "2": 3.5}),
}


@pytest.fixture
def call(tmp_path):
    """Run a verb on two prediction folders of a task, `compare A B` or `analyze A [--against B]`."""

    def run(verb, task, *more, one=None, other=None, gold=None):
        content, name, *answers = KINDS[task]
        content = content if gold is None else gold
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        for folder, default, given in zip("ab", answers, (one, other), strict=True):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "predictions.json").write_text(json.dumps(default if given is None else given))
        folders = [str(tmp_path / "a"), *([str(tmp_path / "b")] if verb == "compare" else [])]
        settings = ["--set", "data.label_separator=;"] if task == "multilabel" else []
        against = ["--against", str(tmp_path / "b")] if "--against" in more else []
        rest = [str(each) for each in more if each != "--against"]
        gold_file = ["--task", task, "--gold", str(tmp_path / name)]
        return CliRunner().invoke(app, [verb, *folders, *gold_file, *settings, *against, *rest])

    return run


def content_of(result):
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def refusal(result):
    assert (result.exit_code, result.stdout) == (2, ""), result.exception
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").removesuffix("\n")


def score_of(task, path, gold, more=()):
    files = ["--gold", str(gold), "--predictions", str(path)]
    return content_of(CliRunner().invoke(app, ["score", task, *files, *more]))


@pytest.mark.parametrize("task", KINDS)
def test_compared_scores_are_those_that_score_prints(call, tmp_path, task):
    found = content_of(call("compare", task, "--resamples", 200, "--json"))
    settings = ("--set", "data.label_separator=;") if task == "multilabel" else ()
    for side, folder in (("a", tmp_path / "a"), ("b", tmp_path / "b")):
        gold = tmp_path / KINDS[task][1]
        scores = score_of(task, folder, gold, settings)
        assert {each["metric"]: each[side] for each in found["differences"] if each[side] is not None} == scores
    for each in found["differences"]:
        if each["difference"] is not None:
            assert each["difference"] == each["b"] - each["a"]
            assert each["low"] <= each["high"]


@pytest.mark.parametrize("verb", ["compare", "analyze"])
@pytest.mark.parametrize("task", KINDS)
def test_every_task_is_shown_in_80_columns(call, verb, task):
    more = ("--against", "--disagreements", 9) if verb == "analyze" else ("--resamples", 100)
    result = call(verb, task, *more)
    assert result.exit_code == 0, result.exception
    assert max(len(line) for line in result.stdout.splitlines() if not line.startswith(("A: ", "B: "))) <= 80
    assert "nan" not in result.stdout
    assert ("\n1. " in result.stdout) == (verb == "analyze")  # a disagreement


def test_the_interval_is_that_of_resampled_rows(call):
    random = np.random.default_rng(0)
    gold, a, b = random.integers(0, 2, (3, 60))
    b[:12] = gold[:12]
    rows = "".join(f"{row}\tx\ty\t{['entailment', 'not_entailment'][label]}\n" for row, label in enumerate(gold))
    content = f"index\tsentence1\tsentence2\tlabel\n{rows}"
    one, other = ({str(row): int(label) for row, label in enumerate(side)} for side in (a, b))
    (found,) = content_of(call("compare", "rte", "--json", one=one, other=other, gold=content))["differences"]
    drawn = random.integers(0, 60, (20_000, 60))
    differences = 100 * ((b == gold)[drawn].mean(axis=1) - (a == gold)[drawn].mean(axis=1))
    assert (found["low"], found["high"]) == pytest.approx(np.percentile(differences, (2.5, 97.5)), abs=1.7)
    assert found["p_value"] == pytest.approx(2 * min((differences <= 0).mean(), (differences >= 0).mean()), abs=0.05)


def test_who_is_right_is_told_by_gold_class(call):
    found = content_of(call("compare", "rte", "--json"))
    assert found["outcomes"] == {
        "entailment": {"both": 1, "only_a": 0, "only_b": 1, "neither": 0},
        "not_entailment": {"both": 0, "only_a": 1, "only_b": 1, "neither": 0},
        "all": {"both": 1, "only_a": 1, "only_b": 2, "neither": 0},
    }
    assert found["mcnemar_p_value"] == 1  # 1 against 2: 3 coins always fall at least as unevenly


@pytest.mark.parametrize("task", ["stsb", "ner", "regression"])
def test_numbers_and_tags_are_not_right_or_wrong(call, task):
    found = content_of(call("compare", task, "--resamples", 100, "--json"))
    assert (found["outcomes"], found["mcnemar_p_value"]) == (None, None)


def test_a_single_metric_is_compared(call):
    found = content_of(call("compare", "stsb", "--metric", "spearman", "--resamples", 100, "--json"))
    assert [each["metric"] for each in found["differences"]] == ["spearman"]
    assert refusal(call("compare", "stsb", "--metric", "f1")) == "--metric f1: expected one of pearson, spearman"


def test_an_interval_does_not_depend_on_what_stands_beside_it(call):
    alone = content_of(call("compare", "classification", "--metric", "accuracy", "--json"))["differences"]
    assert content_of(call("compare", "classification", "--json"))["differences"][:1] == alone


def test_a_correlation_of_equal_numbers_is_an_empty_cell(call):
    result = call("compare", "stsb", "--resamples", 100, one=dict.fromkeys(map(str, range(12)), 2.5))
    assert result.exit_code == 0, result.exception
    row = next(line for line in result.stdout.splitlines() if line.startswith("pearson"))
    assert len(row.split()) == 2  # its name and B's


def test_resamples_without_a_value_are_counted(call):
    gold = "text,label\na,1\nb,3\n"
    result = call("compare", "regression", one={"0": 1, "1": 2}, other={"0": 1, "1": 3}, gold=gold)
    assert "Left out:" in result.stdout  # half of all resamples have one row twice
    found = content_of(call("compare", "regression", "--json", one={"0": 1, "1": 2}, other={"0": 1, "1": 3}, gold=gold))
    assert found["undefined"] == pytest.approx(5000, abs=200)


def test_articles_can_be_resampled_where_there_are_any(call):
    found = content_of(call("compare", "answerability", "--clusters", "article", "--json"))
    assert (found["resampled"], found["units"]) == ("article", 2)
    assert "task rte has no articles" in refusal(call("compare", "rte", "--clusters", "article"))


def test_own_tables_are_read_with_settings(call):
    gold = "review,stars\na,x\nb,y\nc,z\n"
    more = ("--set", "data.columns={text: review, label: stars}")
    assert content_of(call("compare", "classification", *more, "--json", gold=gold))["examples"] == 3
    found = content_of(call("analyze", "classification", *more, "--json", gold=gold))
    assert found["classes"]["A"]["confusions"]["y"] == {"x": 1, "y": 0, "z": 0}


def test_errors_in_thousands_are_written_out(call):
    gold = "text,label\na,100000\nb,300000\nc,400000\n"
    numbers = {"0": 200_000.0, "1": 200_000.0, "2": 300_000.0}
    shown = call("compare", "regression", gold=gold, one=numbers).stdout
    (rmse,) = [line.split() for line in shown.splitlines() if line.startswith("rmse")]
    assert rmse[1] == "100,000"


def test_a_label_that_has_no_column_is_refused(call):
    gold = "text,x,y\na,1,0\nb,0,1\n"
    columns = ("--set", "data.columns.label=[x, y]")
    told = refusal(call("compare", "multilabel", *columns, gold=gold, one={"0": ["x"], "1": ["z"]}))
    assert told.endswith("'1': 'z' is no label; expected 'x', 'y'")


def test_a_class_of_train_that_one_model_alone_gives_is_known_to_both(call):
    found = content_of(call("analyze", "classification", "--against", "--json"))
    assert (
        list(found["classes"]["A"]["confusions"]) == list(found["classes"]["B"]["confusions"]) == ["x", "y", "z", "w"]
    )
    assert found["types"]["A"]["w"] == {
        "gold": 0,
        "predicted": 0,
        "right": 0,
        "precision": None,
        "recall": None,
        "f1": None,
    }


def test_classes_are_analyzed_as_the_papers_do(call):
    found = content_of(call("analyze", "rte", "--against", "--json"))
    assert found["classes"]["A"]["positive"] == {
        "name": "entailment",
        "true_positives": 1,
        "recall": 0.5,
        "true_negatives": 1,
        "true_negative_rate": 0.5,
        "positive_rate": 0.5,
    }
    assert found["classes"]["B"]["accuracy"] == 0.75
    assert found["mean_words"] == {"text 1": 5.0, "text 2": 1.0}  # it, s, cats, said, ann
    assert [each["id"] for each in found["against"]["disagreements"]] == ["1", "2", "3"]
    assert found["against"]["disagreements"][0]["better"] == "only B right"
    assert found["against"]["outcomes"]["all"]["only_b"] == 2


def test_entities_are_analyzed_by_type_and_shown_with_their_words(call):
    found = content_of(call("analyze", "ner", "--against", "--json"))
    assert found["types"]["A"]["PER"] == {"gold": 1, "predicted": 1, "right": 0, "precision": 0, "recall": 0, "f1": 0}
    assert found["types"]["B"]["PER"]["f1"] == 100
    first, second = found["against"]["disagreements"]
    assert (first["gold"], first["a"], first["better"]) == (["PER: Anna Berg"], ["PER: Anna"], "only B right")
    assert (second["b"], second["texts"]) == ([], {"words": "Leeds"})
    assert "B  (none)" in call("analyze", "ner", "--against").stdout


def test_numbers_that_differ_most_in_their_errors_come_first(call):
    found = content_of(call("analyze", "stsb", "--against", "--json"))["against"]["disagreements"]
    gold, (one, other) = [row % 6 for row in range(12)], KINDS["stsb"][2:]
    unlike = {row: abs(abs(one[row] - gold[int(row)]) - abs(other[row] - gold[int(row)])) for row in one}
    assert [unlike[each["id"]] for each in found] == sorted(unlike.values(), reverse=True)[:10]
    assert found[0]["better"] == "A nearer"


def test_a_folder_alone_is_not_set_against_anything(call):
    found = content_of(call("analyze", "rte", "--json"))
    assert found["against"] is None
    assert list(found["scores"]) == ["A"]


@pytest.mark.parametrize("verb", ["compare", "analyze"])
@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"0": "entailment"}, "b: no prediction for 3 of 4 examples, such as '1'"),
        (ONE | {"9": "entailment"}, "b: a prediction for '9', which the examples do not have"),
        (ONE | {"0": "maybe"}, "'0': 'maybe' is no label; expected 'entailment', 'not_entailment'"),
    ],
)
def test_bad_predictions_end_in_one_line_that_names_the_file(call, verb, answers, problem):
    assert problem in refusal(call(verb, "rte", *(("--against",) if verb == "analyze" else ()), other=answers))


@pytest.mark.parametrize("verb", ["compare", "analyze"])
def test_an_unknown_task_names_the_known_ones(tmp_path, verb):
    folders = [str(tmp_path)] * (2 if verb == "compare" else 1)
    result = CliRunner().invoke(app, [verb, *folders, "--gold", "x", "--task", "rtee"])
    assert refusal(result).startswith("no task 'rtee'; known: 'squad1', 'squad2'")
