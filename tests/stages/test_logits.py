import torch

from bertvision.features.windows import WindowConfig, cut_windows
from bertvision.heads.build import HeadConfig, build_head
from bertvision.predictions.logits import grid_of, load_logits, save_logits
from bertvision.predictions.prediction import AnswerConfig
from bertvision.predictions.spans import predict_spans
from bertvision.stages.logits import token_logits


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
