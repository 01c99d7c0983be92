import errno
import hashlib
import json
import os
import shutil
from collections import namedtuple

import pytest
import torch

from bertvision.errors import EncoderError, FolderError, TrainingError
from bertvision.files import locked
from bertvision.settings import merge
from bertvision.states import keep
from bertvision.states.blocks import BlockStore
from bertvision.states.keep import MANIFEST, UNFINISHED, fingerprint_of, is_whole, keep_in_ram, keep_on_disk

Usage = namedtuple("Usage", ["total", "used", "free"])
PRINT = {"encoder": "abc", "data": {"name": "train.json"}}


def test_states_that_memory_does_not_hold_are_refused_beforehand(wanted, monkeypatch):
    monkeypatch.setattr(keep, "states_of", None)
    monkeypatch.setattr(keep, "free_ram", lambda: wanted().layout().num_bytes - 1)
    with pytest.raises(TrainingError, match=r"set states\.source to disk or live"):
        keep_in_ram(wanted())


def test_layers_that_the_encoder_has_not_are_refused(wanted):
    with pytest.raises(EncoderError, match="has the states 0 to 2"):
        keep_in_ram(wanted(layers=(3,)))


def test_kept_states_are_as_large_as_their_layers_and_numbers(wanted, windows):
    tokens = sum(len(window) for window in windows)
    assert wanted().layout().num_bytes == tokens * 3 * 32 * 4
    assert wanted("bf16", layers=(1,)).layout().num_bytes == tokens * 32 * 2
    assert wanted("bf16", pooling="first").layout().num_bytes == len(windows) * 4 * 32 * 2


class KilledError(Exception):
    pass


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "states"


@pytest.fixture
def whole(wanted, folder, small_shards):
    """States that are on disk in full, in several shards."""
    keep_on_disk(wanted(), folder, PRINT)
    assert len(list(folder.glob("*.states"))) > 2
    return folder


def sums_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def states_in(store, want):
    rows = torch.arange(len(want.windows)).numpy()
    states = torch.empty(*store.layout.shape[:1], len(rows), max(map(len, want.windows)), 32)
    store.read(rows, states)
    return states


@pytest.mark.parametrize("dtype", ["bf16", "float32", "int8"])
def test_states_come_back_from_their_files(dtype, wanted, folder, small_shards):
    built = keep_on_disk(wanted(dtype), folder, PRINT)
    opened = keep_on_disk(wanted(dtype), folder, PRINT)
    in_memory = states_in(keep_in_ram(wanted(dtype)), wanted())
    assert torch.equal(states_in(built, wanted()), in_memory)
    assert torch.equal(states_in(opened, wanted()), in_memory)
    assert sum(path.stat().st_size for path in folder.glob("*.states")) == built.layout.num_bytes


def test_blocks_that_were_fetched_beforehand_are_the_same(wanted, whole):
    store = keep_on_disk(wanted(), whole, PRINT)
    before = states_in(store, wanted())
    store.fetch(torch.arange(len(wanted().windows)).numpy())
    assert torch.equal(states_in(store, wanted()), before)


def test_states_that_are_there_are_not_encoded_again(wanted, whole, monkeypatch):
    monkeypatch.setattr(keep, "states_of", None)
    assert isinstance(keep_on_disk(wanted(), whole, PRINT), BlockStore)


def cut(monkeypatch, module, name, at, before=True):
    """Let the n-th call of a function end the process, before or after it has done its work."""
    real, calls = getattr(module, name), []

    def call(*given, **more):
        calls.append(1)
        if len(calls) == at and before:
            raise KilledError
        result = real(*given, **more)
        if len(calls) == at:
            raise KilledError
        return result

    monkeypatch.setattr(module, name, call)


def half_a_shard(monkeypatch, at):
    """Let the process end in the middle of writing the n-th shard."""
    real, calls = keep.write_bytes, []

    def write(path, content):
        calls.append(1)
        if len(calls) == at:
            path.with_name(f".{path.name}.bv-part").write_bytes(content[: len(content) // 2])
            raise KilledError
        real(path, content)

    monkeypatch.setattr(keep, "write_bytes", write)


CUTS = {
    "while encoding": lambda patch, at: cut(patch, keep, "states_of", at),
    "inside a file": half_a_shard,
    "before a file has its name": lambda patch, at: cut(patch, os, "replace", at),
    "before a file is listed": lambda patch, at: cut(patch, keep, "write_shard", at, before=False),
    "after a file is listed": lambda patch, at: cut(patch, keep, "write_json", at, before=False),
}


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_build_that_was_killed_goes_on_and_ends_with_the_same_bytes(where, at, wanted, whole, tmp_path, monkeypatch):
    expected, again = sums_of(whole), tmp_path / "again"
    with monkeypatch.context() as patch:
        CUTS[where](patch, at)
        shards = len(list(whole.glob("*.states")))
        if at <= shards:
            with pytest.raises(KilledError):
                keep_on_disk(wanted(), again, PRINT)
            assert not is_whole(again)
            assert all(path.stat().st_size == (whole / path.name).stat().st_size for path in again.glob("*.states"))
    keep_on_disk(wanted(), again, PRINT)
    assert sums_of(again) == expected


def test_a_build_goes_on_after_the_last_listed_shard(wanted, whole, monkeypatch, tmp_path):
    again = tmp_path / "again"
    with monkeypatch.context() as patch:
        cut(patch, keep, "write_shard", 3)
        with pytest.raises(KilledError):
            keep_on_disk(wanted(), again, PRINT)
    written = []
    monkeypatch.setattr(keep, "write_shard", lambda path, shard: written.append(path.name) or "")
    with pytest.raises(FolderError, match="is missing"):
        keep_on_disk(wanted(), again, PRINT)
    assert written == sorted(path.name for path in whole.glob("*.states"))[2:]


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"encoder": "xyz"}, 'encoder was "abc" and is now "xyz"'),
        ({"data": {"name": "other.json"}}, 'data.name was "train.json" and is now "other.json"'),
    ],
)
def test_states_of_something_else_are_refused_with_what_differs(change, told, finished, wanted, whole):
    if not finished:
        (whole / MANIFEST).rename(whole / UNFINISHED)
    with pytest.raises(FolderError) as caught:
        keep_on_disk(wanted(), whole, merge(PRINT, change))
    assert told in str(caught.value)
    assert str(whole) in str(caught.value)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("longer", r"damaged \(\d+ bytes, expected \d+\)"),
        ("shorter", r"damaged \(\d+ bytes, expected \d+\)"),
        ("changed", r"damaged \(sha256 \w+, expected \w+\)"),
        ("missing", "is missing"),
    ],
)
def test_a_damaged_shard_is_refused_by_name(harm, told, wanted, whole):
    shard = whole / "00001.states"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    spoiled = {"longer": content + b"x", "shorter": content[:-1], "changed": content, "missing": b""}[harm]
    shard.unlink() if harm == "missing" else shard.write_bytes(spoiled)
    with pytest.raises(FolderError, match=rf"00001\.states: {told}") as caught:
        keep_on_disk(wanted(), whole, PRINT)
    assert f"delete {whole}" in str(caught.value)


def test_a_manifest_of_fewer_shards_is_refused(wanted, whole):
    content = json.loads((whole / MANIFEST).read_text())
    (whole / MANIFEST).write_text(json.dumps({**content, "sha256": content["sha256"][:-1]}))
    with pytest.raises(FolderError, match="shards, expected"):
        keep_on_disk(wanted(), whole, PRINT)


def test_two_processes_cannot_build_in_one_folder_but_both_can_read(wanted, folder):
    with locked(folder), pytest.raises(FolderError, match="another bertvision is working"):
        keep_on_disk(wanted(), folder, PRINT)
    keep_on_disk(wanted(), folder, PRINT)
    with locked(folder):
        keep_on_disk(wanted(), folder, PRINT)


def test_a_disk_without_room_is_refused_before_anything_is_written(wanted, folder, monkeypatch):
    needed = wanted().layout().num_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9 - needed + 1, needed - 1))
    with pytest.raises(FolderError, match=r"need .* kB and .* kB are free; choose another states\.folder"):
        keep_on_disk(wanted(), folder, PRINT)
    assert not folder.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(10**9, 10**9 - needed, needed))
    assert keep_on_disk(wanted(), folder, PRINT)


def test_a_disk_that_fills_up_meanwhile_is_told_in_one_line(wanted, folder, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keep, "write_bytes", full)
    with pytest.raises(FolderError, match="the disk is full; make room"):
        keep_on_disk(wanted(), folder, PRINT)


def test_a_file_in_place_of_the_folder_is_refused(wanted, tmp_path):
    (tmp_path / "states").write_text("not a folder")
    with pytest.raises(FolderError, match="is a file"):
        keep_on_disk(wanted(), tmp_path / "states", PRINT)


def test_a_fingerprint_goes_through_json_unchanged(wanted, folder):
    print_ = fingerprint_of(wanted(layers=(0, 2)), "0" * 64, {"name": "train.json", "sha256": None})
    keep_on_disk(wanted(layers=(0, 2)), folder, print_)
    assert keep_on_disk(wanted(layers=(0, 2)), folder, print_)
