"""`gelu_readout` as Triton kernels: the projections are read once forward, and read and written once backward.

Torch's own operations pass over them eight times; at BERT-large's shape these passes took longer than the products.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from bertvision.heads.gelu_readout import ALIGNED, slices

ROWS, COLUMNS = 32, 64  # positions and widths that a program holds at once
PART = 1024  # positions that a backward program sums up before it writes


def read_out(
    projected: Tensor, bias: Tensor, readout: Tensor, widths: Sequence[int], gelu: str
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return every head's logits [head, position, 2], and what the way back needs (see `gelu_readout.read_out`)."""
    layers, positions, width = projected.shape
    bias, readout = bias.float().contiguous(), readout.float().contiguous()
    logits = torch.empty(len(widths), positions, 2, device=projected.device)
    _read_out[triton.cdiv(positions, ROWS), len(widths)](
        projected, bias, readout, _heads(tuple(widths), projected.device), logits,
        layers, positions, width, EXACT=gelu == "none", ALIGNED=ALIGNED, ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip
    return logits, (projected, bias, readout)


def read_out_backward(
    gradient: Tensor, kept: Sequence[Tensor], widths: Sequence[int], gelu: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the projections, the bias and the readout (see `gelu_readout.read_out_backward`)."""
    projected, bias, readout = kept
    layers, positions, width = projected.shape
    parts, tiles = triton.cdiv(positions, PART), _tiles(tuple(widths), projected.device)
    d_projected = torch.empty_like(projected)
    sums = torch.empty(3, parts, layers, width, device=projected.device)  # of both scores' readouts and of the bias
    _read_out_backward[parts, layers, len(tiles)](
        projected, bias, readout, tiles, gradient.contiguous(), d_projected, sums,
        layers, positions, width, parts,
        EXACT=gelu == "none", ALIGNED=ALIGNED, ROWS=ROWS, COLUMNS=COLUMNS, PART=PART,
    )  # fmt: skip
    d_start, d_end, d_bias = sums.sum(dim=1).unbind()
    return d_projected, d_bias, torch.stack([d_start, d_end], dim=-1)


@cache
def _heads(widths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return first and last width of every head, counted in ALIGNED; on the device, as a copy makes the host wait."""
    bounds = [[own.start // ALIGNED, own.stop // ALIGNED] for own in slices(widths)]
    return torch.tensor(bounds, dtype=torch.int32, device=device)


@cache
def _tiles(widths: tuple[int, ...], device: torch.device) -> Tensor:
    """Cut the widths into tiles of one head each: head, first width, stop, both counted in ALIGNED."""
    tiles = [
        [head, first // ALIGNED, min(first + COLUMNS, own.stop) // ALIGNED]
        for head, own in enumerate(slices(widths))
        for first in range(own.start, own.stop, COLUMNS)
    ]
    return torch.tensor(tiles, dtype=torch.int32, device=device)


def _kernel(function: Callable[..., object]) -> triton.JITFunction:
    """Compile a function's own text: tests load the package with checks wrapped around every function."""
    return triton.jit(inspect.unwrap(function))


@_kernel
def _tanh_part(x):
    """Return tanh(sqrt(2 / pi) (x + 0.044715 x^3)), safe for large numbers."""
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 1.0 - 2.0 / (1.0 + tl.exp(2.0 * inner))


@_kernel
def _gelu(x, EXACT: tl.constexpr):
    if EXACT:
        return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))
    return 0.5 * x * (1.0 + _tanh_part(x))


@_kernel
def _gelu_slope(x, EXACT: tl.constexpr):
    if EXACT:
        return 0.5 * (1.0 + libdevice.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    part = _tanh_part(x)
    return 0.5 * (1.0 + part) + 0.5 * x * (1.0 - part * part) * 0.7978845608028654 * (1.0 + 0.134145 * x * x)


@_kernel
def _read_out(
    projected, bias, readout, heads, logits, layers, positions, width,
    EXACT: tl.constexpr, ALIGNED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One program: some positions, one head, all layers. Sums are taken across threads once, at the end."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    first, stop = tl.load(heads + 2 * head) * ALIGNED, tl.load(heads + 2 * head + 1) * ALIGNED
    is_row = rows < positions
    start, end = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for layer in range(layers):
        base = projected + (tl.zeros((), tl.int64) + layer) * positions * width
        for begin in range(first, stop, COLUMNS):
            columns = begin + tl.arange(0, COLUMNS)
            is_column = columns < stop
            places = rows[:, None] * width + columns[None, :]
            x = tl.load(base + places, mask=is_row[:, None] & is_column[None, :], other=0.0).to(tl.float32)
            at = layer * width + columns
            y = _gelu(x + tl.load(bias + at, mask=is_column, other=0.0)[None, :], EXACT)  # 0 outside the head
            start += y * tl.load(readout + 2 * at, mask=is_column, other=0.0)[None, :]
            end += y * tl.load(readout + 2 * at + 1, mask=is_column, other=0.0)[None, :]
    tl.store(logits + 2 * (head * positions + rows), tl.sum(start, axis=1), mask=is_row)
    tl.store(logits + 2 * (head * positions + rows) + 1, tl.sum(end, axis=1), mask=is_row)


@_kernel
def _read_out_backward(
    projected, bias, readout, tiles, gradient, d_projected, sums, layers, positions, width, parts,
    EXACT: tl.constexpr, ALIGNED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """One program: a stretch of positions, one layer, one tile of one head's widths."""
    part, layer = tl.program_id(0), tl.program_id(1)
    tile = tiles + 3 * tl.program_id(2)
    head, first, stop = tl.load(tile), tl.load(tile + 1) * ALIGNED, tl.load(tile + 2) * ALIGNED
    columns = first + tl.arange(0, COLUMNS)
    is_column = columns < stop
    at = layer * width + columns
    shift = tl.load(bias + at, mask=is_column, other=0.0)[None, :]
    of_start = tl.load(readout + 2 * at, mask=is_column, other=0.0)[None, :]
    of_end = tl.load(readout + 2 * at + 1, mask=is_column, other=0.0)[None, :]
    d_start, d_end = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    d_bias = tl.zeros([ROWS, COLUMNS], tl.float32)
    base = (tl.zeros((), tl.int64) + layer) * positions * width
    for step in range(0, PART, ROWS):
        rows = part * PART + step + tl.arange(0, ROWS)
        is_row = rows < positions
        is_here = is_row[:, None] & is_column[None, :]
        places = rows[:, None] * width + columns[None, :]
        x = tl.load(projected + base + places, mask=is_here, other=0.0).to(tl.float32) + shift
        from_start = tl.load(gradient + 2 * (head * positions + rows), mask=is_row, other=0.0)[:, None]
        from_end = tl.load(gradient + 2 * (head * positions + rows) + 1, mask=is_row, other=0.0)[:, None]
        y = _gelu(x, EXACT)
        d_start += y * from_start
        d_end += y * from_end
        d_x = (from_start * of_start + from_end * of_end) * _gelu_slope(x, EXACT)
        d_bias += d_x
        tl.store(d_projected + base + places, d_x.to(d_projected.dtype.element_ty), mask=is_here)
    out = sums + (part * layers + layer) * width + columns
    tl.store(out, tl.sum(d_start, axis=0), mask=is_column)
    tl.store(out + parts * layers * width, tl.sum(d_end, axis=0), mask=is_column)
    tl.store(out + 2 * parts * layers * width, tl.sum(d_bias, axis=0), mask=is_column)
