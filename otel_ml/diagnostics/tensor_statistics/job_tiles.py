"""How kernels of jobs go through a tensor: tile by tile, read by 16 bytes a thread.

A tile is read from a multiple of 16 bytes on; only where it reaches over an end of the tensor each element is asked
whether it belongs there.
"""

# mypy: ignore-errors
# Triton compiles these functions: their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["INFINITY", "edge_elements", "or_nan", "tensor_of", "whole_tiles"]

INFINITY = tl.constexpr(float("inf"))


@triton.jit
def tensor_of(table, first, each, KIND: tl.constexpr, ITEM: tl.constexpr, FIELDS: tl.constexpr):
    """Return the row of a job, where its tensor begins, rounded down to 16 bytes, and the elements up to there."""
    row = table + (first + tl.program_id(0) // each) * FIELDS
    address = tl.load(row)
    before = (address % 16) // ITEM
    begin = tl.multiple_of((address // 16 * 16).to(tl.pointer_type(KIND)), 16)
    return row, begin, before, tl.load(row + 1)


@triton.jit
def whole_tiles(before, end, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return the first tile that is all of the tensor, and the one after the last."""
    inner = tl.cdiv(before, ROWS * LANES)
    return inner, tl.maximum(end // (ROWS * LANES), inner)


@triton.jit
def edge_elements(index, before, end, inner, outer, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return where elements lie of the tiles that a tensor begins and ends in, row by row, and which are its own."""
    tile = tl.where(index < ROWS, 0, outer)
    place = tile * (ROWS * LANES) + (index % ROWS) * LANES + tl.arange(0, LANES)
    is_known = (index < ROWS) & (place >= inner * (ROWS * LANES))
    return place, (place >= before) & (place < end) & ~is_known


@triton.jit
def or_nan(extreme, absolute):
    """Return an extreme, or NaN if an element was: only then is a sum of absolute values not a number."""
    return tl.where(absolute == absolute, extreme, absolute)
