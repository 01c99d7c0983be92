"""Scores of a caller's own beside a run's: those of the papers, and anybody's."""

from dataclasses import replace

import numpy as np
import pytest

from bertvision import run
from bertvision.data.example import Split
from bertvision.data.squad import read_squad
from bertvision.encoder.load import load_encoder
from bertvision.errors import FolderError
from bertvision.experiment import build_experiment
from bertvision.predictions.logits import load_logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.tasks import Task, open_answering
from bertvision.windows.window import WindowConfig, cut_windows
from studies.paper_scores import extra_scores

HEADS = ["learned_pooling", "adapter_64_shared_skip", "last_linear"]


@pytest.fixture
def settings(squad_file, encoder_folder):
    data = str(squad_file())
    return {
        "name": "tiny",
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "device": "cpu",
        "finetune": {"fractions": [1], "batch": {"windows": 2}, "lr": 1e-3},
        "heads": {"train": HEADS, "batch": {"windows": 4}},
        "ensembles": [
            {"models": ["encoder", "learned_pooling"]},
            {"models": ["encoder", "last_linear"], "method": "mean"},
        ],
    }


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def ask(tokenizer):
    """Return a function of (examples, names of scores): the split, ready to be answered."""

    def make(examples, names, part=""):
        split = Split("examples", tuple(examples), 0, None)
        windows, scores = WindowConfig(max_length=16, stride=4), extra_scores(names)
        task = Task("squad2", split, split, ())
        return open_answering(task, split, tokenizer, windows, AnswerConfig(), part=part, extra_scores=scores)

    return make


def run_with(settings, out, *overrides, scores=None):
    return run(build_experiment(settings, overrides), out, extra_scores=scores)


def in_2020(folder, golds, tokenizer, windows, *, largest_probabilities=False):
    """Score a row's logits as SPEC 4.2 words it, window by window and question by question."""
    grid, logits = load_logits(folder / "logits.safetensors")
    best = {}
    for number, window in enumerate(windows):
        own = logits[grid.window_at[number] : grid.window_at[number + 1]].astype(np.float64)
        weights = np.exp(own)
        probabilities = weights if largest_probabilities else weights / weights.sum(axis=0)
        (start, end), score = own.argmax(axis=0), probabilities.max(axis=0).prod()
        pieces = tokenizer.convert_ids_to_tokens(window.ids[start : end + 1].tolist()) if start <= end else []
        if window.example not in best or score > best[window.example][0]:
            best[window.example] = (score, [] if pieces == ["[CLS]"] else pieces)
    worths = [
        max(
            (gold == best[number][1], bag_f1(gold, best[number][1]))
            for gold in [tokenizer.tokenize(answer.text) for answer in question.answers] or [[]]
        )
        for number, question in enumerate(golds)
    ]
    return (100 * np.mean(worths, axis=0)).tolist()


def bag_f1(gold, answer):
    shared = sum(min(gold.count(piece), answer.count(piece)) for piece in set(gold))
    if not shared:
        return float(gold == answer)
    precision, recall = shared / len(answer), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def test_every_row_is_also_scored_as_in_2020_where_that_is_asked_for(settings, out):
    joint = {"name": "joint", "head": "adapter_64_shared_skip", "readout": "joint"}
    settings = {**settings, "heads": {**settings["heads"], "train": [*HEADS, joint]}}
    both = ("finetune.fractions=[1]", "heads.epochs=2", "states=live")
    settings["windows"] = {"max_length": 16, "stride": 4}
    records = {record.model: record for record in run_with(settings, out, *both, scores=extra_scores(["paper-v1"]))}
    golds, tokenizer = read_squad(settings["data"]["dev"]).examples, load_encoder(settings["encoder"]).tokenizer
    windows = cut_windows(golds, tokenizer, WindowConfig(max_length=16, stride=4), labelled=False)
    assert len(windows) > len(golds)
    for row, record in records.items():
        assert record.extra_scores == ("paper-v1",)
        if row == "joint":  # it scores pairs: there are no independent starts and ends
            assert not any("paper" in name for name in record.scores)
            continue
        folder, is_max = out / "predictions" / "1" / row, row == "encoder+learned_pooling"
        expected = in_2020(folder, golds, tokenizer, windows, largest_probabilities=is_max)
        assert [record.scores["paper_v1_exact"], record.scores["paper_v1_f1"]] == pytest.approx(expected)
        assert all("paper_v1_f1" in scores for scores in record.epoch_scores)


def test_in_2021_the_surest_window_without_an_answer_decided(ask, questions):
    """SPEC 8.2: a null score of 4 and one of 0 in two windows, and a best span of 2."""
    unanswerable = replace(questions[7], answers=())
    asked = ask([unanswerable], ["paper-v2"])
    assert len(asked.windows) > 1
    found = np.full((sum(map(len, asked.windows)), 2), -9.0, dtype=np.float32)
    firsts = np.cumsum([0, *map(len, asked.windows)])[:-1]
    found[firsts] = 0.0
    found[firsts[0]] = 2.0  # start and end: 4 in all
    found[-2] = 1.0  # the last word
    (answer,) = asked.answer(found)
    assert answer.text == "stone"  # 2 lies above the lowest
    assert answer.null_odds == -2.0
    scores = asked.score([answer], found)
    assert scores["f1"] == scores["exact"] == 0.0
    assert scores["paper_v2_f1"] == scores["paper_v2_exact"] == 100.0  # no answer: 4 lies above 2


@pytest.mark.parametrize(("part", "is_scored"), [("", True), ("held_out", False)])
def test_only_dev_is_scored_as_in_2020(ask, questions, part, is_scored):
    asked = ask(questions, ["paper-v1"], part=part)
    found = np.zeros((sum(map(len, asked.windows)), 2), dtype=np.float32)
    assert ("paper_v1_f1" in asked.score(asked.answer(found), found)) == is_scored


def count_windows(answering, logits, how):
    return {"windows": float(len(answering.windows)), "combined": float(how is not None)}


def test_scores_of_ones_own_stand_in_every_record(settings, out):
    records = run_with(settings, out, scores={"windows": count_windows})
    for record in records:
        assert record.scores["windows"] == record.data["dev"].windows
        assert record.scores["combined"] == (record.kind == "ensemble")
    assert run_with(settings, out, scores={"windows": count_windows}) == records


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize(("first", "then"), [(None, {"windows": count_windows}), ({"windows": count_windows}, None)])
def test_a_run_that_goes_on_needs_the_same_scores_and_says_so(settings, out, first, then, epochs):
    options = ("heads.train=[last_linear]", "ensembles=[]", f"heads.epochs={epochs}")
    run_with(settings, out, *options, scores=first)
    with pytest.raises(FolderError, match=r"extra.scores.*(choose another|delete)"):
        run_with(settings, out, *options, scores=then)
