"""A tokenizer as the library tokenizers reads it from a folder, which is all that models of onnxruntime need."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from bertvision.errors import FolderError, told_as
from bertvision.files import read_json
from bertvision.windows.tokens import check_tokenizer

BACKEND, SETTINGS = "tokenizer.json", "tokenizer_config.json"
NO_LIMIT = 10**30  # what transformers says where nobody does


class Encoded(dict[str, Any]):
    """What a call returns: ids and offsets by name, as in transformers' `BatchEncoding`."""

    def __init__(self, encodings: list[tokenizers.Encoding], *, is_one: bool, with_offsets: bool) -> None:
        ids, offsets = [each.ids for each in encodings], [each.offsets for each in encodings] if with_offsets else []
        super().__init__(input_ids=ids[0] if is_one else ids, offset_mapping=offsets)
        self._encodings = encodings

    def sequence_ids(self, row: int) -> list[int | None]:
        """Return of each token which text it is of, None for special tokens."""
        sides: list[int | None] = self._encodings[row].sequence_ids
        return sides


@dataclass(frozen=True, eq=False)
class FileTokenizer:
    """The part of a transformers tokenizer's call that windows need; see `windows.tokens.Tokenizer`."""

    backend: tokenizers.Tokenizer
    model_max_length: Any  # from a file: `check_tokenizer` says what it may be
    pad_token_id: int | None  # `check_tokenizer` refuses None
    unk_token_id: int | None
    is_fast: bool = True

    def __call__(
        self,
        texts: str | list[str],
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        return_offsets_mapping: bool = False,
        **others: Any,  # noqa: ANN401 (what transformers would otherwise return or print)
    ) -> Encoded:
        """Return the ids of one text, of a pair, or of several texts."""
        if isinstance(texts, str):
            encodings = [self.backend.encode(texts, pair, add_special_tokens=add_special_tokens)]
        else:
            encode = self.backend.encode_batch if return_offsets_mapping else self.backend.encode_batch_fast
            encodings = encode(texts, add_special_tokens=add_special_tokens)
        return Encoded(encodings, is_one=isinstance(texts, str), with_offsets=return_offsets_mapping)

    def convert_ids_to_tokens(self, ids: int) -> str:
        """Return the piece that an id stands for."""
        return self.backend.id_to_token(ids) or ""


def read_tokenizer(folder: Path) -> FileTokenizer:
    """Read the tokenizer of an exported model."""
    with told_as(FolderError, f"{folder}: its tokenizer cannot be read, export the model again"):
        backend = tokenizers.Tokenizer.from_file(str(folder / BACKEND))
        # A tokenizer.json may hold a truncation and a padding of its own (all-MiniLM's: to 128 tokens).
        backend.no_truncation()
        backend.no_padding()
        settings = read_json(folder / SETTINGS)
        pad, unk = (_id_of(backend, settings.get(name)) for name in ("pad_token", "unk_token"))
        tokenizer = FileTokenizer(backend, settings.get("model_max_length", NO_LIMIT), pad, unk)
        check_tokenizer(tokenizer)
    return tokenizer


def _id_of(backend: tokenizers.Tokenizer, token: Any) -> int | None:  # noqa: ANN401 (JSON)
    """Return the number of a special token, which settings name by itself or as an object."""
    name = token.get("content") if isinstance(token, dict) else token
    number: int | None = backend.token_to_id(name) if isinstance(name, str) else None
    return number
