import pytest
import torch
from transformers import BertConfig, BertModel

from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import count_trainable, first_trained_block, still_weights
from bertvision.encoder.tuning.tune import tune
from bertvision.errors import EncoderError

CASED, UNCASED = 28996, 30522
QA_HEAD = 768 * 2 + 2
# Biases of keys that attention does not see, in three blocks: of DeBERTa's the positions' alone, of ModernBERT's none.
NUM_STILL = {"bert": 3, "deberta-v2": 3, "distilbert": 3, "electra": 3, "modernbert": 0, "mpnet": 3, "roberta": 3}


# The thesis's tables, but for L0-A64: it printed 2,417,664, which leaves the output layer out.
@pytest.mark.parametrize(
    ("vocabulary", "settings", "printed"),
    [
        (CASED, {"train": "all"}, 108_311_810),
        (UNCASED, {"train": "all"}, 109_483_778),
        (CASED, {"train": "top:6"}, 42_548_738),
        (UNCASED, {"train": "top:6"}, 42_548_738),
        (CASED, {"train": "top:3"}, 21_294_338),
        (CASED, {"train": "top:1"}, 7_124_738),
        (CASED, {"train": "none"}, 39_938),
        (UNCASED, {"train": "none"}, 39_938),
        (CASED, {"train": "all", "insert": "houlsby:64"}, 110_691_074),
        (CASED, {"train": "none", "insert": "houlsby:64"}, 2_379_264 + 39_938),
        (CASED, {"train": "none", "insert": "houlsby:768"}, 28_388_354),
        (UNCASED, {"train": "none", "insert": "houlsby:768", "train_norms": False}, 28_348_416 + QA_HEAD),
        (CASED, {"train": "none", "insert": "pfeiffer:64", "train_norms": False}, 2_379_264 // 2 + QA_HEAD),
        (CASED, {"train": "top:12", "train_norms": False}, 12 * (7_084_800 + 4 * 768) + QA_HEAD),
        # Biases of a block: four of attention, two of the feed-forward, two of norms; then embeddings' norm and pooler.
        (CASED, {"train": "bitfit", "train_norms": False}, 12 * (4 * 768 + 3072 + 768 + 2 * 768) + 768 + 768 + QA_HEAD),
        (CASED, {"train": "none", "train_norms": False}, QA_HEAD),
    ],
)
def test_the_counts_are_those_of_the_thesis(vocabulary, settings, printed):
    with torch.device("meta"):  # no memory for weights
        model = BertModel(BertConfig(vocab_size=vocabulary))
        tune(model, TuneConfig(**settings), seed=1)
    assert count_trainable(model) + QA_HEAD == printed


def test_the_top_blocks_learn_and_nothing_else(make_model, kind):
    model = make_model(kind)
    trained = tune(model, TuneConfig(train="top:2", train_norms=False), seed=1).sizes
    assert trained
    assert all(".1." in name or ".2." in name for name in trained)
    assert not any("layer.0." in name or "layers.0." in name for name in trained)


def test_norms_alone_are_layer_norms_alone(make_model, kind):
    model = make_model(kind)
    tuned = tune(model, TuneConfig(train="none"), seed=1)
    expected = {
        f"{path}.{name}"
        for path, module in model.named_modules()
        if type(module).__name__ == "LayerNorm"
        for name, _ in module.named_parameters()
    }
    assert tuned.sizes.keys() == expected
    assert expected


SETTINGS = [
    {"train": "all"},
    {"train": "none"},
    {"train": "top:1", "train_norms": False},
    {"train": "top:2", "train_norms": False},
    {"train": "none", "insert": "houlsby:4", "train_norms": False},
    {"train": "top:3", "insert": "pfeiffer:32", "train_norms": False},
    {"train": "none", "train_norms": False},
    {"train": "none", "train_norms": False, "parasites": {}},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_graph_is_built_below_the_first_trained_block(make_model, kind, settings, batch):
    model = make_model(kind)
    tune(model, TuneConfig.model_validate(settings), seed=1)
    model.train()  # dropout on
    # A pre-hook shows the input of block 1 before any parasite adds to it.
    seen = []
    block = next(iter(model.get_submodule(BLOCKS.get(kind, "encoder.layer")).children()))
    block.register_forward_pre_hook(lambda _, args: seen.append(args[0].requires_grad), prepend=True)
    states = model(**batch, output_hidden_states=True).hidden_states
    with_graph = [*seen, *(state.requires_grad for state in states[1:])]
    first = first_trained_block(model)
    assert with_graph == [number >= first for number in range(4)]


BLOCKS = {"distilbert": "transformer.layer", "modernbert": "layers"}


@pytest.mark.parametrize(
    ("kind", "weight", "first"),
    [
        ("electra", "embeddings_project.weight", 0),
        ("mpnet", "encoder.relative_attention_bias.weight", 1),  # every block reads it
        ("deberta-v2", "encoder.rel_embeddings.weight", 1),
        ("modernbert", "final_norm.weight", 4),
        ("bert", "pooler.dense.weight", 4),
    ],
)
def test_weights_outside_of_blocks_count_where_they_are_read(make_model, kind, weight, first):
    model = make_model(kind)
    model.requires_grad_(False)
    model.get_parameter(weight).requires_grad_(True)
    assert first_trained_block(model) == first


def test_dropout_still_acts_below_the_first_trained_block(make_model, batch):
    model = make_model()
    tune(model, TuneConfig(train="top:1", train_norms=False), seed=1)
    outputs = [model.train()(**batch, output_hidden_states=True).hidden_states[2] for _ in range(2)]
    quiet = [model.eval()(**batch, output_hidden_states=True).hidden_states[2] for _ in range(2)]
    assert not torch.equal(*outputs)
    assert torch.equal(*quiet)


@pytest.mark.parametrize("config", [{"train": "top:4"}, {"train": "top:40", "train_norms": False}])
def test_more_blocks_than_there_are_is_refused(make_model, config):
    with pytest.raises(EncoderError, match=r"of 3 blocks; give 3 or less, or all"):
        tune(make_model(), TuneConfig(**config), seed=1)


def test_bitfit_needs_biases(make_model):
    with pytest.raises(EncoderError, match=r"ModernBertModel has none; .* train: none with train_norms: true"):
        tune(make_model("modernbert"), TuneConfig(train="bitfit"), seed=1)


def weights_without_gradient(model, batch, output):
    """Name the weights that have no gradient but rounding, of a loss over tokens: in float64, 1e-12 of the others'."""
    torch.manual_seed(3)
    scores = output(model(**batch).last_hidden_state @ torch.randn(32, 1).double())[..., 0]
    torch.nn.functional.cross_entropy(scores, torch.tensor([3, 1])).backward()
    largest = {name: weight.grad.abs().max() for name, weight in model.named_parameters() if weight.grad is not None}
    return {name for name, size in largest.items() if size < 1e-12 * max(largest.values())}


@pytest.mark.parametrize("insert", ["none", "houlsby:4", "pfeiffer:32"])
def test_exactly_the_weights_whose_gradient_is_zero_are_left_alone(insert, make_model, kind, batch, shake):
    model = make_model(kind).double()
    tune(model, TuneConfig(train="all", insert=insert), seed=1)
    shake(model)  # biases start at zero, adapters near it
    names = {weight: name for name, weight in model.named_parameters()}
    for ignores_shifts, output in ((True, torch.nn.Identity()), (False, torch.tanh)):
        model.zero_grad()
        still = {names[weight] for weight, _ in still_weights(model, ignores_shifts=ignores_shifts)}
        assert still == weights_without_gradient(model, batch, output)
        assert len(still) == NUM_STILL[kind] + (ignores_shifts and kind != "modernbert" and insert != "pfeiffer:32")
