from collections import Counter

import pytest
import torch

from bertvision.errors import SettingsError
from bertvision.heads.build import build_head
from bertvision.heads.catalog import BUDGET, CATALOG
from bertvision.heads.config import HeadConfig
from bertvision.heads.head import count_parameters, layer_weights, weighted_states
from bertvision.settings import validate
from bertvision.shapes import StackShape
from bertvision.tasks import KINDS
from bertvision.training.checkpoint import load_weights, save_weights
from bertvision.training.objective import SPANS, Objective

BERT_LARGE = StackShape(layers=25, hidden=1024)
BERT_LARGE_CLS = StackShape(layers=26, hidden=1024)  # the pooled state is one more channel
BERT_BASE = StackShape(layers=13, hidden=768)
SMALL = StackShape(layers=3, hidden=32)

# SPEC 3.1, 3.2, 3.6: (weights and running statistics, weights) of the papers' span heads at BERT-large's shape.
SPAN_COUNTS = {
    "learned_pooling": (2_076, 2_076),
    "average_pooling": (2_050, 2_050),
    "first_last_mean": (2_050, 2_050),
    "adapter_64_shared": (68_802, 68_802),
    "adapter_64_shared_skip": (70_850, 70_850),
    "adapter_64_unshared": (1_643_202, 1_643_202),
    "adapter_64_unshared_skip": (1_645_250, 1_645_250),
    "adapter_386_shared": (414_952, 414_952),
    "adapter_386_shared_skip": (417_000, 417_000),
    "adapter_386_unshared": (9_910_552, 9_910_552),
    "adapter_386_unshared_skip": (9_912_600, 9_912_600),
    "lp_adapter_386": (396_450, 396_450),
    "lp_adapter_386_skip": (398_498, 398_498),
    "two_adapters_386": (811_400, 811_400),
    "ap_squad": (412_802, 412_802),
    "last_linear": (2_050, 2_050),
    # Reconstructed (SPEC 3.6); batch normalisation has as many running statistics as weights, two per channel.
    "cnn_1xn": (330_178, 330_178 - 2 * (64 + 3 * 128)),
    "cnn_1xn_no_dropout": (330_178, 330_178 - 2 * (64 + 3 * 128)),
    "cnn_1xn_dilated": (405_378, 405_378 - 2 * (4 * 128)),
    "lp_cnn_1xn": (313_308, 313_308 - 2 * (64 + 3 * 128)),
    "ap_cnn_1xn": (313_282, 313_282 - 2 * (64 + 3 * 128)),
    "lp_adapter_386_cnn_1xn": (695_390, 695_390 - 2 * (64 + 3 * 128)),
    "lp_adapter_386_cnn_nxn": (1_113_886, 1_113_886 - 2 * (4 * 128)),
    "lp_adapter_386_inception": (6_681_422, 6_681_422),
    "lp_adapter_386_xception": (
        6_601_534,  # stem; blocks of 128 and 256; three middle blocks; exit
        6_601_534 - 2 * ((32 + 64) + 3 * 128 + 3 * 256 + 3 * 3 * 256 + (1024 + 256 + 1024) + (1536 + 2048)),
    ),
}
# SPEC 3.3: classification heads on the CLS states of BERT-large and its pooled state.
CLASS_COUNTS = {
    "learned_pooling": (2_077, 2_077),
    "lp_adapter_386_skip": (398_499, 398_499),
    "ap_adapter_386_skip": (398_472, 398_472),
    "xception_abbr": (267_010, 264_066),
    "xception_abbr_cls": (269_058, 266_114),
    "xception": (20_716_634, 20_662_106),
}
OBJECTIVES = [
    SPANS,
    Objective(KINDS["tags"], 5),
    Objective(KINDS["class"], 3),
]  # all other kinds are read out as classes are
CASES = [
    (name, objective) for objective in OBJECTIVES for name in CATALOG if str(objective.kind) in CATALOG[name].kinds
]
EVERY_HEAD = pytest.mark.parametrize(
    ("name", "objective"), CASES, ids=lambda each: each if isinstance(each, str) else each.kind.name
)


def make_head(name, shape=SMALL, seed=0, objective=SPANS):
    torch.manual_seed(seed)
    return build_head(HeadConfig.model_validate(name), shape, objective).eval()


def make_input(batch=2, tokens=9, shape=SMALL):
    """Rows of different lengths, with a question and a context in each."""
    torch.manual_seed(1)
    states = torch.randn(batch, shape.layers, tokens, shape.hidden)
    lengths = torch.tensor([tokens - row % 3 for row in range(batch)])
    places = torch.arange(tokens)
    mask = places < lengths[:, None]
    return states, mask, ((places >= 3) & mask).long()


def test_every_head_serves_some_kind_of_task_and_every_kind_has_many_heads():
    assert {name for name, _ in CASES} == set(CATALOG)
    served = Counter(kind for entry in CATALOG.values() for kind in entry.kinds)
    assert set(served) == set(KINDS)
    assert min(served.values()) > 20


def test_heads_serve_what_their_features_and_readouts_are_for():
    rows = ("answerable", "class", "labels", "number", "choice")
    expected = {
        "learned_pooling": {"span", "tags", *rows},
        "adapter_386_shared_skip_joint": {"span"},
        "bilstm_concat_last_four": {"span", "tags"},  # the first token's states begin with the pooled one, no layer
        "bilstm_last": {"span", "tags", *rows},
        "cacnn_simple": {"span"},  # it searches a context for an answer, and a sentence has none
        "xception": set(rows),
        "ap_glue": set(rows),
        "ladder": {"span", "tags", *rows},
    }
    assert {name: set(CATALOG[name].kinds) for name in expected} == expected


@pytest.mark.parametrize("kind", ["answerable", "class", "labels", "number", "choice"])
@pytest.mark.parametrize("columns", [1, 4])
def test_a_row_has_as_many_logits_as_its_task_has_columns(kind, columns):
    head = make_head("adapter_64_shared_skip", objective=Objective(KINDS[kind], columns))
    assert head(*make_input()).shape == (2, columns)


@pytest.mark.parametrize(("name", "count"), SPAN_COUNTS.items())
def test_a_span_head_has_the_published_number_of_parameters_at_the_shape_of_bert_large(name, count):
    assert count_parameters(make_head(name, BERT_LARGE)) == count


@pytest.mark.parametrize(("name", "count"), CLASS_COUNTS.items())
def test_a_classification_head_has_the_published_number_of_parameters_at_the_shape_of_bert_large(name, count):
    assert count_parameters(make_head(name, BERT_LARGE_CLS, objective=Objective(KINDS["class"], 2))) == count


def test_the_span_head_of_2021_has_its_number_of_parameters_at_the_shape_of_bert_base():
    assert count_parameters(make_head("ap_squad", BERT_BASE)) == (305_282, 305_282)  # SPEC 8.4


BUDGETED = [name for name, entry in CATALOG.items() if entry.same_size_as == BUDGET]


@pytest.mark.parametrize("name", BUDGETED)
@pytest.mark.parametrize("shape", [BERT_LARGE, BERT_BASE, StackShape(7, 384)])
def test_a_head_with_a_budget_is_as_large_as_the_head_that_sets_it(name, shape):
    budget = count_parameters(make_head(BUDGET, shape)).trainable
    assert count_parameters(make_head(name, shape)).trainable == pytest.approx(budget, rel=0.05)


@EVERY_HEAD
def test_every_weight_of_a_head_learns(name, objective):
    head = make_head(name, objective=objective).train()
    states, mask, segments = make_input(batch=4)
    logits = head(states, mask, segments)
    (logits[mask] if objective.per == "token" else logits).pow(2).sum().backward()
    dead = [name for name, parameter in head.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []


@EVERY_HEAD
def test_padding_changes_no_logit_of_a_real_token_and_is_never_chosen(name, objective):
    head = make_head(name, objective=objective)
    states, mask, segments = make_input()
    alone = head(states, mask, segments)
    more = torch.full((2, SMALL.layers, 4, SMALL.hidden), 9.0)
    padded = torch.cat([states.masked_fill(~mask[:, None, :, None], -7.0), more], dim=2)
    mask_of_more = torch.cat([mask, torch.zeros(2, 4, dtype=torch.bool)], dim=1)
    changed = head(padded, mask_of_more, torch.cat([segments, torch.zeros(2, 4, dtype=torch.long)], dim=1))
    if objective.per == "row":
        torch.testing.assert_close(changed, alone, rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(changed[:, :9][mask], alone[mask], rtol=1e-4, atol=1e-5)
    if objective.kind.in_context:
        assert (changed[~mask_of_more][:, :2] < alone[mask].min()).all()


@EVERY_HEAD
def test_padding_changes_nothing_that_is_learned(name, objective):
    """Batch statistics and gradients, that is, where a head has them."""
    learned = []
    for filling in (0.0, 50.0):
        head = make_head(name, objective=objective).train()
        states, mask, segments = make_input(batch=4)
        torch.manual_seed(3)  # of dropout
        logits = head(states.masked_fill(~mask[:, None, :, None], filling), mask, segments)
        (logits[mask] if objective.per == "token" else logits).pow(2).sum().backward()
        learned.append([*(parameter.grad for parameter in head.parameters()), *head.buffers()])
    torch.testing.assert_close(learned[0], learned[1], rtol=1e-4, atol=1e-5)


@EVERY_HEAD
def test_the_order_of_rows_changes_nothing(name, objective):
    head = make_head(name, objective=objective)
    states, mask, segments = make_input(batch=3)
    order = torch.tensor([2, 0, 1])
    found, expected = head(states[order], mask[order], segments[order]), head(states, mask, segments)[order]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@EVERY_HEAD
def test_a_head_takes_rows_of_one_token_and_of_many(name, objective):
    head = make_head(name, objective=objective)
    for tokens in (1, 70):
        logits = head(torch.randn(2, 3, tokens, 32), torch.ones(2, tokens).bool(), torch.zeros(2, tokens).long())
        assert logits.isfinite().all()


@EVERY_HEAD
def test_a_head_comes_back_from_disk_bit_by_bit(name, objective, tmp_path):
    head, other = make_head(name, seed=0, objective=objective), make_head(name, seed=5, objective=objective)
    save_weights(tmp_path / "head.safetensors", head)
    load_weights(tmp_path / "head.safetensors", other)
    assert torch.equal(other(*make_input()), head(*make_input()))


def test_layer_weights_are_the_softmax_of_what_was_learned():
    head = make_head("learned_pooling")
    head.pooler.weights.data = torch.tensor([0.0, 0.0, 1.0])
    total = 2 + 2.718281828
    assert layer_weights(head) == pytest.approx([1 / total, 1 / total, 2.718281828 / total], abs=1e-6)
    assert layer_weights(make_head("lp_adapter_386")) is not None
    assert layer_weights(make_head("average_pooling")) is None


def test_the_sum_of_all_layers_is_that_of_the_12_of_the_paper():
    bert_base = StackShape(13, 768)
    head, last = (
        make_head(name, bert_base, objective=Objective(KINDS["tags"], 9)) for name in ("bilstm_sum_all", "bilstm_last")
    )
    # Devlin et al. 2019, table 7: "Weighted Sum All 12 Layers"; a weight each, and the scale of their sum.
    assert count_parameters(head).trainable - count_parameters(last).trainable == 12 + 1
    assert weighted_states(head, has_pooler=True) == list(range(1, 13))


def test_layer_weights_name_the_states_that_they_are_of():
    head = make_head("bilstm_sum_last_four", shape=StackShape(7, 8), objective=Objective(KINDS["tags"], 5))
    assert weighted_states(head, has_pooler=True) == [3, 4, 5, 6]
    assert weighted_states(make_head("average_pooling"), has_pooler=True) is None


def test_a_head_may_be_varied_under_a_name_of_its_own():
    config = validate(HeadConfig, {"head": "adapter_64_shared", "name": "fast", "lr": 0.01}, "test")
    assert (config.name, config.lr, config.pooler.kind, config.kind) == ("fast", 0.01, "adapter", "head")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"head": "adaptor"}, "no head 'adaptor' in the catalog"),
        ({"name": "x", "pooler": {"kind": "conv"}}, "adapter"),
        ({"head": "last_linear", "name": "encoder"}, "cannot be a head's name"),
        ({"head": "last_linear", "name": "a/b"}, "pattern"),
        ({"name": "x", "pooler": {"kind": "adapter", "width": 0}}, "width"),
        ({"head": "last_linear", "name": "x", "same_size_as": "adapter_64_shared"}, "no width to choose"),
        ({"head": "last_adapter", "name": "x", "same_size_as": "last_adapter"}, "another head's size itself"),
        ({"head": "last_adapter", "name": "x", "same_size_as": "nothing"}, "no head 'nothing'"),
    ],
)
def test_a_wrong_head_is_refused_in_one_line(given, told):
    with pytest.raises(SettingsError, match=told) as caught:
        validate(HeadConfig, given, "test")
    assert "\n" not in str(caught.value)
