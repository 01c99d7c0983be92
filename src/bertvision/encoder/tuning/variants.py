"""Several tunings of one encoder, by name: one of them acts, or the encoder is plain.

A tuning is all that differs from the plain encoder: what was inserted, and the encoder's own weights that it trains.
The latter are exchanged when another tuning (or none) becomes active, so every tuning has its own norms.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.encoder.tuning.adapters import activate_lora, merge_lora, remove_bottlenecks, remove_lora
from bertvision.encoder.tuning.blocks import INSERTED, Slot, inserted_parameters, plain_name, plain_parameters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import set_trained
from bertvision.encoder.tuning.parasites import remove_parasites
from bertvision.errors import EncoderError, SettingsError
from bertvision.training.checkpoint import fingerprint_tensors

POOLER = "pooler."  # begins the names of its weights, in all kinds of encoder that have one


@dataclass
class Variant:
    """One tuning: its setting, and its values of the encoder's own weights that it trains (while it does not act)."""

    config: TuneConfig
    values: dict[str, Tensor]


class Base(NamedTuple):
    """Fingerprints of a plain encoder; the pooler apart: transformers makes a random one if a checkpoint has none."""

    encoder: str
    pooler: str


@dataclass
class Variants:
    """All tunings of an encoder, the active one's name, and the plain values of all weights that any of them trains."""

    by_name: dict[str, Variant] = field(default_factory=dict)
    active: str | None = None
    plain: dict[str, Tensor] = field(default_factory=dict)
    base: Base | None = None  # of the encoder when its first tuning came: after a cast it cannot be told any more


def variants_of(model: PreTrainedModel) -> Variants:
    """Return an encoder's tunings, which are kept with it and copied with it."""
    found: Variants = model.__dict__.get("tunings", Variants())
    return found


def keep_base(model: PreTrainedModel) -> Base | None:
    """The plain encoder's fingerprints, taken at the first call; None while its weights have no values (meta)."""
    variants: Variants = model.__dict__.setdefault("tunings", Variants())
    if variants.base is None:
        variants.base = _fingerprints(plain_state(model))
    return variants.base


def add_variant(model: PreTrainedModel, name: str, config: TuneConfig, names: set[str]) -> None:
    """Note a tuning that starts from the plain encoder and trains these weights of it."""
    keep_base(model)
    variants, own = variants_of(model), plain_parameters(model)
    # Also where another tuning acts: a weight without a plain value yet is one that no tuning has changed.
    variants.plain |= {each: own[each].detach().clone() for each in names - variants.plain.keys()}
    variants.by_name[name] = Variant(config, {each: variants.plain[each] for each in names})


def set_active(model: PreTrainedModel, name: str | None) -> None:
    """Let one tuning act, or none: then the encoder is the plain one, bit for bit. Which weights learn is unchanged."""
    variants = variants_of(model)
    if name is not None:
        variant_of(model, name)
    if variants.active is not None:
        leaving = variants.by_name[variants.active]
        leaving.values = trained_weights(model, variants.active)
        _write(model, {each: variants.plain[each] for each in leaving.values})
    if name is not None:
        _write(model, variants.by_name[name].values)
    variants.active = name
    learning = _learning(model)
    activate_lora(model, name)  # peft lets the active LoRA learn
    _let_learn(model, learning)
    for module in model.modules():
        if isinstance(module, Slot):
            module.active = name


def train_active(model: PreTrainedModel) -> None:
    """Let exactly the active tuning's weights learn, such as after a switch or after the encoder was frozen."""
    variants = variants_of(model)
    names = variants.by_name[variants.active].values if variants.active is not None else ()
    set_trained(model, names, variants.active)


def remove_tuning(model: PreTrainedModel, name: str) -> None:
    """Forget a tuning; when the last one is gone the encoder is what it was (which weights learn is unchanged)."""
    variant_of(model, name)
    if variants_of(model).active == name:
        set_active(model, None)
    for remove in (remove_bottlenecks, remove_lora, remove_parasites):
        remove(model, name)
    variants = variants_of(model)
    del variants.by_name[name]
    trained = {each for variant in variants.by_name.values() for each in variant.values}
    variants.plain = {each: value for each, value in variants.plain.items() if each in trained}
    if not variants.by_name:
        del model.__dict__["tunings"]


@contextmanager
def undone_on_failure(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Within this a tuning is added; if that fails, the encoder is as before: what acts, what learns, what is in it."""
    is_new, active = name not in variants_of(model).by_name, variants_of(model).active
    learning = _learning(model)
    try:
        yield
    except BaseException:  # Ctrl-C too: an encoder with half a tuning would give wrong numbers later
        if is_new and name in variants_of(model).by_name:
            set_active(model, active)
            remove_tuning(model, name)
        if not variants_of(model).by_name:
            model.__dict__.pop("tunings", None)
        _let_learn(model, learning)
        raise


def merge_tuning(model: PreTrainedModel) -> None:
    """Make the active LoRA tuning the encoder's own weights: the same outputs, no extra cost, plain names."""
    variants = variants_of(model)
    if len(variants.by_name) != 1 or variants.active is None:
        raise EncoderError(
            f"merging needs one tuning, and an active one, got {len(variants.by_name)}; remove the others"
        )
    if not variants.by_name[variants.active].config.is_mergeable:
        raise EncoderError(
            "only LoRA can be merged: adapters and parasites are not linear; keep them beside the encoder"
        )
    merge_lora(model, variants.active)
    del model.__dict__["tunings"]


def variant_of(model: PreTrainedModel, name: str | None) -> Variant:
    """Look a tuning up by its name."""
    known = variants_of(model).by_name
    if name is None or name not in known:
        raise SettingsError(f"no tuning {name!r} of this encoder; known: {', '.join(known) or 'none yet'}")
    return known[name]


def trained_state(model: PreTrainedModel, name: str | None = None) -> dict[str, Tensor]:
    """Return all that differs from the plain encoder in a tuning (the active one unless named), its name left out."""
    name = variants_of(model).active if name is None else name
    variant_of(model, name)
    assert name is not None
    inserted = {each: param.detach().clone() for each, param in inserted_parameters(model, name).items()}
    return {**trained_weights(model, name), **inserted}


def trained_weights(model: PreTrainedModel, name: str) -> dict[str, Tensor]:
    """Return a tuning's values of the encoder's own weights that it trains."""
    variants, values = variants_of(model), variant_of(model, name).values
    if variants.active != name:
        return dict(values)
    own = plain_parameters(model)
    return {each: own[each].detach().clone() for each in values}


def plain_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the plain encoder's weights under their plain names, whatever tuning acts, in today's number format."""
    kept = {name: tensor for name, tensor in model.state_dict().items() if INSERTED.search(name) is None}
    own = {plain_name(name): tensor.detach() for name, tensor in kept.items()}
    if variants_of(model).active is None:
        return own
    return {**own, **{name: value.to(own[name]) for name, value in variants_of(model).plain.items()}}


def _fingerprints(state: Mapping[str, Tensor]) -> Base | None:
    if any(tensor.is_meta for tensor in state.values()):
        return None
    pooler = {name: tensor for name, tensor in state.items() if name.startswith(POOLER)}
    rest = {name: tensor for name, tensor in state.items() if name not in pooler}
    return Base(fingerprint_tensors(rest), fingerprint_tensors(pooler))


def _learning(model: PreTrainedModel) -> set[str]:
    return {name for name, param in model.named_parameters() if param.requires_grad}


def _let_learn(model: PreTrainedModel, names: set[str]) -> None:
    for name, param in model.named_parameters():
        param.requires_grad_(name in names)


def _write(model: PreTrainedModel, values: Mapping[str, Tensor]) -> None:
    own = plain_parameters(model)
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)
