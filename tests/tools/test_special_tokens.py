import math
import runpy
from pathlib import Path

import pytest
import torch

from bertvision.encoder.load import load_encoder

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "special_tokens.py"))
distances = TOOL["distances"]


def test_states_that_a_layer_makes_equal_stay_equal_above_it(saved_encoder, squad_file):
    encoder = load_encoder(str(saved_encoder))
    plain = distances(encoder, squad_file(), 2)
    assert all(layer["first separator"] > 0.1 and layer["context"] > 0.1 for layer in plain)
    embeddings, tokenizer = encoder.model.embeddings, encoder.tokenizer
    with torch.no_grad():  # no positions, no types, and one vector for both kinds of special token
        embeddings.position_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        words = embeddings.word_embeddings.weight
        words[tokenizer.sep_token_id] = words[tokenizer.cls_token_id]
    equal = distances(encoder, squad_file(), 2)
    assert all(max(layer["first separator"], layer["last separator"]) < 1e-4 < layer["context"] for layer in equal)


def test_f1_at_a_threshold_lies_between_the_points_of_the_curve(make_record):
    record = make_record(scores={"f1": 50.0}, curves={"threshold": [(-4.0, 0.0, 60.0), (0.0, 0.0, 50.0)]})
    assert TOOL["f1_at"](record, 0.0) == 50.0
    assert TOOL["f1_at"](record, TOOL["THIRD"]) == pytest.approx(50 + 10 * 2 * math.log(3) / 4)
