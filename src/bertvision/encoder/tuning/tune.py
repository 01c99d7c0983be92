"""The one way in: tune a loaded encoder as a setting says, say what is trained, and take it all out again.

A tuning is all that differs from the plain encoder: what was inserted, and the encoder's own weights that it trains.
An encoder has one at most; another one is another file, for another copy of the encoder.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from bertvision.encoder.tuning.adapters import (
    insert_bottlenecks,
    insert_lora,
    insert_parasites,
    merge_lora,
    remove_bottlenecks,
    remove_lora,
    remove_parasites,
)
from bertvision.encoder.tuning.blocks import INSERTED, inserted_parameters, parts_of, plain_name, plain_parameters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import NORMS, freeze_share, set_trained, trained_names, trained_sizes
from bertvision.errors import EncoderError, SettingsError
from bertvision.training.checkpoint import fingerprint_tensors
from bertvision.training.loop import RandomStream, seed_for

PART_OF_WORD = {"adapters": "adapters", "lora_A": "LoRA", "lora_B": "LoRA", "parasites": "parasites"}
POOLER = "pooler."  # begins the names of its weights, in all kinds of encoder that have one
TUNING = "tuning"  # on the model, and copied with it


class Base(NamedTuple):
    """Fingerprints of a plain encoder; the pooler apart: transformers makes a random one if a checkpoint has none."""

    encoder: str
    pooler: str


@dataclass
class Tuning:
    """An encoder's tuning: its setting, and the plain values of the encoder's own weights that it trains."""

    config: TuneConfig
    plain: dict[str, Tensor]
    base: Base | None  # of the encoder when it was tuned: after a cast it cannot be told any more


@dataclass(frozen=True)
class Tuned:
    """What of an encoder is trained, weight by weight."""

    sizes: dict[str, int]  # of every trained weight, by its name in the model; frozen numbers left out
    sizes_by_part: dict[str, int]  # embeddings, blocks, norms, pooler, other, adapters, LoRA, parasites
    total: int  # all weights, trained or not

    @property
    def trained(self) -> int:
        """Count the trained weights."""
        return sum(self.sizes.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {size:,}" for part, size in self.sizes_by_part.items())
        return f"{self.trained:,} of {self.total:,} weights are trained ({parts or 'nothing'})"


def tune(model: PreTrainedModel, config: TuneConfig, seed: int) -> Tuned:
    """Tune a plain encoder in place: insert what is to be inserted, let it learn, and say what is trained.

    The plain values of the weights that it trains are kept beside the encoder, so that `save_plain` can write them and
    `remove_tuning` can bring them back.
    """
    if config.frozen_fraction is not None:
        raise SettingsError(
            f"frozen_fraction: {config.frozen_fraction:g} is kept by an experiment's own training, and another loop "
            "would move what is frozen; run an experiment with it, or leave it out"
        )
    names, own = trained_names(model, config.trained, norms=config.train_norms), plain_parameters(model)
    with undone_on_failure(model):
        plain = {each: own[each].detach().clone() for each in names}
        model.__dict__[TUNING] = Tuning(config, plain, base_of(model))
        with RandomStream(seed_for(seed, "tune"), torch.device("cpu")).entered():
            _insert(model, config)
        set_trained(model, names)
    return what_is_trained(model)


def tuning_of(model: PreTrainedModel) -> Tuning | None:
    """Return an encoder's tuning, which is kept with it and copied with it; None: it is plain."""
    tuning: Tuning | None = model.__dict__.get(TUNING)
    return tuning


def start_tuning(model: PreTrainedModel, config: TuneConfig | None, seed: int) -> None:
    """Make an encoder ready to be tuned as an experiment says (None: all of it); one that holds a tuning goes on."""
    earlier = tuning_of(model)
    if earlier is not None:
        if config != earlier.config:
            raise SettingsError(
                f"the encoder holds a tuning already ({_spelled(earlier.config)}), and `tune` asks "
                f"for {_spelled(config or TuneConfig())}; set `tune` to the same, or start from a plain encoder"
            )
        set_trained(model, earlier.plain)
    elif config is not None and (config.inserted or config.parasites is not None):
        tune(model, config, seed)
    elif config is not None:  # nothing that is not the encoder's own: no second copy of its weights is needed
        set_trained(model, trained_names(model, config.trained, norms=config.train_norms))
        freeze_share(model, config.frozen_fraction, seed)


def what_is_trained(model: PreTrainedModel) -> Tuned:
    """Say which weights of an encoder learn now."""
    sizes = trained_sizes(model)
    by_part: Counter[str] = Counter()
    for name, size in sizes.items():
        by_part[_part_of(model, name)] += size
    return Tuned(sizes, dict(by_part), sum(param.numel() for param in model.parameters()))


def remove_tuning(model: PreTrainedModel) -> None:
    """Take a tuning out: the encoder is what it was before, bit for bit (which weights learn is unchanged)."""
    tuning, own = _tuning_of(model), plain_parameters(model)
    with torch.no_grad():
        for name, value in tuning.plain.items():
            own[name].copy_(value)
    for remove in (remove_lora, remove_bottlenecks, remove_parasites):  # LoRA may lie around what adapters hang from
        remove(model)
    del model.__dict__[TUNING]


def merge_tuning(model: PreTrainedModel) -> None:
    """Make a LoRA tuning the encoder's own weights: the same outputs, no extra cost, plain names."""
    if not _tuning_of(model).config.is_mergeable:
        raise EncoderError(
            "only LoRA can be merged: adapters and parasites are not linear; keep them beside the encoder"
        )
    merge_lora(model)
    del model.__dict__[TUNING]


@contextmanager
def undone_on_failure(model: PreTrainedModel) -> Iterator[None]:
    """Within this a plain encoder is tuned; if that fails, it is plain again, and what learns is what learnt before."""
    if (earlier := tuning_of(model)) is not None:
        raise SettingsError(
            f"the encoder holds a tuning already ({_spelled(earlier.config)}); tune another copy of the plain encoder, "
            "or take this tuning out with remove_tuning"
        )
    learning = {name for name, param in model.named_parameters() if param.requires_grad}
    try:
        yield
    except BaseException:  # Ctrl-C too: an encoder with half a tuning would give wrong numbers later
        if tuning_of(model) is not None:
            remove_tuning(model)
        for name, param in model.named_parameters():
            param.requires_grad_(name in learning)
        raise


def trained_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return all that differs from the plain encoder in a tuned one, by the names that files have."""
    own = plain_parameters(model)
    values = {**{name: own[name] for name in _tuning_of(model).plain}, **inserted_parameters(model)}
    return {name: param.detach().clone() for name, param in values.items()}


def plain_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the plain encoder's weights under their plain names, in today's number format."""
    kept = {name: tensor for name, tensor in model.state_dict().items() if INSERTED.search(name) is None}
    own = {plain_name(name): tensor.detach() for name, tensor in kept.items()}
    tuning = tuning_of(model)
    if tuning is None:
        return own
    return {**own, **{name: value.to(own[name]) for name, value in tuning.plain.items()}}


def base_of(model: PreTrainedModel) -> Base | None:
    """The plain encoder's fingerprints, of when it was tuned; None while its weights have no values (meta)."""
    tuning = tuning_of(model)
    if tuning is not None and tuning.base is not None:
        return tuning.base
    return _fingerprints(plain_state(model))


def _fingerprints(state: Mapping[str, Tensor]) -> Base | None:
    if any(tensor.is_meta for tensor in state.values()):
        return None
    pooler = {name: tensor for name, tensor in state.items() if name.startswith(POOLER)}
    rest = {name: tensor for name, tensor in state.items() if name not in pooler}
    return Base(fingerprint_tensors(rest), fingerprint_tensors(pooler))


def _tuning_of(model: PreTrainedModel) -> Tuning:
    if (tuning := tuning_of(model)) is None:
        raise SettingsError("the encoder is plain, and this needs a tuned one; call tune or load_adapters first")
    return tuning


def _insert(model: PreTrainedModel, config: TuneConfig) -> None:
    for kind, width in config.inserted:
        match kind:
            case "houlsby" | "pfeiffer":
                insert_bottlenecks(model, kind, width)
            case "lora" | "lora-all":
                insert_lora(model, width, everywhere=kind == "lora-all")
    if config.parasites is not None:
        states = config.parasites.states
        read = None if states == "all" else states
        insert_parasites(model, config.parasites.width, read, config.parasites.length)


def _spelled(config: TuneConfig) -> str:
    return ", ".join(f"{key}: {value}" for key, value in config.model_dump(mode="json").items() if value is not None)


def _part_of(model: PreTrainedModel, name: str) -> str:
    if (inserted := INSERTED.search(name)) is not None:
        return PART_OF_WORD[inserted[1]]
    if isinstance(model.get_submodule(name.rpartition(".")[0]), NORMS):
        return "norms"
    parts, plain = parts_of(model), plain_name(name)
    if plain.startswith(parts.before):
        return "embeddings"
    if plain.startswith(f"{parts.blocks}."):
        return "blocks"
    return "pooler" if plain.startswith(parts.after) else "other"
