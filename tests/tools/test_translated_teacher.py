"""Windows for an encoder whose vocabulary numbers the same word pieces otherwise."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import MPNetTokenizerFast

from bertvision.data.example import Question, TextRow
from bertvision.errors import SettingsError
from bertvision.windows.batches import collate
from bertvision.windows.cut import cut_rows
from bertvision.windows.window import WindowConfig, cut_windows

translation_between = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "translated_teacher.py"))[
    "translation_between"
]
QUESTIONS = [
    Question("1", "who built the weir?", "hannah coyle built the weir in 1887 .", (), ""),
    Question("2", "when", "the stone weir was built in 1887 by hannah coyle , where the river was .", (), ""),
]


@pytest.fixture
def other(tokenizer):
    """MPNet's tokenizer: the same pieces behind four special ones, and two separators between texts."""
    special = {piece: number for number, piece in enumerate(["<s>", "<pad>", "</s>", "[UNK]"])}
    pieces = [piece for piece in tokenizer.get_vocab() if not piece.startswith("[")]
    vocabulary = special | {piece: 4 + number for number, piece in enumerate(sorted(pieces))}
    return MPNetTokenizerFast(vocab={**vocabulary, "<mask>": len(vocabulary)}, model_max_length=512)


def cut(questions, tokenizer, max_length):
    return cut_windows(questions, tokenizer, WindowConfig(max_length=max_length, stride=4))


@pytest.mark.parametrize("max_length", [100, 20])  # whole texts, and windows of them
def test_windows_become_those_that_the_other_tokenizer_cuts(tokenizer, other, max_length):
    ours, theirs = cut(QUESTIONS, tokenizer, max_length), cut(QUESTIONS, other, max_length + 1)
    rows = np.arange(len(ours))
    wanted = collate(theirs, rows, other.pad_token_id)
    found = translation_between(tokenizer, other).batch(collate(ours, rows, tokenizer.pad_token_id))
    assert found.mask.tolist() == wanted.mask.tolist()
    assert (found.ids * found.mask).tolist() == (wanted.ids * wanted.mask).tolist()


def test_one_text_gets_no_separator_behind_it(tokenizer, other):
    rows = [TextRow("1", ("the river",), 0), TextRow("2", ("hannah coyle built the stone weir",), 0)]
    ours, theirs = (cut_rows(rows, each, 64, "class") for each in (tokenizer, other))
    wanted = collate(theirs, np.arange(2), other.pad_token_id)
    found = translation_between(tokenizer, other).batch(collate(ours, np.arange(2), tokenizer.pad_token_id))
    assert found.mask[:, :-1].tolist() == wanted.mask.tolist()
    assert not found.mask[:, -1].any()
    assert ((found.ids * found.mask)[:, :-1]).tolist() == (wanted.ids * wanted.mask).tolist()


def test_logits_come_back_to_the_tokens_that_they_are_of(tokenizer, other):
    batch = collate(cut(QUESTIONS, tokenizer, 100), np.arange(2), tokenizer.pad_token_id)
    translation = translation_between(tokenizer, other)
    # Logits that name their token: what comes back must be the translated name of the token that stands there.
    named = translation.batch(batch).ids[..., None].expand(-1, -1, 2).float()
    is_token = batch.mask[..., None].bool().expand(-1, -1, 2)
    wanted = translation.ids[batch.ids][..., None].expand(-1, -1, 2).float()
    assert torch.equal(translation.back(named, batch)[is_token], wanted[is_token])


def test_a_vocabulary_with_other_pieces_is_refused(tokenizer, other, spelling_encoder):
    with pytest.raises(SettingsError, match="word pieces, such as '1887', are in one of both alone"):
        translation_between(tokenizer, spelling_encoder.tokenizer)
    with pytest.raises(SettingsError, match="joins two texts"):
        translation_between(other, tokenizer)
