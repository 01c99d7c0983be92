from dataclasses import replace

import pytest
import torch
from transformers import BertTokenizerFast

from bertvision.encoder.load import Encoder
from bertvision.settings import first_difference
from bertvision.states.keep import fingerprint_of
from bertvision.training.device import Compute

DATA = {"name": "train.json", "sha256": "12"}


def other_tokenizer(want):
    tokenizer = BertTokenizerFast(vocab={**want.encoder.tokenizer.get_vocab(), "zebra": 999})
    return replace(want, encoder=Encoder("tiny", want.encoder.model, tokenizer))


def other_ids(want):
    ids = want.windows[3].ids.copy()
    ids[2] += 1
    return replace(want, windows=[*want.windows[:3], replace(want.windows[3], ids=ids), *want.windows[4:]])


def other_context(want):
    moved = replace(want.windows[0], context_at=want.windows[0].context_at + 1)
    return replace(want, windows=[moved, *want.windows[1:]])


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("tokenizer", other_tokenizer),
        ("windows", other_ids),
        ("windows", other_context),
        ("windows", lambda want: replace(want, windows=want.windows[:-1])),
        ("layers", lambda want: replace(want, layers=(0, 1))),
        ("dtype", lambda want: replace(want, dtype="bf16")),
        ("cls", lambda want: replace(want, pooling="first")),
        ("precision", lambda want: replace(want, compute=Compute(torch.device("cpu"), torch.bfloat16))),
    ],
)
def test_every_part_of_a_cache_shows_in_its_fingerprint_by_name(part, change, wanted):
    before, after = fingerprint_of(wanted(), "ab", DATA), fingerprint_of(change(wanted()), "ab", DATA)
    assert first_difference(before, after).startswith(f"{part} was ")
    assert [key for key in before if before[key] != after[key]] == [part]


def test_weights_and_data_show_by_name_too(wanted):
    before = fingerprint_of(wanted(), "ab", DATA)
    assert first_difference(before, fingerprint_of(wanted(), "cd", DATA)) == 'encoder was "ab" and is now "cd"'
    moved = fingerprint_of(wanted(), "ab", {**DATA, "sha256": "34"})
    assert first_difference(before, moved) == 'data.sha256 was "12" and is now "34"'


def test_labels_do_not_matter_to_states(wanted):
    moved = replace(wanted(), windows=[replace(window, start=1, end=1) for window in wanted().windows])
    assert fingerprint_of(moved, "ab", DATA) == fingerprint_of(wanted(), "ab", DATA)
