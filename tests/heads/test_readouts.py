import numpy as np
import pytest
import torch

from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.readouts import BiLstmReadout, BiLstmRowReadout, ClassReadout, SpanReadout, TagReadout
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.objective import Objective


@pytest.mark.parametrize("make", [SpanReadout, lambda features: TagReadout(features, 5)], ids=["span", "tags"])
def test_logits_are_as_fine_as_float32_under_autocast(make):
    torch.manual_seed(0)
    readout, features = make(8), torch.randn(4, 16, 8).bfloat16()
    mask = torch.ones(4, 16, dtype=torch.bool)
    expected = features.float() @ readout.linear.weight.T + readout.linear.bias
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = readout(features, torch.zeros(4, 2, 16, 8), mask)
    torch.testing.assert_close(logits, expected)
    assert not torch.equal(logits, logits.bfloat16().float())


def test_a_row_is_read_from_its_first_place():
    readout, features = ClassReadout(8, 3), torch.randn(4, 16, 8)
    logits = readout(features, torch.zeros(4, 2, 16, 8), torch.ones(4, 16).bool())
    torch.testing.assert_close(logits, features[:, 0] @ readout.linear.weight.T + readout.linear.bias)


# Reading in both directions


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def read_one_way(rows, weights, suffix):
    """Compute an LSTM step by step, as Hochreiter and Schmidhuber have it, with a forget gate."""
    to_gates, from_state, bias, other_bias = (weights[f"{name}_{suffix}"] for name in NAMES)
    width = from_state.shape[1]
    state, cell, states = np.zeros(width), np.zeros(width), []
    for row in rows:
        gates = to_gates @ row + from_state @ state + bias + other_bias
        entry, forget, new, out = (gates[place * width : (place + 1) * width] for place in range(4))
        cell = sigmoid(forget) * cell + sigmoid(entry) * np.tanh(new)
        state = sigmoid(out) * np.tanh(cell)
        states.append(state)
    return np.stack(states)


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def test_a_bilstm_reads_real_tokens_in_both_directions_twice():
    torch.manual_seed(0)
    readout, features = BiLstmReadout(6, 4, tags=3), torch.randn(2, 5, 6)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    logits = readout(features, torch.zeros(2, 1, 5, 6), mask).detach().numpy()
    output = readout.linear.weight.detach().numpy().T
    for row, length in enumerate((5, 3)):
        states = read_both_ways(features[row, :length], readout.lstm)
        np.testing.assert_allclose(logits[row, :length], states @ output, rtol=1e-4, atol=1e-5)


def read_both_ways(features, lstm):
    """Read one row's features as two layers of a BiLSTM do, in NumPy."""
    weights = {name: weight.detach().double().numpy() for name, weight in lstm.named_parameters()}
    states = features.double().numpy()
    for layer in (0, 1):
        forth = read_one_way(states, weights, f"l{layer}")
        back = read_one_way(states[::-1], weights, f"l{layer}_reverse")[::-1]
        states = np.concatenate([forth, back], axis=1)
    return states


def test_a_bilstm_scores_a_row_by_what_both_readings_end_with():
    torch.manual_seed(0)
    readout, features = BiLstmRowReadout(6, 4, classes=3), torch.randn(2, 5, 6)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    logits = readout(features, torch.zeros(2, 1, 5, 6), mask).detach().numpy()
    for row, length in enumerate((5, 3)):
        states = read_both_ways(features[row, :length], readout.lstm)
        ends = np.concatenate([states[-1, :4], states[0, 4:]])
        np.testing.assert_allclose(logits[row], ends @ readout.linear.weight.detach().numpy().T, rtol=1e-4, atol=1e-5)


def test_a_bilstm_never_chooses_padding_as_the_end_of_a_span():
    torch.manual_seed(0)
    readout, mask = BiLstmReadout(6, 4, tags=2, spans=True), torch.arange(5) < torch.tensor([[5], [3]])
    logits = readout(torch.randn(2, 5, 6), torch.zeros(2, 1, 5, 6), mask)
    assert (logits[1, 3:] == torch.finfo(torch.float32).min).all()
    assert logits[mask].abs().max() < 10


def test_a_bilstm_computes_in_float32_under_autocast():
    torch.manual_seed(0)
    readout, features = BiLstmReadout(6, 4, tags=3), torch.randn(2, 5, 6)
    mask = torch.ones(2, 5).bool()
    expected = readout(features, torch.zeros(2, 1, 5, 6), mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(readout(features, torch.zeros(2, 1, 5, 6), mask), expected)


@pytest.mark.parametrize(
    ("given", "width", "features"), [("bilstm_last", 384, 32), ("bilstm_concat_last_four", 384, 4 * 32)]
)
def test_a_bilstm_is_768_wide_as_in_the_paper_unless_told_otherwise(given, width, features):
    shape, objective = StackShape(7, 32), Objective(KINDS["tags"], 9)
    head = build_head(HeadConfig.model_validate(given), shape, objective)
    assert (head.readout.lstm.hidden_size, head.readout.lstm.input_size) == (width, features)
    assert head.readout.linear.weight.shape == (9, 768)
    narrow = HeadConfig.model_validate({"head": given, "name": "narrow", "readout_width": 10})
    assert build_head(narrow, shape, objective).readout.lstm.hidden_size == 10
