"""Kernels that look at the elements of many tensors in one launch; they need Triton.

Memory is the bound, so each element is read once, and by 16 bytes a thread. Triton loads so only from addresses that it
knows to be multiples of 16 and where no element is left out, and else each element by itself, which a GPU takes several
times as long for. So a tensor is looked at from the multiple of 16 bytes at or before its beginning, and only where it
begins and ends is it asked which elements are its own.

A program looks at a chunk of 32,768 elements: a model has many times as many as a GPU runs at once, and each is long
enough to hide how it begins and ends. Its 256 threads have four loads each on the way, and with the registers they take
four programs run on a processor of an H100: 64 KiB on the way, twice what its memory's latency asks for.

Nothing is added by atomic operations: what was found in a chunk lies where `fold` finds it in the order of the tensor,
so that the same numbers give the same sum. In a chunk it is one of 32 bits, of at most 32 rows and then pairwise of
2,048 columns; chunks are added up in 64 bits.
"""

# mypy: ignore-errors
# Triton compiles these functions: their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["fold", "look"]

_INFINITY = tl.constexpr(float("inf"))


@triton.jit(do_not_specialize=["first", "every"])
def look(
    like,
    addresses,
    sizes,
    owners,
    numbers,
    partials,
    first,
    every,
    ITEM: tl.constexpr,
    WIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    LOADS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Look at one chunk: its sum of squares, its largest magnitude (not that of a NaN), and how many are 0.

    Args:
        like: anything of the type that is looked at.
        addresses: of each tensor.
        sizes: elements of each.
        owners: of each chunk, which tensor it is of.
        numbers: of each chunk, which of that tensor's it is.
        partials: three rows of as many numbers as there are chunks, to be written.
        first: chunk of this launch.
        every: chunks of all launches.
        ITEM: bytes of one.
        WIDE: what is added up in.
        COLUMNS: elements that all threads load at once.
        LOADS: how many times they do, before they use what has come.
        CHUNK: elements of one.
    """
    chunk = first + tl.program_id(0)
    owner = tl.load(owners + chunk)
    skipped = tl.load(numbers + chunk) * CHUNK
    address = tl.load(addresses + owner)
    sixteens = address // 16
    before = (address - sixteens * 16) // ITEM  # elements of something else
    begin = tl.multiple_of((sixteens * 16).to(like.dtype), 16) + tl.multiple_of(skipped, CHUNK)
    rest = before + tl.load(sizes + owner) - skipped
    # The last chunk has what the first has less.
    high = tl.where(rest <= CHUNK + before, rest, CHUNK).to(tl.int32)
    low = tl.maximum(before - skipped, 0).to(tl.int32)
    TILE: tl.constexpr = LOADS * COLUMNS
    column = tl.arange(0, COLUMNS)
    lane = tl.arange(0, LOADS)[:, None] * COLUMNS + column[None, :]
    square = tl.zeros([COLUMNS], WIDE)
    largest = tl.zeros([COLUMNS], WIDE)
    zeros = tl.zeros([COLUMNS], tl.int32)
    # Tiles from `inner` up to `outer` are all of this tensor's: no element is asked. The columns around them are.
    inner = (low + TILE - 1) // TILE * TILE
    outer = high // TILE * TILE
    for at in range(inner, outer, TILE):
        value = tl.load(begin + at + lane).to(WIDE)
        square += tl.sum(value * value, axis=0)
        largest = tl.maximum(largest, tl.max(tl.abs(value), axis=0))
        zeros += tl.sum((value == 0).to(tl.int32), axis=0)
    for at in range(0, high, COLUMNS):
        if (at < inner) | (at >= outer):
            inside = (at + column >= low) & (at + column < high)
            value = tl.load(begin + at + column, mask=inside, other=0.0).to(WIDE)
            square += value * value
            largest = tl.maximum(largest, tl.abs(value))
            zeros += (inside & (value == 0)).to(tl.int32)
    total = tl.sum(square, axis=0).to(tl.float64)
    most = tl.max(largest, axis=0).to(tl.float64)
    # 32,768 squares of 1e16 add up to less than 2¹²⁸, and squares of 1e-12 leave room for elements 1e-7 as large.
    if (total == total) & (((most > 1e16) & (most < _INFINITY)) | ((most < 1e-12) & (most > 0))):
        # Rare: their squares are out of the range of 32 bits. Once more, and slowly. Of a NaN or Inf, which are
        # everywhere when a model has diverged, the sum is right as it is.
        wide = tl.zeros([COLUMNS], tl.float64)
        for at in range(0, high, COLUMNS):
            inside = (at + column >= low) & (at + column < high)
            value = tl.load(begin + at + column, mask=inside, other=0.0).to(tl.float64)
            wide += value * value
        total = tl.sum(wide, axis=0)
    tl.store(partials + chunk, total)
    tl.store(partials + every + chunk, most)
    tl.store(partials + 2 * every + chunk, tl.sum(zeros, axis=0).to(tl.float64))


@triton.jit(do_not_specialize=["every", "tensors"])
def fold(partials, begins, ends, found, every, tensors, BLOCK: tl.constexpr):
    """Make of the chunks of one tensor its three numbers; of one without elements they are 0.

    Args:
        partials: as `look` writes them.
        begins: of each tensor, the first of its chunks.
        ends: the one after the last.
        found: three rows of as many numbers as there are tensors, to be written.
        every: chunks of all.
        tensors: how many there are.
        BLOCK: chunks that are added up at once.
    """
    tensor = tl.program_id(0)
    end = tl.load(ends + tensor)
    square = tl.zeros([BLOCK], tl.float64)
    largest = tl.zeros([BLOCK], tl.float64)
    zeros = tl.zeros([BLOCK], tl.float64)
    for at in range(tl.load(begins + tensor), end, BLOCK):
        chunk = at + tl.arange(0, BLOCK)
        inside = chunk < end
        square += tl.load(partials + chunk, mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.load(partials + every + chunk, mask=inside, other=0.0))
        zeros += tl.load(partials + 2 * every + chunk, mask=inside, other=0.0)
    total = tl.sum(square, axis=0)
    # What is larger is not asked of NaN; squares of other numbers do not add up to one.
    most = tl.where(total != total, total, tl.max(largest, axis=0))
    tl.store(found + tensor, total)
    tl.store(found + tensors + tensor, most)
    tl.store(found + 2 * tensors + tensor, tl.sum(zeros, axis=0))
