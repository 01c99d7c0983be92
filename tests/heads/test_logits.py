import numpy as np
import pytest
import torch

from bertvision.encoder.encode import encode, encode_cls, shape_of_states
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.logits import row_logits, token_logits
from bertvision.predictions.logits import grid_of, load_logits, save_logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import predict_spans
from bertvision.tasks import KINDS
from bertvision.training.objective import Objective
from bertvision.windows.batches import collate
from bertvision.windows.window import WindowConfig, cut_windows


def test_every_head_has_its_own_number_of_scores_per_token(encoder, questions, cpu, tmp_path):
    torch.manual_seed(0)
    heads = {
        name: build_head(HeadConfig.model_validate(name), encoder.shape)
        for name in ("last_linear", "adapter_386_shared_skip_joint")
    }
    windows = cut_windows(questions, encoder.tokenizer, WindowConfig())
    grid = grid_of(windows, [question.id for question in questions])
    logits = token_logits(encoder, heads, windows, cpu)
    tokens = sum(len(window) for window in windows)
    assert [each.shape for each in logits.values()] == [(tokens, 2), (tokens, 2 + 2 * 8)]
    for each in logits.values():
        answers = predict_spans(grid, each, [question.context for question in questions], AnswerConfig(), has_null=True)
        assert [answer.question_id for answer in answers] == [question.id for question in questions]
        save_logits(tmp_path / "logits.safetensors", grid, each)
        assert load_logits(tmp_path / "logits.safetensors")[1].tobytes() == each.tobytes()


@pytest.mark.parametrize("pooling", [None, "first"])
@pytest.mark.parametrize("layers", [None, (0, 2)])
def test_every_row_has_the_logits_that_a_head_gives_it(pooling, layers, make_task, encoder, cpu):
    windows, _ = make_task("class")
    shape = shape_of_states(encoder, layers, pooling=pooling)
    heads = {
        name: build_head(HeadConfig.model_validate(name), shape, Objective(KINDS["class"], columns))
        for name, columns in (("learned_pooling", 3), ("adapter_64_shared_skip", 1))
    }
    found = row_logits(encoder, heads, windows, cpu, tokens=40, layers=layers, pooling=pooling)  # in several batches
    for row in range(len(windows)):
        batch = collate(windows, np.array([row]), 0)
        states = (encode_cls if pooling else encode)(encoder, batch, layers=layers)
        seen = batch.first_tokens() if pooling else batch
        for name, head in heads.items():
            expected = head(states, seen.mask, seen.segments)[0].detach().numpy()
            np.testing.assert_allclose(found[name][row], expected, rtol=1e-4, atol=1e-5)


def test_tags_have_logits_for_every_token_in_the_order_of_windows(make_task, encoder, cpu):
    windows, objective = make_task("tags")
    head = build_head(HeadConfig.model_validate("bilstm_last"), encoder.shape, objective)
    found = token_logits(encoder, {"head": head}, windows, cpu)["head"]
    parts = np.split(found, np.cumsum([len(window) for window in windows])[:-1])
    for row, part in enumerate(parts):
        batch = collate(windows, np.array([row]), 0)
        expected = head(encode(encoder, batch), batch.mask, batch.segments)[0].detach().numpy()
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)
