"""Every kind of pooler, a user's own included; turns a config into a module."""

from copy import deepcopy
from typing import assert_never

import torch
from torch import nn

from bertvision.errors import SettingsError, reason_of
from bertvision.heads.poolers.adapter import Adapter, Mix4, MixedAdapter, PositionalAdapter, TwoAdapters
from bertvision.heads.poolers.cacnn import build_cacnn
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
from bertvision.heads.poolers.layers import (
    AveragePooling,
    ChosenLayers,
    LastDense,
    LastState,
    LearnedPooling,
    SideBySide,
    width_of,
)
from bertvision.shapes import StackShape
from bertvision.training.checkpoint import fingerprint


def build_pooler(config: AnyPooler, shape: StackShape) -> tuple[nn.Module, int]:
    """Turn a config into a module and its number of features: configs stop here, modules see plain numbers."""
    pooler = _module_of(config, shape)
    return pooler, int(pooler.features)  # type: ignore[arg-type]  # tests and `describe_own` have checked it


def _module_of(config: AnyPooler, shape: StackShape) -> nn.Module:
    layers, hidden = shape
    match config:
        case OwnPoolerConfig():
            return copy_own(config)
        case LearnedPoolingConfig():
            return LearnedPooling(layers, hidden)
        case AveragePoolingConfig(layers=averaged):
            return AveragePooling(hidden, first_and_last=averaged == "first_and_last")
        case AdapterConfig(width=width, shared=shared, skip=skip, gelu=gelu):
            return Adapter(layers, hidden, width_of(width, hidden), shared=shared, skip=skip, gelu=gelu)
        case MixedAdapterConfig(mix=mix, width=width, skip=skip):
            return MixedAdapter(shape, mix, width_of(width, hidden), skip=skip)
        case TwoAdaptersConfig(width=width):
            return TwoAdapters(shape, width_of(width, hidden))
        case LastStateConfig():
            return LastState(hidden)
        case LastDenseConfig(activation=activation, bias=bias, norm=norm, norm_eps=eps):
            return LastDense(hidden, activation, bias=bias, norm=norm, norm_eps=eps)
        case ChosenLayersConfig(layers=chosen, join=join):
            return ChosenLayers(shape, chosen, mixed=join == "mix")
        case Cnn1xNConfig(mix=view, width=width, dilated=dilated, dropout=rate):
            adapter = None if width is None else width_of(width, hidden)
            return Cnn1xN(shape, view, adapter, dilated=dilated, dropout_rate=rate)
        case CnnNxNConfig(mix=mix, width=width, dropout=rate):
            return CnnNxN(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case InceptionConfig(mix=mix, width=width, dropout=rate):
            return Inception(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case ModifiedXceptionConfig(mix=mix, width=width, dropout=rate):
            return ModifiedXception(shape, mix, width_of(width, hidden), dropout_rate=rate)
        case XceptionConfig(size=size, skip=skip):
            return Xception(shape, full=size == "full", skip=skip)
        case ApGlueConfig(width=number, length=length):
            return PositionalAdapter(shape, number, length)
        case CacnnSimpleConfig() | CacnnContextConfig():
            return build_cacnn(config, shape)
        case LadderConfig(width=width):
            return Ladder(shape, width_of(width, hidden))
        case Mix4Config(width=width):
            return Mix4(shape, width_of(width, hidden))
        case LayerAttentionConfig(width=width):
            return LayerAttention(shape, width_of(width, hidden))
        case ReadConfig(width=width):
            return DepthReader(shape, width_of(width, hidden))
        case RegressionConfig(layers=regressed):
            return SideBySide(shape, last=regressed == "last")
        case _:
            assert_never(config)


def describe_own(module: nn.Module) -> OwnPoolerConfig:
    """Return the config of a module; refuse one that does not say how many features it makes."""
    features = getattr(module, "features", None)
    if not isinstance(features, int) or features < 1:
        raise SettingsError(
            f"{type(module).__name__}: a pooler needs `features`, the width of what it makes of each token, "
            f"got {features!r}; set self.features in its __init__"
        )
    return OwnPoolerConfig(name=type(module).__name__, initial_weights=fingerprint(module), module=module)


def check_own(module: nn.Module, shape: StackShape, features: int, tokens: int) -> None:
    """Refuse a module of somebody's own that makes something else of states than features of each token."""
    device = next((weight.device for weight in module.parameters()), "cpu")
    states = torch.zeros(2, shape.layers, tokens, shape.hidden, device=device)
    mask = torch.ones(2, tokens, dtype=torch.bool, device=device)
    is_training = module.training
    try:
        with torch.no_grad():
            made = module.eval()(states, mask, mask.long())
        got = f"gives {list(made.shape)}" if isinstance(made, torch.Tensor) else f"gives {type(made).__name__}"
    except Exception as error:  # anything: it is somebody's own
        got = f"fails ({type(error).__name__}: {reason_of(error)})"
    module.train(is_training)
    if got != f"gives {[2, tokens, features]}":
        raise SettingsError(
            f"{type(module).__name__}: forward(states, mask, segments) {got} for states of {list(states.shape)}; "
            f"return {[2, tokens, features]}: batch, tokens and `features`, without the layers (see docs/python.md)"
        )


def copy_own(config: OwnPoolerConfig) -> nn.Module:
    """Return a copy of the module, so that every head and seed starts from the same weights."""
    if config.module is None:
        raise SettingsError(
            f"this head reads by a pooler of somebody's own, {config.name}, which no file holds; give it: "
            f"bertvision.load(folder, pooler={config.name}(...))"
        )
    own: nn.Module = deepcopy(config.module)
    return own
