import json

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.data.example import GoldAnswer, Question
from bertvision.evaluate.ensemble import HeldOutMembers, Way, choose_way, ensemble_folders
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.logits import token_logits
from bertvision.predictions.ensemble import log_softmax
from bertvision.predictions.files import write_predictions
from bertvision.predictions.logits import grid_of, load_logits, save_logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import predict_spans
from bertvision.scoring.squad import score_squad1, score_squad2
from bertvision.windows.window import WindowConfig, cut_windows

FILES = {
    "predictions.json",
    "nbest_predictions.json",
    "null_odds.json",
    "best_spans.json",
    "ensemble.json",
    "sha256.json",
}
# Everything is a candidate, so that no list is cut off.
ANSWERS = {"n_best": 1000, "max_answer_length": 5}
ALL = {"answers": ANSWERS}


@pytest.fixture
def answer(tmp_path, questions, cpu):
    """Write a prediction folder of an untrained head; gives a function of (name, encoder, ...)."""

    def write(name, encoder, seed=0, head="last_linear", chosen=None, windows=None, has_null=True):
        asked = questions if chosen is None else chosen
        torch.manual_seed(seed)
        heads = {"head": build_head(HeadConfig.model_validate(head), encoder.shape)}
        cut = cut_windows(asked, encoder.tokenizer, windows or WindowConfig(), labelled=False)
        grid = grid_of(cut, [each.id for each in asked])
        logits = token_logits(encoder, heads, cut, cpu)["head"]
        logits = 3 * (logits - logits.mean(axis=0)) / logits.std(axis=0)  # as decided as a trained head
        answers = predict_spans(
            grid, logits, [question.context for question in asked], AnswerConfig(**ANSWERS), has_null=has_null
        )
        folder = tmp_path / name
        write_predictions(folder, answers)
        save_logits(folder / "logits.safetensors", grid, logits)
        return folder

    return write


def read(folder, name):
    return json.loads((folder / name).read_text())


def official(folder, questions):
    return score_squad2(questions, read(folder, "best_spans.json"), read(folder, "null_odds.json"), 0.0)


def shares_by_text(folder, question):
    """Add up the probabilities of a folder's candidates that have the same text."""
    shares = {}
    for each in read(folder, "nbest_predictions.json")[question]:
        shares[each["text"]] = shares.get(each["text"], 0) + each["probability"]
    return shares


def is_within(scores, expected):
    return {key: scores[key] for key in expected} == expected


# What comes out


def test_models_with_the_same_tokens_are_combined_token_by_token(answer, encoder, questions, squad_file, tmp_path):
    folders, out = [answer("a", encoder, 1), answer("b", encoder, 2)], tmp_path / "out"
    made = ensemble_folders(folders, str(squad_file()), out, Way("max"), ALL)
    assert {path.name for path in out.iterdir()} == FILES | {"logits.safetensors"}
    (grid, one), (_, other) = (load_logits(folder / "logits.safetensors") for folder in folders)
    combined_grid, combined = load_logits(out / "logits.safetensors")
    assert combined_grid.difference(grid) is None
    np.testing.assert_allclose(
        np.exp(combined), np.maximum(np.exp(log_softmax(grid, one)), np.exp(log_softmax(grid, other))), atol=1e-6
    )
    assert made.by == "tokens"
    assert is_within(made.scores, official(out, questions))
    for folder, scores in zip(folders, made.member_scores, strict=True):
        assert is_within(scores, official(folder, questions))


def test_models_with_different_tokenizers_are_combined_by_characters(
    answer, encoder, spelling_encoder, questions, squad_file, tmp_path
):
    folders, out = [answer("a", encoder, 1), answer("b", spelling_encoder, 2)], tmp_path / "out"
    way = choose_way("weighted", "3,1")
    made = ensemble_folders(folders, str(squad_file()), out, way, ALL)
    assert {path.name for path in out.iterdir()} == FILES
    assert made.by == "spans"
    assert is_within(made.scores, official(out, questions))
    for question in questions:
        one, other = (shares_by_text(folder, question.id) for folder in folders)
        expected = {text: (3 * one.get(text, 0) + other.get(text, 0)) / 4 for text in {*one, *other}}
        assert shares_by_text(out, question.id) == pytest.approx(expected, abs=1e-5)


def test_other_windows_of_the_same_tokenizer_are_another_grid(answer, encoder, squad_file, tmp_path):
    folders = [answer("a", encoder), answer("b", encoder, windows=WindowConfig(max_length=16, stride=2))]
    assert ensemble_folders(folders, str(squad_file()), tmp_path / "out", Way("mean")).by == "spans"


def test_a_joint_readout_is_combined_by_spans(answer, encoder, squad_file, tmp_path):
    folders = [answer("a", encoder), answer("b", encoder, head="adapter_386_shared_skip_joint")]
    assert ensemble_folders(folders, str(squad_file()), tmp_path / "out", Way("max")).by == "spans"


def test_an_ensemble_says_what_it_is_made_of(answer, encoder, squad_file, tmp_path):
    folders, data = [answer("a", encoder, 1), answer("b", encoder, 2)], str(squad_file())
    ensemble_folders(folders, data, tmp_path / "out", choose_way("weighted", "3,1"), {"answers": {"n_best": 5}})
    said = read(tmp_path / "out", "ensemble.json")
    assert said["members"] == [str(folder) for folder in folders]
    assert (said["method"], said["combined_by"], said["weights"], said["data"]) == (
        "weighted",
        "tokens",
        [0.75, 0.25],
        data,
    )
    assert (said["answers"]["n_best"], said["bertvision"]) == (5, "0.1.0")


def test_an_earlier_ensembles_logits_do_not_stay(answer, encoder, spelling_encoder, squad_file, tmp_path):
    one, two, other = answer("a", encoder, 1), answer("b", encoder, 2), answer("c", spelling_encoder)
    for folders in ([one, two], [one, other]):
        ensemble_folders(folders, str(squad_file()), tmp_path / "out", Way("max"))
    assert not (tmp_path / "out" / "logits.safetensors").exists()


def test_an_ensemble_is_a_member_of_another(answer, encoder, spelling_encoder, squad_file, tmp_path):
    ensemble_folders([answer("a", encoder, 1), answer("b", encoder, 2)], str(squad_file()), tmp_path / "ab", Way("max"))
    folders = [tmp_path / "ab", answer("c", spelling_encoder)]
    assert ensemble_folders(folders, str(squad_file()), tmp_path / "abc", Way("mean")).scores["total"] == 8


def test_questions_without_answers_are_answered_and_not_scored(answer, encoder, squad_file, tmp_path):
    path = squad_file()
    content = json.loads(path.read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"], paragraph["qas"][0]["is_impossible"]
    path.write_text(json.dumps(content))
    made = ensemble_folders([answer("a", encoder, 1), answer("b", encoder, 2)], str(path), tmp_path / "o", Way("max"))
    assert (len(made.predictions), made.scores, made.member_scores) == (8, None, None)
    assert [member["scores"] for member in made.as_dict()["members"]] == [None, None]


def test_models_of_squad1_always_answer(answer, encoder, spelling_encoder, questions, squad_file, tmp_path):
    chosen, out = [each for each in questions if each.answers], tmp_path / "out"
    folders = [
        answer("a", encoder, chosen=chosen, has_null=False),
        answer("b", spelling_encoder, chosen=chosen, has_null=False),
    ]
    made = ensemble_folders(folders, str(squad_file("one.json", chosen)), out, Way("mean"))
    assert {path.name for path in out.iterdir()} == {
        "predictions.json",
        "nbest_predictions.json",
        "ensemble.json",
        "sha256.json",
    }
    assert is_within(made.scores, score_squad1(chosen, read(out, "predictions.json")))
    assert made.as_table()[0] == ("model", "EM", "F1", "best F1", "span F1")
    assert [row[3] for row in made.as_table()[1:]] == ["", "", ""]
    assert made.note == ""


@pytest.mark.parametrize("threshold", [0.0, -2.5])
def test_the_table_says_at_which_threshold_members_abstain(answer, encoder, squad_file, tmp_path, threshold):
    settings = {} if threshold == 0 else {"answers": {"null_threshold": threshold}}
    folders = [answer("a", encoder, 1), answer("b", encoder, 2)]
    made = ensemble_folders(folders, str(squad_file()), tmp_path / "out", Way("max"), settings)
    assert made.note.startswith(f"EM and F1 at null threshold {threshold:g};")


# Weights


def held_out_questions():
    """Four questions, one of them without an answer, that are not among the fixture's."""
    contexts = [
        ("the stone mill", "mill"),
        ("coyle was here in 1887", "coyle"),
        ("a river", None),
        ("by the weir", "weir"),
    ]
    return [
        Question(f"h{n}", "what?", text, () if gold is None else (GoldAnswer(gold, text.index(gold)),), "mill")
        for n, (text, gold) in enumerate(contexts)
    ]


def teach(folder, questions):
    """Let a folder's logits give every gold answer."""
    grid, logits = load_logits(folder / "logits.safetensors")
    for place, window in enumerate(range(grid.num_windows)):  # one of each question
        tokens = range(grid.window_at[window], grid.window_at[window + 1])
        golds = [(gold.start, gold.start + len(gold.text)) for gold in questions[place].answers]
        for token in tokens:
            first, stop = grid.offsets[token].tolist()
            is_null = token == tokens[0] and not golds
            logits[token] += [30 * (is_null or any(first == gold for gold, _ in golds)), 0]
            logits[token] += [0, 30 * (is_null or any(stop == gold for _, gold in golds))]
    save_logits(folder / "logits.safetensors", grid, logits)


def test_weights_follow_the_held_out_f1_above_no_answer(answer, encoder, spelling_encoder, squad_file, tmp_path):
    others = held_out_questions()
    folders, held_out = [], []
    for name, each in (("a", encoder), ("b", spelling_encoder)):
        folders.append(answer(name, each, 7))
        held_out.append(answer(f"held_{name}", each, 7, chosen=others))
    teach(held_out[1], others)
    way = Way("weighted", held_out=HeldOutMembers(held_out, str(squad_file("held.json", others))))
    made = ensemble_folders(folders, str(squad_file()), tmp_path / "out", way, ALL)
    untaught = max(official(held_out[0], others)["f1"] - 25, 0.01)  # one in four has no answer
    assert untaught < 50
    assert made.shares == pytest.approx([untaught / (untaught + 75), 75 / (untaught + 75)])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("median",), "--how median: no such way to combine; known: max, mean, logits, weighted"),
        (
            ("weighted",),
            "--how weighted needs either --weights, such as 0.6,0.4, or --held-out folders, one for each member",
        ),
        (("weighted", "1,x"), "--weights 1,x: expected numbers, one for each DIR, such as 0.6,0.4"),
        (("mean", "1,2"), "--how mean takes no weights"),
        (("weighted", "1,2,3"), "got 3 weights for 2 members"),
        (("weighted", "1,-2"), "the weight -2 is no positive number"),
        (("weighted", None, ["h"]), "--held-out and --held-out-data go together"),
        (("weighted", None, ["h"], "h.json"), "got 1 --held-out for 2 members; give one for each"),
        (("weighted", "1,2", ["h", "h"], "h.json"), "--how weighted needs either --weights"),
        (("max", None, ["h", "h"], "h.json"), "--how max takes no weights"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(options, told, tmp_path):
    how, weights, held_out, data = (*options, None, None, None)[:4]
    arguments = ["a", "b", "--data", "x.json", "--out", "out", "--how", how]
    arguments += ["--weights", weights] if weights else []
    arguments += [part for folder in held_out or () for part in ("--held-out", folder)]
    arguments += ["--held-out-data", data] if data else []
    assert told in refusal(*arguments)


def test_held_out_questions_are_not_those_of_the_ensemble(answer, encoder, squad_file):
    folders = [str(answer("a", encoder, 1)), str(answer("b", encoder, 2))]
    held_out = [part for folder in folders for part in ("--held-out", folder)]
    arguments = (*folders, "--data", squad_file(), "--out", "out", "--how", "weighted", *held_out)
    told = refusal(*arguments, "--held-out-data", squad_file())
    assert "8 of its questions, such as 'q0', are in --data too" in told


# Bad input


def refusal(*arguments):
    shown = CliRunner().invoke(app, ["ensemble", *map(str, arguments)], env={"COLUMNS": "80"})
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.splitlines()) == 1
    return shown.stderr


def test_bad_folders_are_refused_in_one_line(answer, encoder, spelling_encoder, questions, squad_file, tmp_path):
    data, out = squad_file(), tmp_path / "out"
    one, other, spelled = answer("a", encoder, 1), answer("b", encoder, 2), answer("s", spelling_encoder)
    fewer, only = answer("few", encoder, chosen=questions[:5]), answer("only", encoder, has_null=False)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "logits.safetensors").write_bytes(b"no tensors")

    def told(*folders, data=data, out=out, how="mean"):
        return refusal(*folders, "--data", data, "--out", out, "--how", how)

    assert "an ensemble has two members or more, got 1" in told(one)
    assert "given twice" in told(one, other, tmp_path / "b" / ".." / "a")
    assert "is a member of the ensemble; choose another --out" in told(one, other, out=other)
    assert "no logits.safetensors in it; give OUT/predictions/FRACTION/ROW or" in told(one, tmp_path)
    assert "no logits.safetensors in it" in told(one, tmp_path / "nowhere")
    assert "damaged or not this project's logits" in told(one, bare)
    assert "answer different questions; give folders of one question file" in told(one, fewer)
    assert "combine models of one task" in told(one, only)
    assert "have no common scale" in told(one, spelled, how="logits")
    assert "not the file that" in told(one, other, data=squad_file("few.json", questions[:5]))
    assert "not the file that" in told(one, other, data=squad_file("h.json", held_out_questions()))
    assert "in another order" in told(one, other, data=squad_file("back.json", questions[::-1]))
    cut = [Question(each.id, each.text, each.context[:9], (), "") for each in questions]
    assert "the context of question 'q0' is not the one" in told(one, other, data=squad_file("cut.json", cut))
    assert "cannot be read" in told(one, other, data=tmp_path / "nowhere.json")
    assert not out.exists()


# On the command line


def test_scores_are_printed_as_a_table_or_as_json(answer, encoder, squad_file, tmp_path):
    folders = [answer("1/encoder", encoder, 1), answer("0.5/encoder", encoder, 2)]
    arguments = ["ensemble", *folders, "--data", squad_file(), "--out", tmp_path / "out", "--how", "weighted"]
    arguments = [str(each) for each in [*arguments, "--weights", "3,1"]]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["model", "weight", "EM", "F1", "best", "F1", "span", "F1"] in lines
    assert [line[0] for line in lines if len(line) in (5, 6)] == ["1/encoder", "0.5/encoder", "ensemble"]
    made = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [member["weight"] for member in made["members"]] == [0.75, 0.25]
    assert (made["questions"], made["combined_by"], made["scores"]["total"]) == (8, "tokens", 8)


@pytest.mark.flow
def test_runs_with_different_tokenizers_answer_together(
    encoder_folder, spelling_encoder, squad_file, questions, tmp_path
):
    spelling_encoder.model.save_pretrained(tmp_path / "spelling")
    spelling_encoder.tokenizer.save_pretrained(tmp_path / "spelling")
    data, folders = str(squad_file()), []
    for place in (encoder_folder, tmp_path / "spelling"):
        settings = {
            "data": {"train": data, "dev": data},
            "encoder": str(place),
            "windows": {"max_length": 48, "stride": 8},
            "finetune": {"fractions": [1], "batch": {"windows": 4}, "lr": 1e-3},
            "heads": {"train": ["last_linear"], "batch": {"windows": 4}},
            "device": "cpu",
        }
        (tmp_path / f"{place.name}.yaml").write_text(yaml.safe_dump(settings))
        run = tmp_path / f"run_{place.name}"
        shown = CliRunner().invoke(app, ["run", str(tmp_path / f"{place.name}.yaml"), "--out", str(run), "--quiet"])
        assert shown.exit_code == 0, shown.output
        folders += [run / "predictions" / "1" / row for row in ("encoder", "last_linear")]
    out = tmp_path / "all"
    arguments = ["ensemble", *map(str, folders), "--data", data, "--out", str(out), "--how", "mean", "--json"]
    made = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert (made["combined_by"], len(made["members"])) == ("spans", 4)
    assert is_within(made["scores"], official(out, questions))
    record = json.loads((tmp_path / "run_tiny" / "records" / "encoder-1-seed1.json").read_text())
    others = ("ece", "risk_coverage_area", "reader_")  # of the reader, and of probabilities
    calibration = {name: score for name, score in record["scores"].items() if name.startswith(others)}
    assert made["members"][0]["scores"] | calibration == record["scores"]


def test_folders_of_labels_are_refused_with_what_joins_them(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "predictions.json").write_text('{"0": "entailment"}')
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tthe weir\ta weir\tentailment\n")
    command = ["ensemble", *(str(tmp_path / name) for name in ("a", "b"))]
    done = CliRunner().invoke(app, [*command, "--data", str(tmp_path / "dev.tsv"), "--out", str(tmp_path / "both")])
    assert done.exit_code == 2
    told = " ".join(done.stderr.split())
    assert "a: no logits.safetensors in it" in told
    assert "--task where it is of another task" in told
