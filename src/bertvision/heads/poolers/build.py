"""Every kind of pooler, a user's own included; turns a config into a module."""

from copy import deepcopy
from typing import assert_never

from torch import nn

from bertvision.errors import SettingsError
from bertvision.heads.poolers.adapter import Adapter, Mix4, MixedAdapter, PositionalAdapter, TwoAdapters
from bertvision.heads.poolers.cacnn import Cacnn, build_cacnn
from bertvision.heads.poolers.cnn import Cnn1xN, CnnNxN
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
    LastDenseConfig,
    LastStateConfig,
    LayerAttentionConfig,
    LearnedPoolingConfig,
    Mix4Config,
    MixedAdapterConfig,
    ModifiedXceptionConfig,
    OwnPoolerConfig,
    ReadConfig,
    RegressionConfig,
    TwoAdaptersConfig,
    XceptionConfig,
)
from bertvision.heads.poolers.depth import DepthReader, Ladder, LayerAttention
from bertvision.heads.poolers.image_networks import Inception, ModifiedXception, Xception
from bertvision.heads.poolers.mixes import (
    AveragePooling,
    ChosenLayers,
    LastDense,
    LastState,
    LearnedPooling,
    SideBySide,
)
from bertvision.heads.poolers.pooler import width_of
from bertvision.shapes import StackShape
from bertvision.training.checkpoint import fingerprint


def build_pooler(config: AnyPooler, shape: StackShape) -> tuple[nn.Module, int]:
    """Turn a config into a module and its number of features: configs stop here, modules see plain numbers."""
    if isinstance(config, OwnPoolerConfig):
        own = copy_own(config)
        return own, int(own.features)  # type: ignore[arg-type]  # `describe_own` has checked it
    layers, hidden = shape
    pooler: (
        LearnedPooling
        | AveragePooling
        | Adapter
        | MixedAdapter
        | TwoAdapters
        | LastState
        | LastDense
        | ChosenLayers
        | Cnn1xN
        | CnnNxN
        | Inception
        | ModifiedXception
        | Xception
        | PositionalAdapter
        | Cacnn
        | Ladder
        | Mix4
        | LayerAttention
        | DepthReader
        | SideBySide
    )
    match config:
        case LearnedPoolingConfig():
            pooler = LearnedPooling(layers, hidden)
        case AveragePoolingConfig(layers=averaged):
            pooler = AveragePooling(hidden, first_and_last=averaged == "first_and_last")
        case AdapterConfig(width=width, shared=shared, skip=skip, gelu=gelu):
            pooler = Adapter(layers, hidden, width_of(width, hidden), shared=shared, skip=skip, gelu=gelu)
        case MixedAdapterConfig(mix=mix, width=width, skip=skip):
            pooler = MixedAdapter(shape, mix, width_of(width, hidden), skip=skip)
        case TwoAdaptersConfig(width=width):
            pooler = TwoAdapters(shape, width_of(width, hidden))
        case LastStateConfig():
            pooler = LastState(hidden)
        case LastDenseConfig(activation=activation, bias=bias, norm=norm, norm_eps=eps):
            pooler = LastDense(hidden, activation, bias=bias, norm=norm, norm_eps=eps)
        case ChosenLayersConfig(layers=chosen, join=join):
            pooler = ChosenLayers(shape, chosen, mixed=join == "mix")
        case Cnn1xNConfig(mix=view, width=width, dilated=dilated, dropout=rate):
            adapter = None if width is None else width_of(width, hidden)
            pooler = Cnn1xN(shape, view, adapter, dilated=dilated, dropout_rate=rate)
        case CnnNxNConfig(mix=mix, width=width, dropout=rate):
            pooler = CnnNxN(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case InceptionConfig(mix=mix, width=width, dropout=rate):
            pooler = Inception(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case ModifiedXceptionConfig(mix=mix, width=width, dropout=rate):
            pooler = ModifiedXception(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case XceptionConfig(size=size, skip=skip):
            pooler = Xception(shape, full=size == "full", skip=skip)
        case ApGlueConfig(width=number, length=length):
            pooler = PositionalAdapter(shape, number, length)
        case CacnnSimpleConfig() | CacnnContextConfig():
            pooler = build_cacnn(config, shape)
        case LadderConfig(width=width):
            pooler = Ladder(shape, width_of(width, hidden))
        case Mix4Config(width=width):
            pooler = Mix4(shape, width_of(width, hidden))
        case LayerAttentionConfig(width=width):
            pooler = LayerAttention(shape, width_of(width, hidden))
        case ReadConfig(width=width):
            pooler = DepthReader(shape, width_of(width, hidden))
        case RegressionConfig(layers=regressed):
            pooler = SideBySide(shape, last=regressed == "last")
        case _:
            assert_never(config)
    return pooler, pooler.features


def describe_own(module: nn.Module) -> OwnPoolerConfig:
    """Return the config of a module; refuse one that does not say how many features it makes."""
    features = getattr(module, "features", None)
    if not isinstance(features, int) or features < 1:
        raise SettingsError(
            f"{type(module).__name__}: a pooler needs `features`, the width of what it makes of each token, "
            f"got {features!r}; set self.features in its __init__"
        )
    return OwnPoolerConfig(name=type(module).__name__, start=fingerprint(module), module=module)


def copy_own(config: OwnPoolerConfig) -> nn.Module:
    """Return a copy of the module, so that every head and seed starts from the same weights."""
    if config.module is None:
        raise SettingsError(
            f"this head reads by a pooler of somebody's own, {config.name}, which no file holds; give it: "
            f"bertvision.load(folder, pooler={config.name}(...))"
        )
    own: nn.Module = deepcopy(config.module)
    return own
