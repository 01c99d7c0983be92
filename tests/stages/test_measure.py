import numpy as np
import pytest
import torch

from bertvision.encoder.encode import freeze
from bertvision.heads.config import HeadConfig
from bertvision.heads.logits import reading_of
from bertvision.heads.training import build_heads
from bertvision.stages.measure import measure_inference
from bertvision.windows.plan import spread
from bertvision.windows.window import WindowConfig, cut_windows


@pytest.fixture
def windows(encoder, questions):
    return cut_windows(questions[:1], encoder.tokenizer, WindowConfig()) * 3


def build(given, encoder):
    config = HeadConfig.model_validate(given)
    return config, build_heads([config], encoder.shape, seed=1)[config.name]


def test_operations_are_those_of_the_matrix_products(encoder, windows, cpu):
    encoder.model.pooler = None
    found = measure_inference(freeze(encoder, cpu), *build("last_linear", encoder), windows, cpu, tokens=4096)
    tokens, hidden, wide = len(windows[0]), 32, 64
    block = 4 * hidden * hidden + 2 * hidden * wide  # query, key, value, output; up and down
    attention = 2 * tokens * hidden  # scores, and the sum of values
    expected = 2 * tokens * (2 * (block + attention) + hidden * 2)  # two blocks; a product and a sum are two
    assert found.operations == pytest.approx(len(windows) * expected)
    assert found.windows == 3
    assert found.seconds > 0
    assert found.latency > 0


def test_a_head_of_the_last_state_is_given_no_other(encoder, windows, cpu):
    seen = {}
    pairs = {"name": "pairs", "head": "last_linear", "readout": "joint"}  # its readout reads all states
    for given in ("last_linear", "cacnn_simple", "learned_pooling", pairs):
        config, head = build(given, encoder)
        name = config.name
        head.register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0].shape[1]}))
        measure_inference(freeze(encoder, cpu), config, head, windows, cpu, tokens=4096)
    assert seen == {"last_linear": 1, "cacnn_simple": 1, "learned_pooling": 3, "pairs": 3}


def test_a_head_with_chosen_layers_is_given_all_to_choose_from(encoder):
    config, head = build("last_linear", encoder)
    head.layers = (0, 1)
    assert reading_of(config, head) is not reading_of(*build("last_linear", encoder))


def test_a_sample_is_spread_evenly():
    assert spread(5, 3).tolist() == [0, 2, 4]
    assert spread(2, 10).tolist() == [0, 1]
    assert np.diff(spread(1000, 11)).tolist() == pytest.approx([100] * 10, abs=1)


def test_measuring_leaves_no_graph(encoder, windows, cpu):
    config, head = build("learned_pooling", encoder)
    outputs = []
    head.register_forward_hook(lambda _, given, output: outputs.append(output))
    measure_inference(freeze(encoder, cpu), config, head, windows, cpu, tokens=4096)
    assert not any(isinstance(output, torch.Tensor) and output.requires_grad for output in outputs)
