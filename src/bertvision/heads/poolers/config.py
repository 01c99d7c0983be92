"""The configs of all poolers, apart from their modules, so that settings are checked without torch."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bertvision.kinds.kind import Per
from bertvision.settings import Config

Width = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]  # a number, or a share of the hidden size
Mix = Literal["learned", "average", "last"]
Gelu = Literal["tanh", "none"]  # torch's names: the 2020 code's approximation, and the exact one of 2021
Chosen = Literal["embeddings", "second_to_last", "last_four", "blocks"]
Activation = Literal["tanh", "relu", "gelu"]
Norm = Literal["weight", "weight and bias"]


class PoolerBase(Config):
    """The base of poolers' configs."""

    per: ClassVar[tuple[Per, ...]] = ("token", "row")  # what its features can be read out for
    searches_context: ClassVar[bool] = False  # whether it gives features to a question's context alone
    classes_from: ClassVar[Literal["one state", "all tokens"]] = "one state"


class LearnedPoolingConfig(PoolerBase):
    """Learned pooling (Tenney's scalar mix, the papers' "LP"); nothing to choose."""

    kind: Literal["learned_pooling"] = "learned_pooling"


class AveragePoolingConfig(PoolerBase):
    """Average pooling (the papers' "AP"): which layers are averaged."""

    kind: Literal["average_pooling"] = "average_pooling"
    layers: Literal["all", "first_and_last"] = "all"


class AdapterConfig(PoolerBase):
    """Size of the projection and whether the layers share it."""

    kind: Literal["adapter"] = "adapter"
    width: Width = 64
    shared: bool = True  # false: a projection of its own for every layer
    skip: bool = False  # put the last layer's state beside the projections
    gelu: Gelu = "tanh"


class MixedAdapterConfig(PoolerBase):
    """The papers' LP -> adapter, and the same on the mean or on the last state alone: what is projected, how far."""

    kind: Literal["mixed_adapter"] = "mixed_adapter"
    mix: Mix = "learned"
    width: Width = 64
    skip: bool = False


class TwoAdaptersConfig(PoolerBase):
    """The papers' "adapter, skip, Tenney pooling": size of both projections."""

    kind: Literal["two_adapters"] = "two_adapters"
    width: Width = 64


class LastStateConfig(PoolerBase):
    """What the encoder's own output layer reads, and so do the controls; nothing to choose."""

    kind: Literal["last_state"] = "last_state"


class LastDenseConfig(PoolerBase):
    """Which activation follows the layer, and whether a norm follows that (ModernBERT)."""

    kind: Literal["last_dense"] = "last_dense"
    activation: Activation = "tanh"
    bias: bool = True
    norm: Norm | None = None
    norm_eps: float = 1e-5


class ChosenLayersConfig(PoolerBase):
    """Which layers, and what becomes of several: as in BERT's paper (Devlin et al. 2019, table 7)."""

    kind: Literal["chosen_layers"] = "chosen_layers"
    # The first token's states begin with the pooled one, which is no layer to count from.
    per: ClassVar[tuple[Per, ...]] = ("token",)
    layers: Chosen = "last_four"
    join: Literal["concat", "mix"] = "concat"  # mix: a learned weighted sum


class Cnn1xNConfig(PoolerBase):
    """What the network sees, and how."""

    kind: Literal["cnn_1xn"] = "cnn_1xn"
    mix: Mix | None = None  # None: every layer is a channel
    width: Width | None = None  # of an adapter between the mix and the network; None: no adapter
    dilated: bool = False
    dropout: float = Field(0.2, ge=0, lt=1)


class CnnNxNConfig(PoolerBase):
    """What the network sees."""

    kind: Literal["cnn_nxn"] = "cnn_nxn"
    mix: Mix = "learned"
    width: Width = 64  # of the adapter between the mix and the network
    dropout: float = Field(0.2, ge=0, lt=1)


class InceptionConfig(PoolerBase):
    """What the network sees."""

    kind: Literal["inception"] = "inception"
    mix: Mix = "learned"
    width: Width = 64  # of the adapter between the mix and the network
    dropout: float = Field(0.2, ge=0, lt=1)


class ModifiedXceptionConfig(PoolerBase):
    """What the network sees."""

    kind: Literal["modified_xception"] = "modified_xception"
    mix: Mix = "learned"
    width: Width = 64  # of the adapter between the mix and the network
    dropout: float = Field(0.2, ge=0, lt=1)


class XceptionConfig(PoolerBase):
    """How much of Xception there is, and whether the last state joins it."""

    per: ClassVar[tuple[Per, ...]] = ("row",)
    kind: Literal["xception"] = "xception"
    size: Literal["abbreviated", "full"] = "abbreviated"
    skip: bool = False


class ApGlueConfig(PoolerBase):
    """Size of the projection, and how many tokens a row may have."""

    kind: Literal["ap_glue"] = "ap_glue"
    per: ClassVar[tuple[Per, ...]] = ("row",)
    classes_from: ClassVar[Literal["one state", "all tokens"]] = "all tokens"
    width: int = Field(128, ge=1)
    length: int = Field(128, ge=1)


class CacnnSimpleConfig(PoolerBase):
    """The simplified variant, whose code is known: filters are averages of a wide convolution's channels."""

    kind: Literal["cacnn_simple"] = "cacnn_simple"
    per: ClassVar[tuple[Per, ...]] = ("token",)
    searches_context: ClassVar[bool] = True
    mix: Mix = "last"  # what is read: Hulburd's last state, or a mix of all
    filters: int = Field(4, ge=1)
    length: int = Field(6, ge=1)  # of a filter, in tokens


class CacnnContextConfig(PoolerBase):
    """The variant of the paper: filters come from one vector of the whole row. Its sizes are not known."""

    kind: Literal["cacnn_context"] = "cacnn_context"
    per: ClassVar[tuple[Per, ...]] = ("token",)
    searches_context: ClassVar[bool] = True
    mix: Mix = "last"
    filters: int = Field(4, ge=1)
    length: int = Field(5, ge=1)
    rank: int = Field(16, ge=1)  # filters read this many learned directions of the state


class LadderConfig(PoolerBase):
    """Width of the side network."""

    kind: Literal["ladder"] = "ladder"
    width: Width = 32


class Mix4Config(PoolerBase):
    """Size of each mix's projection."""

    kind: Literal["mix4"] = "mix4"
    width: Width = 64


class LayerAttentionConfig(PoolerBase):
    """Size of query, keys and values."""

    kind: Literal["layer_attention"] = "layer_attention"
    width: Width = 64


class ReadConfig(PoolerBase):
    """Width of the projection and of the recurrent state."""

    kind: Literal["read"] = "read"
    width: Width = 64


class RegressionConfig(PoolerBase):
    """Which layers a regression reads; a head with it is fitted at once (`heads/regression.py`), and takes no steps."""

    kind: Literal["regression"] = "regression"
    per: ClassVar[tuple[Per, ...]] = ("row",)
    layers: Literal["all", "last"] = "all"


class OwnPoolerConfig(PoolerBase):
    """A module that learns beside the catalog's; files name its class and its first weights, and hold no code."""

    kind: Literal["custom"] = "custom"
    name: str  # of its class
    initial_weights: str  # fingerprint of the weights that it starts from
    module: Any = Field(None, exclude=True)  # an nn.Module


AnyPooler = (
    LearnedPoolingConfig
    | AveragePoolingConfig
    | AdapterConfig
    | MixedAdapterConfig
    | TwoAdaptersConfig
    | LastStateConfig
    | LastDenseConfig
    | ChosenLayersConfig
    | Cnn1xNConfig
    | CnnNxNConfig
    | InceptionConfig
    | ModifiedXceptionConfig
    | XceptionConfig
    | ApGlueConfig
    | CacnnSimpleConfig
    | CacnnContextConfig
    | LadderConfig
    | Mix4Config
    | LayerAttentionConfig
    | ReadConfig
    | RegressionConfig
    | OwnPoolerConfig
)
