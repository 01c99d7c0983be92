import numpy as np
import pytest
import torch

from bertvision.encoder.encode import (
    encode,
    encode_cls,
    encode_output,
    has_pooler,
    layers_of_output,
    places_of_states,
    shape_of_states,
)
from bertvision.errors import EncoderError
from bertvision.tasks import KINDS
from bertvision.training.objective import SPANS, Objective
from bertvision.windows.batches import collate
from bertvision.windows.window import WindowConfig, cut_windows


@pytest.fixture
def batch(encoder, questions):
    return collate(cut_windows(questions, encoder.tokenizer, WindowConfig()), np.arange(8), 0)


@pytest.fixture
def output(encoder, batch):
    with torch.no_grad():
        return encoder.model(batch.ids, batch.mask.long(), batch.segments, output_hidden_states=True)


def test_the_layers_of_a_batch_and_of_its_parts_lie_in_one_piece_each(encoder, batch):
    states = encode(encoder, batch)
    assert states.transpose(0, 1).is_contiguous()
    part = states[2:5].transpose(0, 1)
    assert part.flatten(1, 2).data_ptr() == part.data_ptr()  # a view: layer x (batch token) x hidden


@pytest.mark.parametrize("layers", [(0,), (2,), (0, 2)])
def test_some_layers_are_the_same_as_in_all(layers, encoder, batch, output):
    states = encode(encoder, batch, layers=layers)
    assert torch.equal(states, torch.stack([output.hidden_states[layer] for layer in layers], dim=1))


def test_cls_states_begin_with_the_pooled_one(encoder, batch, output):
    states = encode_cls(encoder, batch)
    assert states.shape == (8, 4, 1, 32)
    assert torch.equal(states[:, 0, 0], output.pooler_output)
    assert torch.equal(states[:, 1, 0], output.hidden_states[0][:, 0])
    assert torch.equal(states[:, 3, 0], output.last_hidden_state[:, 0])
    some = encode_cls(encoder, batch, layers=(1,))
    assert torch.equal(some, states[:, [0, 2]])


def test_an_encoder_without_pooler_gives_its_layers_alone(encoder, batch, output):
    encoder.model.pooler = None
    states = encode_cls(encoder, batch)
    assert not has_pooler(encoder)
    assert torch.equal(states[:, :, 0], torch.stack([state[:, 0] for state in output.hidden_states], dim=1))


def test_the_shape_of_states_is_known_beforehand(encoder, batch):
    for layers in (None, (0, 2), (1,)):
        assert shape_of_states(encoder, layers) == (encode(encoder, batch, layers=layers).shape[1], 32)
        assert shape_of_states(encoder, layers, pooling="first") == (
            encode_cls(encoder, batch, layers=layers).shape[1],
            32,
        )
    encoder.model.pooler = None
    assert shape_of_states(encoder, pooling="first") == (3, 32)


def test_layers_that_the_encoder_has_not_are_refused(encoder):
    with pytest.raises(EncoderError, match=r"has the states 0 to 2, states\.layers names 3"):
        shape_of_states(encoder, (1, 3))


ROWS = Objective(KINDS["class"], 2)


def test_the_output_layer_reads_every_token_or_the_pooled_state_or_the_first_token(encoder, batch, output):
    for objective in (SPANS, Objective(KINDS["tags"], 3)):
        assert torch.equal(encode_output(encoder, batch, objective), output.last_hidden_state[:, None])
    assert torch.equal(encode_output(encoder, batch, ROWS), output.pooler_output[:, None, None])
    encoder.model.pooler = None
    assert torch.equal(encode_output(encoder, batch, ROWS), output.last_hidden_state[:, None, :1])


@pytest.mark.parametrize("pooled", [True, False])
def test_the_output_layer_finds_what_it_reads_among_all_states(pooled, encoder, batch):
    if not pooled:
        encoder.model.pooler = None
    layers = layers_of_output(encoder, ROWS)
    states = encode_cls(encoder, batch)
    assert torch.equal(states[:, list(layers or [-1])], encode_output(encoder, batch, ROWS))
    assert layers_of_output(encoder, SPANS) is None  # the last


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("layers", [None, (0, 2), (1,)])
def test_states_of_some_layers_are_found_among_those_of_all(pooled, layers, encoder, batch):
    if not pooled:
        encoder.model.pooler = None
    for pooling, run in ((None, encode), ("first", encode_cls)):
        places = places_of_states(encoder, layers, pooling=pooling)
        whole = run(encoder, batch)
        chosen = whole if places is None else whole[:, list(places)]
        assert torch.equal(run(encoder, batch, layers=layers), chosen)
