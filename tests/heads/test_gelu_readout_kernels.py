import pytest
import torch

from bertvision.heads import gelu_readout

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("gelu", ["tanh", "none"])
@pytest.mark.parametrize(("positions", "widths"), [(1, [3]), (1500, [64, 7, 130]), (4096, [24, 145, 145, 386])])
def test_the_kernels_compute_what_torch_does(gelu, positions, widths):
    from bertvision.heads import gelu_readout_kernels

    torch.manual_seed(0)
    layers, width = 5, sum(width + gelu_readout.filling(width) for width in widths)
    projected = torch.randn(layers, positions, width, device="cuda") * 2
    bias, readout = torch.randn(layers, width, device="cuda"), torch.randn(layers, width, 2, device="cuda")
    gradient = torch.randn(len(widths), positions, 2, device="cuda")
    results = []
    for steps in (gelu_readout, gelu_readout_kernels):
        logits, kept = steps.read_out(projected.clone(), bias, readout, widths, gelu)
        results.append([logits, *steps.read_out_backward(gradient, kept, widths, gelu)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * one.abs().max().item())


def test_a_head_that_overflows_changes_no_other_head():
    from bertvision.heads import gelu_readout_kernels

    torch.manual_seed(0)
    projected = torch.randn(3, 40, 16 + 32, device="cuda")
    bias, readout = torch.zeros(3, 48, device="cuda"), torch.randn(3, 48, 2, device="cuda")
    gradient = torch.randn(2, 40, 2, device="cuda")
    results = []
    for factor in (1.0, float("inf")):
        spoiled = projected.clone()
        spoiled[..., 16:] *= factor
        logits, kept = gelu_readout_kernels.read_out(spoiled, bias, readout, [16, 20], "tanh")
        d_projected, d_bias, d_readout = gelu_readout_kernels.read_out_backward(gradient, kept, [16, 20], "tanh")
        results.append([logits[0], d_projected[..., :16], d_bias[:, :16], d_readout[:, :16]])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
