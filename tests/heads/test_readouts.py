import torch

from bertvision.heads.readouts import SpanReadout


def test_logits_are_as_fine_as_float32_under_autocast():
    torch.manual_seed(0)
    readout, features = SpanReadout(8), torch.randn(4, 16, 8).bfloat16()
    mask = torch.ones(4, 16, dtype=torch.bool)
    expected = features.float() @ readout.linear.weight.T + readout.linear.bias
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = readout(features, torch.zeros(4, 2, 16, 8), mask)
    torch.testing.assert_close(logits, expected)
    assert not torch.equal(logits, logits.bfloat16().float())
