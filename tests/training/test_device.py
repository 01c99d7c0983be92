import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.training.device import Compute, choose_compute


def test_a_cpu_computes_in_float32_unless_asked():
    assert choose_compute("cpu") == Compute(torch.device("cpu"), torch.float32)
    assert choose_compute("cpu", "bf16").dtype == torch.bfloat16


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:99", "toaster"])
def test_a_device_that_is_not_there_is_refused_in_one_line(device):
    with pytest.raises(SettingsError, match="; try auto") as caught:
        choose_compute(device)
    assert "\n" not in str(caught.value)
    advised = str(caught.value).partition("; try ")[2]
    assert ("cuda" in advised) == (torch.cuda.is_available() and device != "cuda")


@pytest.mark.gpu
def test_a_gpu_is_chosen_where_there_is_one():
    assert choose_compute().device.type == "cuda"
