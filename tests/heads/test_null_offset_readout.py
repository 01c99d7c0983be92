import pytest
import torch
from torch import nn

from bertvision.errors import SettingsError
from bertvision.experiment import build_experiment
from bertvision.heads.build import build_head
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import count_parameters
from bertvision.heads.readouts import NullOffsetReadout
from bertvision.shapes import StackShape

MASK = torch.arange(5) < torch.tensor([[5], [3]])
STATES = torch.zeros(2, 1, 5, 6)


@pytest.fixture
def output():
    torch.manual_seed(0)
    return nn.Linear(6, 2)


@pytest.fixture
def features():
    torch.manual_seed(1)
    return torch.randn(2, 5, 6)


def make(output, **options):
    readout = NullOffsetReadout(6, **options)
    readout.take(output)
    return readout


@pytest.mark.parametrize("scaled", [False, True])
def test_it_starts_as_the_output_layer_that_it_was_given(output, features, scaled):
    logits = make(output, scaled=scaled)(features, STATES, MASK)
    torch.testing.assert_close(logits[MASK], output(features)[MASK])
    assert (logits[~MASK] == torch.finfo(torch.float32).min).all()


def test_what_it_learns_moves_the_first_token_alone(output, features):
    readout = make(output)
    readout.offset.data.fill_(0.1)
    moved = readout(features, STATES, MASK) - output(features)
    assert moved[:, 0].flatten().tolist() == pytest.approx([3.0] * 4, abs=1e-5)  # 30 times the weight
    assert moved[:, 1:][MASK[:, 1:]].abs().max() < 1e-6


def test_the_scale_stretches_all_logits_before_the_offset_is_added(output, features):
    readout = make(output, scaled=True)
    readout.offset.data.fill_(0.1)
    readout.log_scale.data.fill_(0.6931472)  # of 2
    expected = 2 * output(features)
    expected[:, 0] += 3.0
    torch.testing.assert_close(readout(features, STATES, MASK)[MASK], expected[MASK], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "trained"), [("null_offset", 1), ("null_offset_scale", 2)])
def test_the_controls_train_one_number_and_two(name, trained):
    count = count_parameters(build_head(HeadConfig.model_validate(name), StackShape(25, 1024)))
    assert count == (2 * 1024 + 2 + trained, trained)


def test_a_few_steps_at_the_usual_rate_move_the_null_threshold_by_several_logits(output, features):
    """As far as thresholds have to be moved in results/squad2; Adam moves a weight by its rate in each step."""
    readout = make(output)
    optimizer = torch.optim.Adam(readout.parameters(), lr=1e-3)
    for _ in range(200):
        logits = readout(features, STATES, MASK)
        (-logits[:, 0].sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = (readout(features, STATES, MASK) - output(features))[:, 0]
    assert moved.min() > 5


def test_an_encoder_is_not_tuned_with_it():
    with pytest.raises(SettingsError, match="corrects an output layer"):
        build_experiment({"finetune": {"head": "null_offset"}})
