import runpy
from pathlib import Path

import pytest
import torch

from bertvision.encoder.load import load_encoder
from bertvision.errors import EncoderError
from bertvision.experiment import build_experiment
from bertvision.stages.run import run

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "inject.py"))
FEED_FORWARD = 2 * (32 * 64 + 64 + 64 * 32 + 32)  # of the two blocks of the tiny encoder


@pytest.fixture
def tuned(encoder, tmp_path):
    """The tiny encoder with 1 added to every weight."""
    with torch.no_grad():
        for param in encoder.model.parameters():
            param.add_(1)
    encoder.model.save_pretrained(tmp_path / "tuned")
    encoder.tokenizer.save_pretrained(tmp_path / "tuned")
    return tmp_path / "tuned"


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_a_share_of_the_tuned_feed_forward_weights_stands_in_the_fresh_encoder(share, saved_encoder, tuned, tmp_path):
    injected = TOOL["inject"](str(saved_encoder), str(tuned), tmp_path / "out", share)
    before = load_encoder(str(saved_encoder)).model.state_dict()
    after = load_encoder(str(tmp_path / "out")).model.state_dict()
    moved = {name: (after[name] - value).round() for name, value in before.items()}  # 1 where it is the tuned one
    assert {name for name, change in moved.items() if change.any()} == (
        {name for name in before if ".dense." in name and "attention" not in name and "pooler" not in name}
        if share
        else set()
    )
    assert sum(change.sum().item() for change in moved.values()) == injected
    assert abs(injected / FEED_FORWARD - share) <= 4 * (share * (1 - share) / FEED_FORWARD) ** 0.5


def test_the_encoder_is_scored_without_training(saved_encoder, tuned, squad_file, tmp_path):
    TOOL["inject"](str(saved_encoder), str(tuned), tmp_path / "out", 0.5)
    data = str(squad_file())
    settings = {"data": {"train": data, "dev": data}, "encoder": str(tmp_path / "out"), "device": "cpu"}
    settings |= {"windows": {"max_length": 24, "stride": 4}, "finetune": {"fractions": [0]}, "heads": {"train": []}}
    (record,) = run(build_experiment(settings), tmp_path / "run")
    assert (record.fraction, record.model, record.seconds.finetune) == (0, "encoder", 0)
    assert 0 <= record.scores["f1"] <= 100


def test_an_encoder_of_another_size_is_refused(saved_encoder, encoder, tmp_path):
    config = encoder.model.config
    config.intermediate_size = 8
    type(encoder.model)(config).save_pretrained(tmp_path / "other")
    encoder.tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(EncoderError, match="not tuned from"):
        TOOL["inject"](str(saved_encoder), str(tmp_path / "other"), tmp_path / "out", 0.5)
    assert not (tmp_path / "out").exists()
