import numpy as np
import pytest
import torch

from bertvision.errors import FolderError
from bertvision.states import blocks
from bertvision.states.blocks import BlockLayout, BlockShape, BlockStore, ShardFile, write_blocks

LAYERS, HIDDEN = 3, 5


def kept(lengths, dtype, pooled=False):
    """Write random states of every window into blocks; give the store and the padded states."""
    layout = BlockLayout(BlockShape(LAYERS, HIDDEN, dtype), lengths, pooled=pooled)
    width = 1 if pooled else int(lengths.max())
    states = torch.randn(LAYERS, len(lengths), width, HIDDEN, generator=torch.Generator().manual_seed(0)) * 3
    shards = [torch.zeros(size, dtype=torch.uint8) for size in layout.sizes]
    for shard, batches in zip(shards, layout.shards, strict=True):
        for rows in batches:
            write_blocks(layout, shard, rows, states[:, torch.from_numpy(rows)])
    for row, tokens in enumerate(layout.tokens):
        states[:, row, tokens:] = 0
    return BlockStore(layout, shards), states


def read(store, rows, width, dtype=torch.float32):
    states = torch.full((LAYERS, len(rows), width, HIDDEN), float("nan"), dtype=dtype)
    store.read(np.array(rows), states)
    return states


@pytest.mark.parametrize("several", [False, True])
def test_float32_states_come_back_as_they_were_with_zeros_behind_them(lengths, several, monkeypatch):
    if several:
        monkeypatch.setattr(blocks, "BUILD_TOKENS", 9)
        monkeypatch.setattr(blocks, "SHARD_BYTES", 600)
    store, states = kept(lengths, "float32")
    assert (len(store.layout.sizes) > 2) == several
    assert torch.equal(read(store, [0, 1, 2, 3, 4, 5], 9), states)
    assert torch.equal(read(store, [2, 0], 9), states[:, [2, 0]])
    assert torch.equal(read(store, [5, 2], 4), states[:, [5, 2], :4])


def test_bf16_states_come_back_rounded_to_eight_bits(lengths):
    store, states = kept(lengths, "bf16")
    found = read(store, range(6), 9)
    assert torch.equal(found, states.bfloat16().float())
    assert ((found - states).abs() <= states.abs() * 2**-8).all()
    assert not torch.equal(found, states)
    assert torch.equal(read(store, [1], 9, torch.bfloat16), states[:, [1]].bfloat16())


def test_int8_states_come_back_within_half_a_step_of_their_tokens_scale(lengths):
    store, states = kept(lengths, "int8")
    found = read(store, range(6), 9)
    step = states.abs().amax(dim=-1, keepdim=True) / 127
    assert ((found - states).abs() <= step / 2 * (1 + 1e-5)).all()
    largest = states.abs() == states.abs().amax(dim=-1, keepdim=True)
    torch.testing.assert_close(found[largest], states[largest])


def test_a_token_of_zeros_is_kept_as_zeros_in_int8():
    layout = BlockLayout(BlockShape(LAYERS, HIDDEN, "int8"), np.array([2]))
    shard = torch.zeros(layout.num_bytes, dtype=torch.uint8)
    write_blocks(layout, shard, np.array([0]), torch.zeros(LAYERS, 1, 2, HIDDEN))
    assert not shard.any()
    assert not read(BlockStore(layout, [shard]), [0], 2).any()


@pytest.mark.parametrize(("dtype", "per_token"), [("bf16", 3 * 5 * 2), ("float32", 3 * 5 * 4), ("int8", 3 * (5 + 4))])
def test_only_real_tokens_take_room(lengths, dtype, per_token):
    layout = BlockLayout(BlockShape(LAYERS, HIDDEN, dtype), lengths)
    needed = int(lengths.sum()) * per_token
    assert needed <= layout.num_bytes < needed + 4 * len(lengths)  # each block ends at a multiple of 4 bytes
    assert layout.num_bytes == sum(layout.sizes)


def test_a_block_is_one_piece_with_the_layer_outside(lengths):
    store, states = kept(lengths, "float32")
    layout = store.layout
    (block,) = layout.block(store._shards[0], np.int64(1))
    assert block.is_contiguous()
    assert torch.equal(block, states[:, 1, :9])


def test_cls_blocks_hold_one_token_each(lengths):
    store, states = kept(lengths, "float32", pooled=True)
    assert store.layout.num_bytes == 6 * 3 * 5 * 4
    assert torch.equal(read(store, [3, 1], 1), states[:, [3, 1]])


@pytest.mark.parametrize("dtype", ["bf16", "float32", "int8"])
def test_the_bounds_of_a_block_hold_all_of_its_parts(lengths, dtype):
    layout = BlockLayout(BlockShape(LAYERS, HIDDEN, dtype), lengths)
    (shard,) = (torch.zeros(size, dtype=torch.uint8) for size in layout.sizes)
    for row in np.arange(len(lengths)):
        parts = layout.block(shard, row)
        first = min(part.data_ptr() for part in parts) - shard.data_ptr()
        stop = max(part.data_ptr() + part.nbytes for part in parts) - shard.data_ptr()
        assert layout.bounds(row)[0] == first
        assert 0 <= layout.bounds(row)[1] - stop < 4  # blocks end at whole scales


def test_a_file_that_is_cut_short_while_it_is_read_is_told_by_name(tmp_path):
    (tmp_path / "00000.states").write_bytes(bytes(range(10)))
    assert ShardFile(tmp_path / "00000.states")[3:7].tolist() == [3, 4, 5, 6]
    with pytest.raises(FolderError, match=r"00000.states: was cut short while it was read"):
        ShardFile(tmp_path / "00000.states")[3:11]
