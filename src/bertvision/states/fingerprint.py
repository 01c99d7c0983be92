"""What kept states depend on, part by part, so that a stale cache can be told which part is not its own."""

import hashlib
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from bertvision.settings import Settings
from bertvision.states.keep import Wanted
from bertvision.windows.window import Window

FORMAT = 1  # of the files; raise it when the same states would become other bytes
SHOWN = 16  # hexadecimal digits: a difference is shown to a person, and nobody is being deceived


def fingerprint_of(wanted: Wanted, weights: str, data: Settings) -> Settings:
    """Name all that decides the bytes of a cache; `weights` is the encoder's fingerprint, `data` the file's."""
    return {
        "encoder": weights[:SHOWN],
        "tokenizer": hash_tokenizer(wanted.encoder.tokenizer),
        "windows": hash_windows(wanted.windows),
        "data": data,
        "layers": "all" if wanted.layers is None else list(wanted.layers),
        "dtype": wanted.dtype,
        "cls": wanted.cls,
        "precision": wanted.compute.precision,
        "format": FORMAT,
        **({} if wanted.entering is None else {"entering": wanted.entering}),
    }


def hash_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash a tokenizer's vocabulary and special tokens."""
    pieces = sorted(tokenizer.get_vocab().items())
    return hashlib.sha256(repr((pieces, tokenizer.all_special_tokens)).encode()).hexdigest()[:SHOWN]


def hash_windows(windows: Sequence[Window]) -> str:
    """Hash what the encoder sees of windows: their tokens and where the context begins."""
    digest = hashlib.sha256()
    for window in windows:
        digest.update(np.array([len(window), window.context_at, *window.ids], dtype="<i4").data)
    return digest.hexdigest()[:SHOWN]
