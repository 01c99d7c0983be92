"""Texts -> token ids, and the special tokens that an encoder wants around them."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from bertvision.errors import EncoderError

Int32s = npt.NDArray[np.int32]
Item = TypeVar("Item")
TEXTS_PER_CALL = 512  # texts handed to the tokenizer at once: enough for its threads, few enough for a live bar
# Ids and nothing else; long texts are expected, so no warnings.
PLAIN = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
NO_OFFSETS: Int32s = np.zeros((0, 2), dtype=np.int32)  # of windows whose characters nobody asks for


@runtime_checkable
class Tokenizer(Protocol):
    """Texts to ids and offsets: what is asked of a tokenizer, so that windows need no transformers.

    Two have it: a fast tokenizer of transformers (`encoder.load`) and `serving.tokenizer.FileTokenizer`.
    """

    @property
    def is_fast(self) -> bool:
        """Whether it gives character offsets."""
        ...

    def __call__(self, *texts: Any, **options: Any) -> Any:  # noqa: ANN401 (as transformers has it)
        """Return ids, and offsets where they are asked for."""
        ...

    def convert_ids_to_tokens(self, ids: int) -> Any:  # noqa: ANN401 (a text; of several ids, transformers has several)
        """Return the piece that an id stands for."""
        ...


class Layout(NamedTuple):
    """The special tokens that an encoder wants around one text (nothing between), or around two."""

    before: Int32s
    between: Int32s
    after: Int32s

    @property
    def special(self) -> int:
        """Count them."""
        return len(self.before) + len(self.between) + len(self.after)


def read_layout(tokenizer: Tokenizer) -> Layout:
    """Learn an encoder's special tokens from how its tokenizer joins two texts."""
    _check_fast(tokenizer)
    pair = tokenizer("a", "b")
    sides, ids = pair.sequence_ids(0), np.asarray(pair["input_ids"], dtype=np.int32)
    first, second = [[place for place, side in enumerate(sides) if side == wanted] for wanted in (0, 1)]
    if not first or not second or first[0] == 0 or first[-1] > second[0]:
        raise EncoderError(
            "the tokenizer puts no special token before the question, so there is no place for 'no answer'; "
            "use an encoder of BERT's kind"
        )
    return Layout(ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :])


def read_single_layout(tokenizer: Tokenizer) -> Layout:
    """Learn an encoder's special tokens from what its tokenizer puts around one text."""
    _check_fast(tokenizer)
    single = tokenizer("a")
    ids = np.asarray(single["input_ids"], dtype=np.int32)
    own = [place for place, side in enumerate(single.sequence_ids(0)) if side == 0]
    if not own or own[0] == 0:
        raise EncoderError(
            "the tokenizer puts no special token before a text, so there is no token that stands for all of it; "
            "use an encoder of BERT's kind"
        )
    return Layout(ids[: own[0]], ids[:0], ids[own[-1] + 1 :])


def tokenise(tokenizer: Tokenizer, texts: list[str]) -> list[tuple[Int32s, Int32s]]:
    """Return every text's ids, without special tokens, and the characters [start, end) of each."""
    if not texts:
        return []
    encoded = tokenizer(texts, return_offsets_mapping=True, **PLAIN)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    return [(np.asarray(ids, np.int32), _flat(spans).reshape(-1, 2)) for ids, spans in pairs]


def token_ids(tokenizer: Tokenizer, texts: list[str]) -> list[Int32s]:
    """Return every text's ids alone: offsets are a Python tuple per token, which costs more than the array of ids."""
    if not texts:
        return []
    return [np.asarray(ids, np.int32) for ids in tokenizer(texts, **PLAIN)["input_ids"]]


def _flat(spans: Sequence[tuple[int, int]]) -> Int32s:
    """Join pairs of numbers; half the time that `np.asarray` takes for a list of tuples."""
    return np.fromiter(chain.from_iterable(spans), np.int32, 2 * len(spans))


def slices(items: Sequence[Item]) -> list[list[Item]]:
    """Cut a list into parts for one call of the tokenizer each."""
    return [list(items[first : first + TEXTS_PER_CALL]) for first in range(0, len(items), TEXTS_PER_CALL)]


def _check_fast(tokenizer: Tokenizer) -> None:
    if not tokenizer.is_fast:
        raise EncoderError("the tokenizer gives no character offsets; use an encoder that has a fast tokenizer")


def check_tokenizer(tokenizer: Any, vocab_size: int | None = None) -> None:  # noqa: ANN401 (transformers' own type)
    """Refuse a tokenizer without padding or a length, or with pieces that the encoder has no embedding for."""
    length = tokenizer.model_max_length
    if isinstance(length, bool) or not isinstance(length, (int, float)) or not length >= 1:
        raise EncoderError(f"its tokenizer has the model_max_length {str(length)[:80]!r}; give a number of tokens")
    if not isinstance(tokenizer.pad_token_id, int):
        raise EncoderError("its tokenizer has no pad_token; name one in tokenizer_config.json")
    if vocab_size is not None and (last := max(tokenizer.get_vocab().values(), default=0)) >= vocab_size:
        raise EncoderError(f"its tokenizer has the piece number {last:,}, its encoder embeddings of {vocab_size:,}")
    tokenizer("a", "b")  # what its own settings make of a text
