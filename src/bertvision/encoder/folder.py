"""An encoder's folder, whoever made it: nothing in it is run, asked about, or followed to another place.

transformers' own loading follows what a folder says: to kernels and code of the hub, to adapters and to pickled
checkpoints. Here its config is read as data, its weights are safetensors, and transformers is handed these two.
A folder may hold what differs from another encoder alone: changed weights in float16, and of which one. Or its products
are rounded to 8 bits, `rounded.safetensors`, each row with a scale of its own.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bertvision.errors import EncoderError, FolderError
from bertvision.files import read_json
from bertvision.manifest import check_manifest
from bertvision.settings import Config, validate
from bertvision.training.checkpoint import fingerprint, load_tensors

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ROUNDED, SCALE = "rounded.safetensors", ".scale"  # what the scales of a tensor's rows are called, behind its name
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
# What a config could choose beside the encoder's sizes: code, kernels, other files, formats of numbers; and labels,
# which an encoder has none of, but of which transformers makes a name for each.
IGNORED = (
    *("auto_map", "attn_implementation", "_attn_implementation", "_attn_implementation_internal"),
    *("experts_implementation", "_experts_implementation", "_experts_implementation_internal"),
    *("kernel_config", "fusion_config", "distributed_config", "quantization_config", "transformers_weights"),
    *("num_labels", "id2label", "label2id", "use_pretrained_backbone", "backbone"),
)
NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers")
PURPOSES = ("QuestionAnswering", "SequenceClassification", "TokenClassification")
CHANGES, CHANGES_FILE = "changes.safetensors", "changes.json"


class FileSizes(NamedTuple):
    """What files of weights say of themselves."""

    files: Sequence[Path]
    tensors: int
    numbers: int


def build_encoder(
    folder: Path, kind: type[PreTrainedModel] | None = None, changes: Mapping[str, Any] | None = None
) -> tuple[PreTrainedModel, set[str]]:
    """Return a folder's encoder with float32 weights, and the names of the weights that its checkpoint lacks.

    `kind` is the class of transformers to build, by default the encoder alone; `changes` go on top of its config.
    """
    sizes = _read_sizes(folder)
    config = _read_config(folder, sizes)
    config.update({"chunk_size_feed_forward": 0, **(changes or {})})  # which saves memory, and fails on other lengths
    with torch.device("meta"):  # sizes without memory
        empty: Any = AutoModel.from_config(config, dtype=torch.float32) if kind is None else kind(config)
    _check_sizes(empty, sizes)
    # Copies: a file that is overwritten while it is mapped into memory would change the model, or end the process.
    weights = {name: value.clone() for file in sizes.files for name, value in load_file(file).items()}
    if sizes.files == [folder / ROUNDED]:
        weights = unrounded(weights)
    model, info = type(empty).from_pretrained(
        None, config=config, state_dict=weights, dtype=torch.float32, output_loading_info=True
    )
    model.config.name_or_path = str(folder)
    return model, set(info["missing_keys"])


def unrounded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of `rounded.safetensors` in float32, as onnxruntime's DequantizeLinear computes them."""
    scales = {name.removesuffix(SCALE): value for name, value in weights.items() if name.endswith(SCALE)}
    whole = {name: value for name, value in weights.items() if not name.endswith(SCALE)}
    return whole | {name: whole[name].float() * scale[:, None] for name, scale in scales.items()}


def build_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return a folder's tokenizer; its settings name no file that lies elsewhere."""
    path = folder / TOKENIZER_CONFIG
    settings = read_json(path) if path.is_file() else {}
    # Where there is a tokenizer.json, it is read and such settings (older ones hold paths of their makers) are not.
    if not (folder / TOKENIZER).is_file() and isinstance(settings, dict):
        for key, value in settings.items():
            if key.endswith("_file") and isinstance(value, str) and Path(value).name != value:
                raise EncoderError(f"{path}: `{key}` is {value[:80]!r}, outside the folder; copy that file into it")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        str(folder), config=_kind_of_encoder(folder), trust_remote_code=False, local_files_only=True
    )
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # what transformers makes of no files at all
        raise EncoderError("its tokenizer has special tokens alone; copy the tokenizer's files (tokenizer.json) there")
    return tokenizer


def purpose_of(folder: Path) -> str | None:
    """Return what a checkpoint's output layer is for, as in the name of its class; None: for nothing known here."""
    content = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else None
    classes = content.get("architectures") if isinstance(content, dict) else None
    name = classes[0] if isinstance(classes, list) and classes else None
    return purpose_of_class(name) if isinstance(name, str) else None


def purpose_of_class(name: str) -> str | None:
    """Return what a class of transformers is for: of BertForQuestionAnswering, QuestionAnswering."""
    found = re.fullmatch(rf"[A-Za-z0-9]+For({'|'.join(PURPOSES)})", name)
    return None if found is None else found[1]


def _kind_of_encoder(folder: Path) -> PreTrainedConfig:
    """Return what the choice of a tokenizer's class needs of config.json; transformers would build all of it."""
    content = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    content = content if isinstance(content, dict) else {}
    kind, name = content.get("model_type"), content.get("tokenizer_class")
    config = CONFIG_MAPPING[kind]() if isinstance(kind, str) and kind in CONFIG_MAPPING else PreTrainedConfig()
    if isinstance(name, str):
        config.tokenizer_class = name
    return config


def _read_config(folder: Path, sizes: FileSizes) -> PreTrainedConfig:
    content = read_json(folder / CONFIG)
    kind = content.get("model_type") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        if isinstance(content, dict) and "auto_map" in content:
            raise EncoderError(
                "it needs code of its own (`auto_map`), which is never run; give an encoder that transformers has"
            )
        raise EncoderError(f"its `model_type` {str(kind)[:80]!r} is none that this version of transformers has")
    _check_numbers(content, sizes)
    config: PreTrainedConfig = CONFIG_MAPPING[kind].from_dict(_without_ignored(content))
    for name in NEEDED:
        if not isinstance(size := getattr(config, name, None), int) or size < 1:
            raise EncoderError(f"its config.json gives no `{name}`; give a text encoder")
    if config.num_hidden_layers > sizes.tensors:
        raise EncoderError(
            f"its config.json has {config.num_hidden_layers:,} layers, its weights {sizes.tensors:,} tensors"
        )
    return config


def _without_ignored(content: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(content, dict):
        return {key: _without_ignored(value) for key, value in content.items() if key not in IGNORED}
    return [_without_ignored(each) for each in content] if isinstance(content, list) else content


def _check_numbers(content: Mapping[str, Any], sizes: FileSizes) -> None:
    """Refuse a size that no weights stand behind, before something of that size is made."""
    for key, value in content.items():
        if isinstance(value, int) and abs(value) > sizes.numbers and key not in IGNORED:
            raise EncoderError(
                f"its config.json says {key}: {str(value)[:20]}, its weights hold {sizes.numbers:,} numbers"
            )


def _check_sizes(skeleton: PreTrainedModel, sizes: FileSizes) -> None:
    pooler = getattr(skeleton, "pooler", None)  # what checkpoints may lack
    spared = sum(each.numel() for each in pooler.parameters()) if isinstance(pooler, torch.nn.Module) else 0
    expected = sum(each.numel() for each in skeleton.parameters()) - spared
    if expected > 2 * sizes.numbers:  # what is merely missing is named later
        raise EncoderError(
            f"its config.json describes {expected:,} numbers, its weights hold {sizes.numbers:,}; get both again"
        )


def _read_sizes(folder: Path) -> FileSizes:
    shapes: list[Sequence[int]] = []
    files = _weight_files(folder)
    for path in files:
        with safe_open(path, framework="pt") as file:
            shapes += [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (no mapping)
    return FileSizes(files, len(shapes), sum(map(math.prod, shapes)))


def _weight_files(folder: Path) -> list[Path]:
    for name in (WEIGHTS, ROUNDED):
        if (folder / name).is_file():
            return [folder / name]
    if not (folder / INDEX).is_file():
        kind = f"AutoModelFor{purpose}" if (purpose := purpose_of(folder)) else "AutoModel"
        raise EncoderError(
            "it has no weights as safetensors, and no others are read (a pickle can run code); convert them: "
            f"{kind}.from_pretrained({str(folder)!r}, use_safetensors=False).save_pretrained('NEW'), and the "
            "tokenizer"
        )
    index = read_json(folder / INDEX)
    names = index.get("weight_map") if isinstance(index, dict) else None
    listed = sorted({str(each) for each in names.values()}) if isinstance(names, dict) else []
    if not listed or any(Path(each).name != each for each in listed):
        raise EncoderError(f"its {INDEX} names no files of its own folder; get it again")
    return [folder / each for each in listed]


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a safetensors file, of which nothing else is read."""
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_tensors(folder: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return some of a checkpoint's tensors as float32, by name; refuse a checkpoint that lacks one."""
    found: dict[str, torch.Tensor] = {}
    for path in _weight_files(folder):
        with safe_open(path, framework="pt") as file:
            own = set(file.keys())
            found |= {name: file.get_tensor(name).float() for name in names if name in own}
    if missing := [name for name in names if name not in found]:
        raise EncoderError(f"its weights lack {missing[0]!r}; get it again")
    return found


class ChangesConfig(Config):
    """What a folder's changes belong to, and what they make of it."""

    format: Literal[1] = 1
    base: str  # the encoder that they are laid over: `default`, `base`, or a hub id
    fingerprint: str  # of the whole encoder once they are


def lay_over(model: PreTrainedModel, changes: Mapping[str, Tensor], origin: str) -> None:
    """Put changed weights in the place of an encoder's own."""
    own = model.state_dict()
    if odd := [name for name in changes if _shape(changes, name) != _shape(own, name)]:
        raise FolderError(
            f"{origin}: {len(odd)} weights do not fit the encoder, such as {min(odd)!r}; install it again"
        )
    for name, value in changes.items():
        own[name].copy_(value)


def read_manifest(folder: Path) -> ChangesConfig:
    """Read what a folder's changes belong to, and check the bytes of its weights."""
    about = validate(ChangesConfig, read_json(folder / CHANGES_FILE), str(folder / CHANGES_FILE))
    check_manifest(folder)
    return about


def apply_changes(folder: Path, about: ChangesConfig, model: PreTrainedModel) -> None:
    """Turn the encoder that a folder's changes belong to into the one that was saved."""
    lay_over(model, load_tensors(folder / CHANGES), str(folder / CHANGES))
    if fingerprint(model) != about.fingerprint:
        raise FolderError(f"{folder}: {about.base} is not the encoder that these changes were made of; get that one")


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None
