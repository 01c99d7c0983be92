import json

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from bertvision.cli import app
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.model_folder import ModelConfig, save_encoder
from bertvision.predictions.prediction import AnswerConfig
from bertvision.serving.layers import layers_of_file
from bertvision.training.checkpoint import fingerprint
from bertvision.windows.window import WindowConfig, cut_windows

WINDOWS = WindowConfig(max_length=18, stride=4)  # most contexts need several
ANSWERS = AnswerConfig(max_answer_length=4, batch_tokens=64)


@pytest.fixture
def model(encoder, tmp_path):
    """Write a MODEL_DIR with a head of random weights; gives a function of (head's name, task)."""

    def make(name="learned_pooling", task="squad2"):
        torch.manual_seed(0)
        head = build_head(HeadConfig.model_validate(name), encoder.shape).eval()
        for weight in head.parameters():
            nn.init.normal_(weight, std=0.5)
        config = ModelConfig(
            head=HeadConfig.model_validate(name),
            layers=encoder.shape.layers,
            hidden=encoder.shape.hidden,
            encoder=".",
            encoder_is_path=True,
            encoder_fingerprint=fingerprint(encoder.model),
            task=task,
            windows=WINDOWS,
            answers=ANSWERS,
        )
        save_encoder(tmp_path / name, encoder, head, config)
        return tmp_path / name, head

    return make


def parts_of_windows(encoder, head, questions):
    """Return every window and its parts, [part, token, start and end], from the encoder and the weights themselves."""
    shares = head.pooler.weights.exp() / head.pooler.weights.exp().sum() * head.pooler.scale
    for window in cut_windows(questions, encoder.tokenizer, WINDOWS):
        ids = torch.from_numpy(window.ids).long()[None]
        types = (torch.arange(ids.shape[1])[None] >= window.context_at).long()
        with torch.no_grad():
            states = encoder.model(ids, token_type_ids=types, output_hidden_states=True).hidden_states
            parts = [
                share * (state[0] @ head.readout.linear.weight.T) for share, state in zip(shares, states, strict=True)
            ]
        bias = head.readout.linear.bias.detach().expand_as(parts[0])
        yield window, torch.stack([*parts, bias]).double().numpy()


def expected_means(encoder, head, questions):
    """Search every window's spans one by one."""
    best, gold, null = ([[] for _ in questions] for _ in range(3))
    for window, parts in parts_of_windows(encoder, head, questions):
        question = window.example
        stop = window.context_at + len(window.offsets)
        for start in range(window.context_at, stop):
            for end in range(start, min(start + 4, stop)):
                best[question].append(parts[:, start, 0] + parts[:, end, 1])
        if window.start:
            gold[question].append(parts[:, window.start, 0] + parts[:, window.end, 1])
        null[question].append(parts[:, 0, 0] + parts[:, 0, 1])
    highest = [[max(found, key=np.sum) for found in each if found] for each in (best, gold)]
    lowest = [min(found, key=np.sum) for found in null]
    return *(np.array(each) for each in highest), np.array(lowest)


def test_every_layer_has_the_mean_of_what_it_adds_to_the_scores_of_spans(encoder, questions, model, squad_file):
    folder, head = model()
    found = layers_of_file(folder, str(squad_file()))
    best, gold, null = expected_means(encoder, head, questions)
    assert (found.questions, found.golds) == (8, len(gold))
    assert [each.name for each in found.parts] == ["layer 0", "layer 1", "layer 2", "bias"]
    means = {"best": best.mean(axis=0), "gold": gold.mean(axis=0), "null": null.mean(axis=0)}
    is_impossible = np.array([each.is_impossible for each in questions])
    means["difference"] = (best - null).mean(axis=0)
    means["has_answer"] = (best - null)[~is_impossible].mean(axis=0)
    means["no_answer"] = (best - null)[is_impossible].mean(axis=0)
    for column, expected in means.items():
        assert [getattr(each, column) for each in found.parts] == pytest.approx(expected, abs=1e-4), column
        assert getattr(found.total, column) == pytest.approx(expected.sum(), abs=1e-4)
    shares = torch.softmax(head.pooler.weights.detach(), dim=0).tolist()
    assert [each.weight for each in found.parts[:3]] == pytest.approx(shares, abs=1e-6)
    assert found.parts[3].weight is None


def test_the_sums_are_the_scores_of_the_predictions(model, squad_file, tmp_path):
    folder, _ = model("adapter_64_shared_skip")
    data = str(squad_file())
    arguments = ["predict", str(folder), "--data", data, "--out", str(tmp_path / "out"), "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    odds = json.loads((tmp_path / "out" / "official" / "null_odds.json").read_text())
    assert layers_of_file(folder, data).total.difference == pytest.approx(-np.mean(list(odds.values())), abs=1e-4)


def test_a_task_without_no_answer_has_spans_alone(model, questions, squad_file):
    folder, _ = model(task="squad1")
    answerable = [each for each in questions if each.answers]
    found = layers_of_file(folder, str(squad_file(chosen=answerable)))
    assert found.total.best is not None
    assert (found.total.null, found.total.difference, found.total.has_minus_no_answer) == (None, None, None)
    (section,) = found.as_page().tables
    assert section.header[:4] == ("part", "weight", "best", "gold")


def test_a_file_without_answers_has_no_gold_spans(model, squad_file, tmp_path):
    content = json.loads(squad_file().read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"], question["is_impossible"]
    (tmp_path / "asked.json").write_text(json.dumps(content))
    found = layers_of_file(model()[0], str(tmp_path / "asked.json"))
    assert (found.golds, found.total.gold, found.total.has_answer, found.total.has_minus_no_answer) == (
        0,
        None,
        None,
        None,
    )
    assert found.total.difference is not None


def test_an_answer_that_does_not_stand_where_it_says_is_no_gold_span(model, squad_file, tmp_path):
    content = json.loads(squad_file().read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    (tmp_path / "moved.json").write_text(json.dumps(content))
    folder, _ = model()
    assert (
        layers_of_file(folder, str(tmp_path / "moved.json")).golds
        == layers_of_file(folder, str(squad_file())).golds - 1
    )


def call(*arguments):
    return CliRunner().invoke(app, ["analyze", *map(str, arguments), "--layers", "--quiet"])


def test_the_verb_prints_a_table_of_80_columns_with_a_bar_for_every_layer(model, squad_file):
    result = call(model()[0], "--gold", squad_file())
    assert result.exit_code == 0, result.exception
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith(("8 questions", "head "))) <= 80
    assert sum(line.startswith("layer ") and "│" in line for line in lines) == 2 * 3
    assert lines[1].startswith("head learned_pooling of ")


def test_the_verb_prints_json_with_everything(model, squad_file):
    folder, _ = model()
    result = call(folder, "--gold", squad_file(), "--json")
    found = json.loads(result.stdout)
    assert [each["name"] for each in found["parts"]] == ["layer 0", "layer 1", "layer 2", "bias"]
    assert set(found["total"]) >= {
        "best",
        "gold",
        "null",
        "difference",
        "has_answer",
        "no_answer",
        "has_minus_no_answer",
    }


@pytest.mark.parametrize("name", ["lp_adapter_386", "adapter_386_shared_skip_joint"])
def test_a_head_that_is_no_sum_over_layers_is_refused_in_one_line(model, squad_file, name):
    result = call(model(name)[0], "--gold", squad_file())
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is no sum over layers" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_model_without_spans_is_refused_in_one_line(model, squad_file):
    result = call(model(task="rte")[0], "--gold", squad_file())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("a model of rte has no spans; give one of squad1 or squad2\n")
