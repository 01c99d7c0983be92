"""Every head by name, as a table: nothing registers itself.

To add one: a pooler's file, its config in `poolers/config.py`, a case in `poolers/build.py`, and a row here.
"""

from typing import Literal, NamedTuple

from bertvision.heads.poolers.config import (
    AdapterConfig,
    AnyPooler,
    ApGlueConfig,
    AveragePoolingConfig,
    CacnnContextConfig,
    CacnnSimpleConfig,
    ChosenLayersConfig,
    Cnn1xNConfig,
    CnnNxNConfig,
    InceptionConfig,
    LadderConfig,
    LastStateConfig,
    LayerAttentionConfig,
    LearnedPoolingConfig,
    Mix4Config,
    MixedAdapterConfig,
    ModifiedXceptionConfig,
    ReadConfig,
    RegressionConfig,
    TwoAdaptersConfig,
    XceptionConfig,
)
from bertvision.kinds.kind import Kind, Readout
from bertvision.settings import suggest
from bertvision.tasks import KINDS

RoleKind = Literal["head", "control"]
# Where a head comes from: the 2020 papers, a reconstruction of one that is lost, the 2021 code, Hulburd's study,
# BERT's own paper, here.
Origin = Literal["2020", "reconstructed", "2021", "hulburd", "bert", "new", "control"]

# The papers' widths at BERT-large's hidden size 1,024, as shares of it: 386 and 64 there, 145 and 24 at 384.
WIDE, NARROW = 0.377, 0.0625
BUDGET = "adapter_386_shared_skip"  # the head whose size the controls and the new heads are given


def serves(pooler: AnyPooler, readout: Readout, kind: Kind) -> bool:
    """Whether a pooler can serve a kind of task with a readout; a recurrent one reads the features of every token."""
    if readout == "bilstm" and "token" not in pooler.per:
        return False
    return kind.per in pooler.per and readout in kind.readouts and (kind.in_context or not pooler.searches_context)


def reads_one_state(pooler: AnyPooler, readout: Readout) -> bool:
    """Whether a head on rows reads one state per layer, not those of all tokens."""
    return pooler.classes_from == "one state" and readout != "bilstm"


def kinds_of(pooler: AnyPooler, readout: Readout) -> tuple[str, ...]:
    """Name the kinds of tasks that a pooler can serve with a readout."""
    return tuple(name for name, kind in KINDS.items() if serves(pooler, readout, kind))


class Entry(NamedTuple):
    """A head of the catalog."""

    origin: Origin
    pooler: AnyPooler
    about: str
    same_size_as: str | None = None  # the head whose number of parameters decides this one's width
    readout: Readout = "linear"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return which kinds of tasks the head serves."""
        return kinds_of(self.pooler, self.readout)

    @property
    def kind(self) -> RoleKind:
        """Return whether it is a head or a control."""
        return "control" if self.origin == "control" else "head"


CATALOG = {
    "learned_pooling": Entry("2020", LearnedPoolingConfig(), "a learned mix of all layers; on classes 'tenney small'"),
    "average_pooling": Entry("2020", AveragePoolingConfig(), "mean of all layers"),
    "first_last_mean": Entry("2020", AveragePoolingConfig(layers="first_and_last"), "mean of first and last"),
    "adapter_64_shared": Entry("2020", AdapterConfig(width=NARROW), "narrow view of each layer"),
    "adapter_64_shared_skip": Entry("2020", AdapterConfig(width=NARROW, skip=True), "the same, and the last state"),
    "adapter_64_unshared": Entry("2020", AdapterConfig(width=NARROW, shared=False), "a narrow view per layer"),
    "adapter_64_unshared_skip": Entry(
        "2020", AdapterConfig(width=NARROW, shared=False, skip=True), "the same, and the last state"
    ),
    "adapter_386_shared": Entry("2020", AdapterConfig(width=WIDE), "wide view of each layer"),
    "adapter_386_shared_skip": Entry("2020", AdapterConfig(width=WIDE, skip=True), "the same, and the last state"),
    "adapter_386_unshared": Entry("2020", AdapterConfig(width=WIDE, shared=False), "a wide view per layer"),
    "adapter_386_unshared_skip": Entry(
        "2020", AdapterConfig(width=WIDE, shared=False, skip=True), "the same, and the last state"
    ),
    "lp_adapter_386": Entry("2020", MixedAdapterConfig(width=WIDE), "wide view of a learned mix"),
    "lp_adapter_386_skip": Entry(
        "2020",
        MixedAdapterConfig(width=WIDE, skip=True),
        "the same, and the last state; on classes 'adapter pooler tenney'",
    ),
    "ap_adapter_386_skip": Entry(
        "2020",
        MixedAdapterConfig(mix="average", width=WIDE, skip=True),
        "wide view of the mean, and the last state; on classes 'adapter pooler avg'",
    ),
    "two_adapters_386": Entry("2020", TwoAdaptersConfig(width=WIDE), "of each layer and of a mix: 'skip Tenney'"),
    "xception_abbr": Entry("2020", XceptionConfig(), "the start of Xception, the layers as channels"),
    "xception_abbr_cls": Entry("2020", XceptionConfig(skip=True), "the same, and the last state"),
    "xception": Entry("2020", XceptionConfig(size="full"), "Xception, the layers as channels"),
    "cnn_1xn": Entry("reconstructed", Cnn1xNConfig(), "convolutions along a token's features, the layers as channels"),
    "cnn_1xn_no_dropout": Entry("reconstructed", Cnn1xNConfig(dropout=0), "the same, without dropout"),
    "cnn_1xn_dilated": Entry("reconstructed", Cnn1xNConfig(dilated=True), "the same, reaching further by dilation"),
    "lp_cnn_1xn": Entry("reconstructed", Cnn1xNConfig(mix="learned"), "convolutions along a learned mix"),
    "ap_cnn_1xn": Entry("reconstructed", Cnn1xNConfig(mix="average"), "convolutions along the mean of all layers"),
    "lp_adapter_386_cnn_1xn": Entry(
        "reconstructed", Cnn1xNConfig(mix="learned", width=WIDE), "convolutions along the wide view of a learned mix"
    ),
    "lp_adapter_386_cnn_nxn": Entry(
        "reconstructed", CnnNxNConfig(width=WIDE), "the same, across neighbouring tokens too"
    ),
    "lp_adapter_386_inception": Entry(
        "reconstructed", InceptionConfig(width=WIDE), "GoogLeNet on the wide views of a learned mix"
    ),
    "lp_adapter_386_xception": Entry(
        "reconstructed", ModifiedXceptionConfig(width=WIDE), "a short Xception on the wide view of a learned mix"
    ),
    "ap_squad": Entry("2021", AdapterConfig(width=384, gelu="none"), "wide view of each layer, as wide as a window"),
    "ap_glue": Entry("2021", ApGlueConfig(), "a view of each layer of every token, by its position; for 128 tokens"),
    "cacnn_simple": Entry("hulburd", CacnnSimpleConfig(), "filters made by convolving the row itself"),
    "cacnn_simple_lp": Entry("hulburd", CacnnSimpleConfig(mix="learned"), "the same on a learned mix"),
    "cacnn_context": Entry("hulburd", CacnnContextConfig(), "filters made from one vector of the row"),
    "cacnn_context_lp": Entry("hulburd", CacnnContextConfig(mix="learned"), "the same on a learned mix"),
    "bilstm_embeddings": Entry(
        "bert", ChosenLayersConfig(layers="embeddings"), "a BiLSTM over the embedding output", readout="bilstm"
    ),
    "bilstm_second_to_last": Entry(
        "bert", ChosenLayersConfig(layers="second_to_last"), "over the last state but one", readout="bilstm"
    ),
    "bilstm_last": Entry("bert", LastStateConfig(), "over the last state", readout="bilstm"),
    "bilstm_sum_last_four": Entry(
        "bert", ChosenLayersConfig(join="mix"), "over a learned sum of the last four", readout="bilstm"
    ),
    "bilstm_concat_last_four": Entry("bert", ChosenLayersConfig(), "over the last four side by side", readout="bilstm"),
    "bilstm_sum_all": Entry(
        "bert",
        ChosenLayersConfig(layers="blocks", join="mix"),
        "over a learned sum of all but the embedding output",
        readout="bilstm",
    ),
    "ladder": Entry("new", LadderConfig(), "a narrow transformer that climbs the layers, and the last state", BUDGET),
    "mix4": Entry("new", Mix4Config(), "views of four learned mixes, and the last state", BUDGET),
    "layer_attention": Entry(
        "new", LayerAttentionConfig(), "each token's own mix of layers, and the last state", BUDGET
    ),
    "read": Entry("new", ReadConfig(), "a recurrent network over depth, and the last state", BUDGET),
    "adapter_386_shared_skip_joint": Entry(
        "new",
        AdapterConfig(width=WIDE, skip=True),
        "adapter_386_shared_skip with scores of whole spans, and of no answer from all layers",
        readout="joint",
    ),
    "regression": Entry("new", RegressionConfig(), "a logistic or ridge regression on all layers, fitted at once"),
    "last_linear": Entry("control", LastStateConfig(), "control: the last state alone"),
    "last_adapter": Entry(
        "control", MixedAdapterConfig(mix="last"), "control: an adapter on the last state alone", BUDGET
    ),
    "null_offset": Entry(
        "control",
        LastStateConfig(),
        "control: the encoder's own output layer, and an offset of “no answer” to train",
        readout="null_offset",
    ),
    "null_offset_scale": Entry(
        "control", LastStateConfig(), "control: the same, and a factor on its logits", readout="null_offset_scale"
    ),
    "last_regression": Entry("control", RegressionConfig(layers="last"), "control: a regression on the last state"),
}


def known(name: object) -> str:
    """Return a name that the catalog has; for a validator, so the error is a ValueError."""
    if not isinstance(name, str) or name not in CATALOG:
        hint = suggest(str(name), CATALOG) or f"; known: {', '.join(CATALOG)}"
        raise ValueError(f"no head {name!r} in the catalog{hint}")
    return name
