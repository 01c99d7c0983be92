"""The one way in: apply a setting to a loaded encoder, and say what is trained."""

from collections import Counter
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from bertvision.encoder.tuning.adapters import insert_bottlenecks, insert_lora
from bertvision.encoder.tuning.blocks import INSERTED, parts_of, plain_name
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.freezing import NORMS, freeze_share, set_trained, trained_names, trained_sizes
from bertvision.encoder.tuning.parasites import insert_parasites
from bertvision.encoder.tuning.variants import (
    add_variant,
    set_active,
    train_active,
    undone_on_failure,
    variant_of,
    variants_of,
)
from bertvision.errors import SettingsError
from bertvision.training.loop import RandomStream, seed_for

PART_OF_WORD = {"adapters": "adapters", "lora_A": "LoRA", "lora_B": "LoRA", "parasites": "parasites"}


@dataclass(frozen=True)
class Tuned:
    """What of an encoder is trained, weight by weight."""

    name: str
    sizes: dict[str, int]  # of every trained weight, by its name in the model; frozen numbers left out
    sizes_by_part: dict[str, int]  # embeddings, blocks, norms, pooler, other, adapters, LoRA, parasites
    total: int  # all weights, trained or not, of this and other tunings

    @property
    def trained(self) -> int:
        """Count the trained weights."""
        return sum(self.sizes.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {size:,}" for part, size in self.sizes_by_part.items())
        return f"{self.name}: {self.trained:,} of {self.total:,} weights are trained ({parts or 'nothing'})"


def tune(model: PreTrainedModel, config: TuneConfig, seed: int, name: str = "tuned") -> Tuned:
    """Set up a tuning of a plain encoder in place, let it act and learn, and say what is trained.

    It starts from the plain encoder also where another tuning of it is active. The plain values of the weights that it
    trains are kept beside the encoder, so that `set_active(model, None)` and `remove_tuning` can bring them back.
    """
    if not name.isidentifier() or name in variants_of(model).by_name:
        known = ", ".join(variants_of(model).by_name) or "none"
        raise SettingsError(
            f"a tuning's name is a word of letters, digits and _, used once, got {name!r}; used: {known}"
        )
    if config.frozen_share is not None:
        raise SettingsError(
            f"frozen_share: {config.frozen_share:g} is kept by an experiment's own training, and another loop would "
            "move what is frozen; run an experiment with it, or leave it out"
        )
    names = trained_names(model, config.trained, norms=config.norms)
    with undone_on_failure(model, name):
        add_variant(model, name, config, names)
        with RandomStream(seed_for(seed, "tune"), torch.device("cpu")).entered():
            _insert(model, config, name)
        set_active(model, name)
        train_active(model)
    return what_is_trained(model)


def start_tuning(model: PreTrainedModel, config: TuneConfig | None, seed: int) -> None:
    """Make an encoder ready to be tuned as an experiment says (None: all of it); one that holds a tuning goes on."""
    active = variants_of(model).active
    if active is not None:
        if config != variant_of(model, active).config:
            raise SettingsError(
                f"the encoder holds a tuning already ({_spelled(variant_of(model, active).config)}), and `tune` asks "
                f"for {_spelled(config or TuneConfig())}; set `tune` to the same, or start from a plain encoder"
            )
        train_active(model)
    elif config is not None and (config.inserted or config.parasites is not None):
        tune(model, config, seed)
    elif config is not None:  # nothing that is not the encoder's own: no second copy of its weights is needed
        set_trained(model, trained_names(model, config.trained, norms=config.norms))
        freeze_share(model, config.frozen_share, seed)


def what_is_trained(model: PreTrainedModel) -> Tuned:
    """Say which weights of an encoder learn now."""
    sizes = trained_sizes(model)
    by_part: Counter[str] = Counter()
    for name, size in sizes.items():
        by_part[_part_of(model, name)] += size
    total = sum(param.numel() for param in model.parameters())
    return Tuned(variants_of(model).active or "plain", sizes, dict(by_part), total)


def _insert(model: PreTrainedModel, config: TuneConfig, name: str) -> None:
    for kind, width in config.inserted:
        match kind:
            case "houlsby" | "pfeiffer":
                insert_bottlenecks(model, kind, width, name)
            case "lora" | "lora-all":
                insert_lora(model, width, name, everywhere=kind == "lora-all")
    if config.parasites is not None:
        states = config.parasites.states
        read = None if states == "all" else states
        insert_parasites(model, config.parasites.width, read, config.parasites.length, name)


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
