"""Ensembles of all tasks but questions: what is expected is plain arithmetic on what the members' files hold."""

import json

import pytest
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.evaluate.ensemble import HeldOutMembers, Way, ensemble_folders

RTE = "index\tsentence1\tsentence2\tlabel\n0\ta weir\ta dam\tentailment\n1\tstone\triver\tnot_entailment\n"
SWAG = "".join(
    json.dumps({"ind": n, "ctx": "she", "endings": ["left", "sang", "swam"], "label": label}) + "\n"
    for n, label in enumerate([2, 0])
)
CONLL = "Anna B-PER\nleft O\nLeeds B-LOC\n\nHm O\n"


@pytest.fixture
def write(tmp_path):
    """Write a data file; gives a function of (name, text)."""

    def make(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return make


@pytest.fixture
def member(tmp_path):
    """Write a prediction folder; gives a function of (name, predictions, probabilities)."""

    def make(name, predictions, probabilities=None):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "predictions.json").write_text(json.dumps(predictions))
        if probabilities is not None:
            (folder / "probabilities.json").write_text(json.dumps(probabilities))
        return folder

    return make


def read(folder, name="predictions.json"):
    return json.loads((folder / name).read_text())


def shares_in(folder):
    """Return the probabilities of each example, in the order of its labels."""
    return {key: list(shares.values()) for key, shares in read(folder, "probabilities.json").items()}


@pytest.fixture
def entailing(member):
    """Two folders of RTE, of which the first is surer of the first row and the second of the second."""
    one = member("run_a/enc", {"0": "entailment", "1": "entailment"}, {"0": [0.9, 0.1], "1": [0.55, 0.45]})
    other = member("run_b/enc", {"0": "not_entailment", "1": "not_entailment"}, {"0": [0.4, 0.6], "1": [0.2, 0.8]})
    return [one, other]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Way("mean"), {"0": [0.65, 0.35], "1": [0.375, 0.625]}),
        (Way("weighted", (3.0, 1.0)), {"0": [0.775, 0.225], "1": [0.4625, 0.5375]}),
        (Way("max"), {"0": [0.9 / 1.5, 0.6 / 1.5], "1": [0.55 / 1.35, 0.8 / 1.35]}),  # sums to one again
    ],
)
def test_two_runs_of_rte_are_joined_by_their_probabilities(entailing, write, tmp_path, way, expected):
    out = tmp_path / "out"
    made = ensemble_folders(entailing, write("dev.tsv", RTE), out, way, task="rte")
    assert shares_in(out) == {key: pytest.approx(shares, rel=1e-5) for key, shares in expected.items()}
    assert read(out) == {"0": "entailment", "1": "not_entailment"}
    assert (made.by, made.scores, made.member_scores) == (
        "probabilities",
        {"accuracy": 100.0},
        [{"accuracy": 50.0}, {"accuracy": 50.0}],
    )
    assert (out / "RTE.tsv").read_text() == "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
    assert read(out, "ensemble.json")["method"] == way.how


def test_an_ensemble_of_ensembles_is_one_and_can_be_scored_again(entailing, write, tmp_path):
    data = write("dev.tsv", RTE)
    ensemble_folders(entailing, data, tmp_path / "ab", Way("mean"), task="rte")
    made = ensemble_folders([tmp_path / "ab", entailing[0]], data, tmp_path / "abc", Way("mean"), task="rte")
    shares = shares_in(tmp_path / "abc")
    assert shares["0"] == pytest.approx([(0.65 + 0.9) / 2, (0.35 + 0.1) / 2], rel=1e-5)
    assert made.member_scores == [{"accuracy": 100.0}, {"accuracy": 50.0}]


def test_labels_are_joined_one_by_one(member, write, tmp_path):
    data = write("dev.csv", 'text,label\nweir,"a,b"\nriver,b\n')
    one = member("a", {"0": ["a"], "1": ["b"]}, {"0": [0.75, 0.25], "1": [0.25, 0.75]})
    other = member("b", {"0": ["a", "b"], "1": []}, {"0": [0.75, 0.8], "1": [0.25, 0.2]})
    made = ensemble_folders([one, other], data, tmp_path / "out", Way("mean"), task="multilabel")
    shares = shares_in(tmp_path / "out")
    assert shares == {"0": pytest.approx([0.75, 0.525], rel=1e-5), "1": pytest.approx([0.25, 0.475], rel=1e-5)}
    assert read(tmp_path / "out") == {"0": ["a", "b"], "1": []}
    assert made.scores["exact"] == 50


def test_numbers_are_averaged(member, write, tmp_path):
    data = write("dev.csv", "text,label\nweir,2\nriver,3\nstone,5\n")
    one, other = member("a", {"0": 1.0, "1": 4.0, "2": 5.0}), member("b", {"0": 3.0, "1": 2.0, "2": 3.0})
    made = ensemble_folders([one, other], data, tmp_path / "out", Way("weighted", (1.0, 3.0)), task="regression")
    assert read(tmp_path / "out") == {"0": 2.5, "1": 2.5, "2": 3.5}
    assert (made.by, made.scores["mae"]) == ("numbers", pytest.approx((0.5 + 0.5 + 1.5) / 3))


def test_endings_are_joined_within_their_row(member, write, tmp_path):
    one = member("a", {"0": 2, "1": 1}, {"0": [0.2, 0.2, 0.6], "1": [0.3, 0.5, 0.2]})
    other = member("b", {"0": 0, "1": 0}, {"0": [0.4, 0.3, 0.3], "1": [0.8, 0.1, 0.1]})
    made = ensemble_folders([one, other], write("dev.jsonl", SWAG), tmp_path / "out", Way("mean"), task="swag")
    shares = shares_in(tmp_path / "out")
    assert shares["0"] == pytest.approx([0.3, 0.25, 0.45], rel=1e-5)
    assert (read(tmp_path / "out"), made.scores) == ({"0": 2, "1": 0}, {"accuracy": 100.0})


@pytest.mark.parametrize(
    ("way", "tags"),
    [
        (Way("mean"), ["B-PER", "B-LOC", "B-LOC"]),  # the second word has three tags: the first member's is taken
        (Way("weighted", (1.0, 1.0, 3.0)), ["O", "O", "B-LOC"]),
    ],
)
def test_tags_are_voted_for_word_by_word(member, write, tmp_path, way, tags):
    votes = [["B-PER", "B-LOC", "O"], ["B-PER", "B-PER", "B-LOC"], ["O", "O", "B-LOC"]]
    folders = [member(str(n), {"0": vote, "1": ["O"]}) for n, vote in enumerate(votes)]
    made = ensemble_folders(folders, write("dev.conll", CONLL), tmp_path / "out", way, task="ner")
    assert read(tmp_path / "out") == {"0": tags, "1": ["O"]}
    assert (made.by, made.nouns, len(made.member_scores)) == ("votes", "sentences", 3)
    assert (tmp_path / "out" / "predictions.conll").read_text().startswith(f"Anna B-PER {tags[0]}\n")


def test_whether_questions_have_answers_is_joined_question_by_question(member, squad_file, questions, tmp_path):
    ids = [question.id for question in questions]
    one = member("a", dict.fromkeys(ids, "answer"), dict.fromkeys(ids, [0.9, 0.1]))
    other = member("b", dict.fromkeys(ids, "no answer"), dict.fromkeys(ids, [0.3, 0.7]))
    made = ensemble_folders([one, other], str(squad_file()), tmp_path / "out", Way("mean"), task="answerability")
    assert set(read(tmp_path / "out").values()) == {"answer"}
    assert made.scores["accuracy"] == 87.5  # one in eight has none
    assert not (tmp_path / "out" / "paper_v1_predictions.json").exists()


def test_labels_that_the_file_lacks_are_joined_too(member, write, tmp_path):
    """Probabilities are by name: neither their order nor what the file happens to hold matters."""
    data = write("dev.csv", "text,label\nweir,good\nriver,good\n")
    one = member(
        "a",
        {"0": "good", "1": "bad"},
        {"0": {"bad": 0.2, "good": 0.7, "so": 0.1}, "1": {"bad": 0.6, "good": 0.3, "so": 0.1}},
    )
    other = member(
        "b",
        {"0": "so", "1": "good"},
        {"0": {"so": 0.6, "good": 0.4, "bad": 0}, "1": {"so": 0, "good": 0.9, "bad": 0.1}},
    )
    made = ensemble_folders([one, other], data, tmp_path / "out", Way("mean"), task="classification")
    found = read(tmp_path / "out", "probabilities.json")
    assert found["0"] == pytest.approx({"good": 0.55, "bad": 0.1, "so": 0.35}, rel=1e-5)
    assert (read(tmp_path / "out"), made.scores["accuracy"]) == ({"0": "good", "1": "good"}, 100)


def test_a_file_without_labels_is_joined_and_not_scored(entailing, write, tmp_path):
    data = write("test.tsv", "index\tsentence1\tsentence2\n0\ta weir\ta dam\n1\tstone\triver\n")
    made = ensemble_folders(entailing, data, tmp_path / "out", Way("mean"), task="rte")
    assert (made.scores, made.member_scores) == (None, None)
    assert read(tmp_path / "out") == {"0": "entailment", "1": "not_entailment"}


def test_weights_follow_the_held_out_score_above_the_commonest_label(entailing, member, write, tmp_path):
    other = RTE.replace("weir", "mill").replace("stone", "wood") + "2\ta\tb\tentailment\n3\tc\td\tentailment\n"
    right = {"0": "entailment", "1": "not_entailment", "2": "entailment", "3": "entailment"}
    held = [member("h1", right), member("h2", dict.fromkeys(right, "entailment"))]
    way = Way("weighted", held_out=HeldOutMembers(held, write("held.tsv", other)))
    made = ensemble_folders(entailing, write("dev.tsv", RTE), tmp_path / "out", way, task="rte")
    assert made.shares == pytest.approx((25 / 25.01, 0.01 / 25.01))  # 100 and 75, above 75: at least 0.01


def test_scores_are_printed_for_any_task(entailing, write, tmp_path):
    arguments = ["ensemble", *map(str, entailing), "--data", write("dev.tsv", RTE), "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, [*arguments, "--task", "rte", "--how", "mean"])
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0][:5] == ["2", "rows,", "combined", "by", "probabilities;"]
    assert ["model", "accuracy"] in lines
    assert [line for line in lines if line and line[0] in ("run_a/enc", "run_b/enc", "ensemble")] == [
        ["run_a/enc", "50.0"],
        ["run_b/enc", "50.0"],
        ["ensemble", "100.0"],
    ]
    made = json.loads(CliRunner().invoke(app, [*arguments, "--task", "rte", "--json"]).stdout)
    assert (made["rows"], made["scores"]) == (2, {"accuracy": 100.0})


def refusal(*arguments):
    shown = CliRunner().invoke(app, ["ensemble", *map(str, arguments)], env={"COLUMNS": "80"})
    assert (shown.exit_code, len(shown.stderr.splitlines())) == (2, 1)
    return shown.stderr


def test_what_cannot_be_joined_is_refused_in_one_line(entailing, member, write, tmp_path):
    rte, tsv = write("dev.tsv", RTE), ("--out", tmp_path / "out", "--data")
    csv = write("dev.csv", "text,label\nweir,2\nriver,3\n")
    numbers = [member("n1", {"0": 1.0, "1": 2.0}), member("n2", {"0": 1.0, "1": 2.0})]
    tags = [member(name, {"0": ["O", "O", "O"], "1": ["O"]}) for name in ("t1", "t2")]
    bare = member("bare", {"0": "entailment", "1": "entailment"})
    turned = member("turned", {"0": "entailment", "1": "entailment"}, {"0": [0.1, 0.9], "1": [0.2, 0.8]})
    few = member("few", {"0": "entailment"}, {"0": [0.9, 0.1]})
    assert "--task where it is of another task" in refusal(*entailing, *tsv, rte)  # squad2 unless told otherwise
    assert "hold no logits; choose max, mean or weighted for --how" in refusal(
        *entailing, *tsv, rte, "--task", "rte", "--how", "logits"
    )
    assert "numbers have no probabilities" in refusal(*numbers, *tsv, csv, "--task", "regression")
    conll = write("dev.conll", CONLL)
    assert "of tags hold no probabilities; use mean or" in refusal(*tags, *tsv, conll, "--task", "ner")
    assert "bare: no probabilities for '0'" in refusal(entailing[0], bare, *tsv, rte, "--task", "rte")
    assert "not of the labels entailment, not_entailment in this order" in refusal(
        entailing[0], turned, *tsv, rte, "--task", "rte"
    )
    assert "no prediction for 1 of 2 examples" in refusal(entailing[0], few, *tsv, rte, "--task", "rte")
    assert "no predictions.json in it" in refusal(entailing[0], tmp_path, *tsv, rte, "--task", "rte")
    held = [part for folder in entailing for part in ("--held-out", folder)]
    shared = refusal(*entailing, *tsv, rte, "--task", "rte", "--how", "weighted", *held, "--held-out-data", rte)
    assert "2 of its rows, such as '0', are in --data too; hold out other rows" in shared
    assert not (tmp_path / "out").exists()
