import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.special import log_softmax, softmax

from bertvision.tasks import KINDS
from bertvision.training.config import TeacherConfig
from bertvision.training.objective import taught_loss


@pytest.fixture
def logits():
    draw = np.random.default_rng(1)
    return draw.normal(size=(3, 5, 2)), draw.normal(size=(3, 5, 2))


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_taught_span_has_the_cross_entropy_of_the_teachers_tokens(logits, temperature):
    own, taught = logits
    wanted = softmax(taught / temperature, axis=1)
    expected = -(wanted * log_softmax(own / temperature, axis=1)).sum(axis=(1, 2)).mean() * temperature**2
    found = [
        taught_loss(KINDS["span"], torch.tensor(own), torch.tensor(taught), temperature, how) for how in ("sum", "mean")
    ]
    assert [each.item() for each in found] == pytest.approx([expected, expected / 2], abs=1e-6)


def test_taught_classes_have_the_cross_entropy_of_the_teachers_classes(logits):
    own, taught = (each[:, :, 0] for each in logits)
    expected = -(softmax(taught, axis=1) * log_softmax(own, axis=1)).sum(axis=1).mean()
    found = taught_loss(KINDS["class"], torch.tensor(own), torch.tensor(taught), 1.0, "sum")
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_padding_teaches_nothing(logits):
    own, taught = (torch.tensor(each, dtype=torch.float32) for each in logits)
    lowest = torch.full((3, 4, 2), torch.finfo(torch.float32).min)
    padded = [torch.cat([each, lowest], dim=1) for each in (own, taught)]
    plain, longer = taught_loss(KINDS["span"], own, taught, 2.0, "sum"), taught_loss(KINDS["span"], *padded, 2.0, "sum")
    assert longer.item() == pytest.approx(plain.item(), abs=1e-5)


def test_a_temperature_below_one_is_refused():
    with pytest.raises(ValidationError):
        TeacherConfig(model="runs/large/encoder/1", temperature=0.5)
