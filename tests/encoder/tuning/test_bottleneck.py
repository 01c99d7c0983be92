import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bertvision.encoder.tuning.adapters import Bottleneck
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune

# For each kind, in a block: the last layer of attention and of feed-forward, and the norms behind them. From
# transformers' source; ModernBERT has its norms before the sublayers, and another rule below.
INSIDE = {
    "distilbert": ("attention.out_lin", "ffn.lin2", "sa_layer_norm", "output_layer_norm"),
    "mpnet": ("attention.attn.o", "output.dense", "attention.LayerNorm", "output.LayerNorm"),
    "modernbert": ("attn.Wo", "mlp.Wo", "mlp_norm", None),
}
BERT = ("attention.output.dense", "output.dense", "attention.output.LayerNorm", "output.LayerNorm")


def blocks(model):
    return next(module for module in model.modules() if isinstance(module, nn.ModuleList))


def record(module, kept):
    module.register_forward_hook(lambda _, args, output: kept.append((args[0], output)))


def bottlenecks(module):
    return [each for each in module.modules() if isinstance(each, Bottleneck)]


def test_an_adapter_is_two_layers_and_a_residual():
    adapter = Bottleneck(6, 3)
    for param in adapter.parameters():
        nn.init.normal_(param)
    x = torch.randn(2, 4, 6)
    inner = x @ adapter.down.weight.T + adapter.down.bias
    gelu = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(adapter(x), x + gelu @ adapter.up.weight.T + adapter.up.bias)


def test_an_adapter_starts_with_a_truncated_normal_and_no_biases():
    adapter = Bottleneck(300, 200)
    weights = torch.cat([adapter.down.weight.flatten(), adapter.up.weight.flatten()])
    assert weights.abs().max() <= 2e-3
    # A normal cut at two standard deviations has 0.880 of its deviation left.
    assert weights.std().item() == pytest.approx(0.880e-3, rel=0.01)
    assert not adapter.down.bias.any()
    assert not adapter.up.bias.any()


@pytest.mark.parametrize(("insert", "per_block"), [("houlsby:8", 2), ("pfeiffer:8", 1)])
def test_fresh_adapters_hardly_change_an_encoder(make_model, kind, insert, per_block, batch, states_of):
    model = make_model(kind)
    before = states_of(model, batch)
    tuned = tune(model, TuneConfig(train="none", insert=insert), seed=1)
    after = states_of(model, batch)
    assert 0 < ((after - before).norm() / before.norm()).item() < 1e-2
    assert [len(bottlenecks(block)) for block in blocks(model)] == [per_block] * 3
    assert tuned.sizes_by_part["adapters"] == 3 * per_block * (2 * 32 * 8 + 8 + 32)


def test_adapters_see_what_a_sublayer_adds_to_the_residual(make_model, kind, batch, shake):
    model = make_model(kind)
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    shake(model)
    dense1, dense2, norm1, norm2 = INSIDE.get(kind, BERT)
    for block in blocks(model):
        kept = {name: [] for name in ("first", "second", dense1, dense2, norm1, norm2, "block")}
        found = bottlenecks(block)
        record(found[0], kept["first"])
        record(found[1], kept["second"])
        record(block, kept["block"])
        for name in (dense1, dense2, norm1, norm2):
            if name is not None:
                block.get_submodule(name).register_forward_hook(
                    lambda _, args, output, keep=kept[name]: keep.append((args[0], output)), prepend=True
                )
        model(**batch)
        got = {name: values[0] for name, values in kept.items() if values}
        entered, left = got["block"]
        left = left[0] if isinstance(left, tuple) else left
        # What the last dense layer gave comes in (dropout is off) ...
        torch.testing.assert_close(got["first"][0], got[dense1][1])
        torch.testing.assert_close(got["second"][0], got[dense2][1])
        # ... and what comes out is added to the residual: the sum is what the norm behind it sees.
        torch.testing.assert_close(got[norm1][0], entered + got["first"][1])
        if norm2 is None:
            torch.testing.assert_close(left, got[norm1][0] + got["second"][1])
        else:
            torch.testing.assert_close(got[norm2][0], got[norm1][1] + got["second"][1])


def test_pfeiffers_adapter_reads_what_the_plain_block_gives_and_changes_what_is_normalised(
    make_model, kind, batch, shake
):
    model = make_model(kind)
    tune(model, TuneConfig(train="none", insert="pfeiffer:8"), seed=1)
    shake(model)
    _, dense, before, norm = INSIDE.get(kind, BERT)
    for block in blocks(model):
        (adapter,) = bottlenecks(block)
        kept = {name: [] for name in (norm or dense, before, "block")}
        for name in (norm or dense, before):
            block.get_submodule(name).register_forward_hook(
                lambda _, args, output, keep=kept[name]: keep.append((args[0], output)), prepend=True
            )
        record(block, kept["block"])
        model(**batch)
        left = kept["block"][0][1]
        left = left[0] if isinstance(left, tuple) else left
        (entered, plain), *_ = kept[norm or dense]  # the sum and its norm; of ModernBERT what the dense layer gives
        inner = (plain @ adapter.down.weight.T + adapter.down.bias).clamp(min=0)
        changes = inner @ adapter.up.weight.T + adapter.up.bias
        if norm is None:
            torch.testing.assert_close(left, kept[before][0][0] + plain + changes)
        else:
            last = block.get_submodule(norm)
            torch.testing.assert_close(left, F.layer_norm(entered + changes, (32,), last.weight, last.bias, last.eps))


@pytest.mark.parametrize("place", [0, 1])
def test_adapters_stand_behind_dropout(make_model, place, batch):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    kept = []
    record(bottlenecks(blocks(model)[1])[place], kept)
    model.train()(**batch)
    dropped = (kept[0][0] == 0).float().mean().item()
    assert 0.03 < dropped < 0.25  # BERT drops a tenth


def test_the_rest_of_a_batch_and_its_padding_change_nothing(make_model, kind, batch, shake):
    model = make_model(kind)
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    shake(model)
    with torch.no_grad():
        together = model(**batch).last_hidden_state[1, :4]
        alone = model(**{name: rows[1:, :4] for name, rows in batch.items()}).last_hidden_state[0]
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_every_weight_of_an_adapter_learns(make_model, kind, batch):
    model = make_model(kind)
    tuned = tune(model, TuneConfig(train="none", insert="houlsby:4", train_norms=False), seed=1)
    model(**batch).last_hidden_state.pow(3).sum().backward()
    with_gradient = {name for name, param in model.named_parameters() if param.grad is not None and param.grad.any()}
    assert with_gradient == tuned.sizes.keys()


def test_a_deep_copy_has_adapters_of_its_own(make_model, batch, shake, states_of):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    before = states_of(model, batch)
    twin = copy.deepcopy(model)
    shake(twin)
    assert torch.equal(states_of(model, batch), before)
    assert not torch.equal(states_of(twin, batch), before)


def test_autocast_computes_adapters_in_its_precision(make_model, batch):
    model = make_model()
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    inner = []
    record(bottlenecks(model)[0].down, inner)
    # Not bf16: on a machine that promises AMX and does not have it, torch's bf16 products end the process.
    with torch.autocast("cpu", dtype=torch.float16):
        model(**batch).last_hidden_state.float().sum().backward()
    assert inner[0][1].dtype == torch.float16
    assert bottlenecks(model)[0].down.weight.grad.dtype == torch.float32


def test_adapters_have_the_number_format_of_their_encoder(make_model, batch):
    model = make_model().to(torch.float64)
    tune(model, TuneConfig(train="none", insert="houlsby:8", parasites={}), seed=1)
    assert model(**batch).last_hidden_state.dtype == torch.float64


def test_transformers_saves_the_encoder_under_its_own_names(make_model, kind, tmp_path):
    model = make_model(kind)
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    tune(model, TuneConfig(train="none", insert="houlsby:8"), seed=1)
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert loaded.state_dict().keys() == plain.keys()
    assert all(torch.equal(value, plain[name]) for name, value in loaded.state_dict().items())


def test_gelu_is_the_tanh_form():
    adapter = Bottleneck(1, 1)
    for param in (adapter.down.weight, adapter.up.weight):
        nn.init.ones_(param)
    x = torch.tensor([[[2.0]]])
    assert adapter(x).item() == pytest.approx(2 + F.gelu(torch.tensor(2.0), approximate="tanh").item(), abs=1e-7)
    assert adapter(x).item() != pytest.approx(2 + F.gelu(torch.tensor(2.0)).item(), abs=1e-5)
