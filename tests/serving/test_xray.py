from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import bertvision
from bertvision.data.example import Question
from bertvision.errors import DataError, SettingsError
from bertvision.predictions.logits import grid_of
from bertvision.serving.onnx_model import OnnxConfig, OnnxEngine, Session
from bertvision.serving.reader import Reader
from bertvision.serving.xray import XrayQuestion, xray, xray_answer
from bertvision.windows.window import cut_windows

QUESTION = "  who built the weir?"
CONTEXT = "The weir was built in 1887 by hannah coyle. the river was by the stone, where the weir was built by coyle"


def logits_of_windows(reader, question, context):
    """The model's own logits, window by window."""
    asked = Question("q", question, context, (), "")
    windows = cut_windows([asked], reader.served.tokenizer, reader.served.config.windows, labelled=False)
    at = grid_of(windows, ["q"]).window_at
    return windows, np.split(reader.served.logits(windows), at[1:-1])


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        ("learned_pooling", ("layer 0", "layer 1", "layer 2", "bias")),
        ("adapter_64_shared_skip", ("layer 0", "layer 1", "layer 2", "skip", "bias")),
    ],
)
def test_summed_over_layers_it_is_the_logits_that_the_model_gives(make_folder, head, parts):
    reader = bertvision.load(make_folder(head=head), device="cpu")
    windows, logits = logits_of_windows(reader, QUESTION, CONTEXT)
    assert len(windows) > 2
    for answer in reader(QUESTION, CONTEXT, top_k=8):
        found = xray(reader, QUESTION, CONTEXT, answer)
        assert found.parts == parts
        own = [place for place, each in enumerate(windows) if inside(each, answer.window)]
        sums = np.stack([found.starts.sum(axis=1), found.ends.sum(axis=1)], axis=1)
        np.testing.assert_allclose(sums, logits[own[0]], atol=1e-4)
        np.testing.assert_allclose(np.stack([found.start_logits, found.end_logits], axis=1), sums, rtol=1e-4, atol=1e-5)
        assert found.start_logits[found.first] + found.end_logits[found.last] == pytest.approx(answer.score, abs=1e-4)


def inside(window, characters):
    return (window.offsets[0, 0], window.offsets[-1, 1]) == characters


def test_its_tokens_are_those_of_the_texts(shared_reader):
    answer = next(each for each in shared_reader(QUESTION, CONTEXT, top_k=8) if each.text)
    found = xray(shared_reader, QUESTION, CONTEXT, answer)
    assert [token.text for token in found.tokens[:7]] == ["[CLS]", "who", "built", "the", "weir", "?", "[SEP]"]
    assert [token.side for token in found.tokens[:7]] == ["special", *["question"] * 5, "special"]
    assert (found.tokens[-1].text, found.tokens[-1].side) == ("[SEP]", "special")
    texts = {"question": QUESTION, "context": CONTEXT}
    told = [token for token in found.tokens if token.side != "special"]
    assert all(texts[token.side][token.start : token.end] == token.text for token in told)
    assert {token.side for token in found.tokens[7:-1]} == {"context"}
    first, last = found.tokens[found.first], found.tokens[found.last]
    assert CONTEXT[first.start : last.end] == answer.text


def test_without_an_answer_it_looks_through_the_one_that_is_given(shared_reader):
    given = shared_reader(QUESTION, CONTEXT)
    found, chosen = xray(shared_reader, QUESTION, CONTEXT), xray(shared_reader, QUESTION, CONTEXT, given)
    assert (found.tokens, found.first, found.last) == (chosen.tokens, chosen.first, chosen.last)


def test_no_answer_is_read_from_the_first_token_of_the_window_where_it_is_least_likely(shared_reader):
    nothing = next(each for each in shared_reader(QUESTION, CONTEXT, top_k=30) if not each.text)
    found = xray(shared_reader, QUESTION, CONTEXT, nothing)
    assert (found.first, found.last) == (0, 0)
    windows, logits = logits_of_windows(shared_reader, QUESTION, CONTEXT)
    lowest = int(np.argmin([each[0].sum() for each in logits]))
    read = [token for token in found.tokens if token.side == "context"]
    assert inside(windows[lowest], (read[0].start, read[-1].end))


def test_as_json_it_still_adds_up(shared_reader):
    found = xray(shared_reader, QUESTION, CONTEXT)
    told = found.as_dict()
    assert told["tokens"][1] == {"text": "who", "side": "question", "start": 2, "end": 5}
    np.testing.assert_allclose(np.sum(told["starts"], axis=1), found.start_logits, atol=1e-4)
    np.testing.assert_allclose(told["end_logits"], found.end_logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("answer", [(3, 3), (-4, 2), (8, 4), (0, 10_000), (3, 4)])
def test_characters_that_hold_no_token_are_refused(shared_reader, answer):
    with pytest.raises(DataError, match="no token stands in characters"):
        xray_answer(shared_reader, XrayQuestion(QUESTION, CONTEXT, answer))


def test_an_answer_that_no_window_holds_is_refused(shared_reader):
    with pytest.raises(DataError, match="more than the model reads at once"):
        xray_answer(shared_reader, XrayQuestion(QUESTION, CONTEXT, (0, len(CONTEXT))))


def test_a_model_without_states_is_refused(shared_reader):
    engine = OnnxEngine(Path("folder/exported"), Mock(spec=OnnxConfig), 0, Mock(spec=Session))
    exported = Reader(replace(shared_reader.served, engine=engine))
    with pytest.raises(SettingsError, match="^exported: is an exported ONNX model"):
        xray(exported, QUESTION, CONTEXT)


def test_a_head_that_is_no_sum_over_layers_is_refused(make_folder):
    reader = bertvision.load(make_folder(head="adapter_386_shared_skip_joint"), device="cpu")
    with pytest.raises(SettingsError, match="no sum over layers"):
        xray(reader, QUESTION, CONTEXT)
