"""Kernels of what tensors would lose by rounding to FP8 or to four bits an element; they need Triton.

They work at the jobs of a table, as those of `inspection_kernels.py`. FP8 is rounded to by arithmetic, not by units of
the device for it: adding and subtracting a power of two 2²³ times the distance of two numbers leaves the nearest one,
of two the even one. It is exact, and the same on every device.
"""

# mypy: ignore-errors
# Triton compiles these functions: their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

from otel_ml.diagnostics.tensor_statistics.job_tiles import INFINITY, edge_elements, or_nan, tensor_of, whole_tiles

__all__ = ["round_blocks", "round_fours", "round_whole"]

_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_SUBNORMAL = tl.constexpr(0x00400000)  # 2⁻¹²⁷
_LARGEST_SCALE = tl.constexpr(2.0**127)
_TOLERANCE = tl.constexpr(1 + 2**-20)  # as in fp8.py


@triton.jit
def _amax(row, partials, SOURCES: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the largest absolute element of a job's tensor, from what the programs of another job have written."""
    source = tl.load(row + 4)
    lane = tl.arange(0, SOURCES)
    inside = lane < tl.load(row + 5)
    at = partials + (source + lane) * COLUMNS
    low = tl.load(at + 3, mask=inside, other=0.0)
    high = tl.load(at + 4, mask=inside, other=0.0)
    return or_nan(tl.max(tl.maximum(high, -low), 0), tl.sum(tl.load(at + 5, mask=inside, other=0.0), 0))


@triton.jit
def _inverse(value):
    """Return 1 / value as torch does, which divides a number by a tensor so, too."""
    return tl.div_rn(1.0, value)


@triton.jit
def _scale_to(amax, largest):
    """Return what takes the largest element to the largest number of a format; 1 where there is none but 0."""
    scale = _inverse(tl.where(amax > 0, amax, 1.0)) * largest
    return tl.where(amax > 0, tl.minimum(scale, _LARGEST_SCALE), 1.0)


@triton.jit
def _power_of_two(amax, largest):
    """Return the power of two that takes an element to a number of a format, as large as it may; 1 for 0."""
    ratio = tl.div_rn(amax, largest)
    bits = ratio.to(tl.int32, bitcast=True)
    # Whatever bit of the mantissa is set, the number is above its power of two: the next one is taken.
    up = ((bits & 0x7FFFFF) != 0).to(tl.int32)
    power = 127 - ((bits >> 23) - 127 + up)  # the biased exponent of the inverse
    # A ratio below 2⁻¹²⁶ has no exponent to read: the scale is 2¹²⁶, or 2¹²⁷, the largest.
    power = tl.where(bits < (1 << 23), tl.where(bits > _SUBNORMAL, 127 + 126, 254), power)
    power = tl.minimum(tl.maximum(power, 0), 254)
    scale = (power << 23).to(tl.float32, bitcast=True)
    scale = tl.where(ratio < INFINITY, scale, 0.0)
    # 2⁻¹²⁷ has no exponent of its own; a ratio that large is of infinite or nearly infinite elements.
    scale = tl.where((power == 0) & (ratio < INFINITY), 2.0**-127, scale)
    return tl.where(amax > 0, scale, 1.0)


@triton.jit
def _rounded(value, mantissa, least):
    """Round to a format of `mantissa` bits whose normal numbers begin at 2^(`least` - 127); subnormal ones, too."""
    bits = value.to(tl.int32, bitcast=True) & _MAGNITUDE
    # Below the smallest normal number their distance stays what it is there.
    exponent = tl.maximum(bits >> 23, least)
    # In 32 bits its last bit is worth 2^(exponent - mantissa), the format's last one: the sum keeps nothing smaller.
    magic = ((exponent + 23 - mantissa) << 23).to(tl.float32, bitcast=True)
    absolute = (bits).to(tl.float32, bitcast=True)
    found = (absolute + magic) - magic
    return tl.where(value < 0, -found, found)


@triton.jit
def _lost(value, scale, inverse, largest, mantissa, least):
    """Return what becomes 0, what is too large, and the squared error, of elements that a scale is for."""
    scaled = value * scale
    kept = tl.maximum(scaled, -largest, propagate_nan=tl.PropagateNan.ALL)
    kept = tl.minimum(kept, largest, propagate_nan=tl.PropagateNan.ALL)
    rounded = _rounded(kept, mantissa, least)
    error = rounded * inverse - value
    return (rounded == 0) & (value != 0), tl.abs(scaled) > largest * _TOLERANCE, error * error


@triton.jit
def _store_rounding(out, under, over, square, low, high):
    tl.store(out, under.to(tl.float32))
    tl.store(out + 1, over.to(tl.float32))
    tl.store(out + 2, square)
    tl.store(out + 3, low)
    tl.store(out + 4, high)


@triton.jit
def _blocks(begin, before, size, length, tile, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Return a tile of blocks along the last dimension, and which elements are of the tensor."""
    each = tl.cdiv(length, WIDTH)
    block = tile * HEIGHT + tl.arange(0, HEIGHT)
    column = (block % each * WIDTH)[:, None] + tl.arange(0, WIDTH)[None, :]
    at = (block // each * length)[:, None] + column
    inside = (column < length) & (at < size)
    # Blocks without gaps or ends between them, from a multiple of 16 bytes on: no element is asked.
    if (before == 0) & (length % WIDTH == 0) & ((tile + 1) * (HEIGHT * WIDTH) <= size):
        flat = tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        value = tl.load(begin + tl.multiple_of(tile * (HEIGHT * WIDTH), HEIGHT * WIDTH) + flat).to(tl.float32)
    else:
        value = tl.load(begin + before + at, mask=inside, other=0.0).to(tl.float32)
    return value, inside


@triton.jit(do_not_specialize=["first", "each", "largest", "mantissa", "least"])
def round_whole(
    table,
    partials,
    first,
    each,
    largest,
    mantissa,
    least,
    KIND: tl.constexpr,
    ITEM: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    SOURCES: tl.constexpr,
    COLUMNS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Write underflows, overflows, squared error, smallest and largest inverse scale, of one scale a tensor.

    Args:
        table: of jobs.
        partials: what programs write; what those of `summarize` have written is read.
        first: row of the table.
        each: programs of one job, as many as the job with the most has.
        largest: number of the format.
        mantissa: its bits.
        least: exponent of its smallest normal number, plus 127.
        KIND: of all tensors' elements.
        ITEM: bytes of one.
        ROWS: that are looked at together.
        LANES: of a row.
        SOURCES: no fewer than the programs of `summarize`.
        COLUMNS: of partials.
        FIELDS: of the table.
    """
    row, begin, before, size = tensor_of(table, first, each, KIND, ITEM, FIELDS)
    programs = tl.load(row + 3)
    program = tl.program_id(0) % each
    TILE: tl.constexpr = ROWS * LANES
    if program < programs:
        scale = _scale_to(_amax(row, partials, SOURCES, COLUMNS), largest)
        inverse = _inverse(scale)
        end = before + size
        lane = tl.arange(0, LANES)
        lanes = tl.arange(0, ROWS)[:, None] * LANES + lane[None, :]
        under = tl.zeros([LANES], tl.int32)
        over = tl.zeros([LANES], tl.int32)
        square = tl.zeros([LANES], tl.float32)
        inner, outer = whole_tiles(before, end, ROWS, LANES)
        for tile in range(inner + program, outer, programs):
            value = tl.load(begin + tl.multiple_of(tile * TILE, TILE) + lanes).to(tl.float32)
            small, large, error = _lost(value, scale, inverse, largest, mantissa, least)
            under += tl.sum(small.to(tl.int32), 0)
            over += tl.sum(large.to(tl.int32), 0)
            square += tl.sum(error, 0)
        for index in range(program, 2 * ROWS, programs):
            place, inside = edge_elements(index, before, end, inner, outer, ROWS, LANES)
            value = tl.load(begin + place, mask=inside, other=0.0).to(tl.float32)
            small, large, error = _lost(value, scale, inverse, largest, mantissa, least)
            under += small.to(tl.int32)
            over += large.to(tl.int32)
            square += error
        _store_rounding(
            partials + (tl.load(row + 2) + program) * COLUMNS,
            tl.sum(under, 0),
            tl.sum(over, 0),
            tl.sum(square, 0),
            inverse,
            inverse,
        )


@triton.jit(do_not_specialize=["first", "each", "largest", "mantissa", "least"])
def round_blocks(
    table,
    partials,
    first,
    each,
    largest,
    mantissa,
    least,
    KIND: tl.constexpr,
    ITEM: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Write what `round_whole` does, with a power of two as the scale of each block along the last dimension.

    Args:
        table: of jobs.
        partials: what programs write.
        first: row of the table.
        each: programs of one job, as many as the job with the most has.
        largest: number of the format.
        mantissa: its bits.
        least: exponent of its smallest normal number, plus 127.
        KIND: of all tensors' elements.
        ITEM: bytes of one.
        HEIGHT: blocks at a time.
        WIDTH: elements of a block.
        COLUMNS: of partials.
        FIELDS: of the table.
    """
    row, begin, before, size = tensor_of(table, first, each, KIND, ITEM, FIELDS)
    programs = tl.load(row + 3)
    program = tl.program_id(0) % each
    if program < programs:
        under = tl.zeros([HEIGHT], tl.int32)
        over = tl.zeros([HEIGHT], tl.int32)
        square = tl.zeros([HEIGHT], tl.float32)
        lows = tl.full([HEIGHT], INFINITY, tl.float32)
        highs = tl.full([HEIGHT], -INFINITY, tl.float32)
        length = tl.load(row + 6)
        for tile in range(program, tl.cdiv(size // length * tl.cdiv(length, WIDTH), HEIGHT), programs):
            value, inside = _blocks(begin, before, size, length, tile, HEIGHT, WIDTH)
            absolute = tl.abs(value)
            scale = _power_of_two(or_nan(tl.max(absolute, 1), tl.sum(absolute, 1)), largest)
            inverse = _inverse(scale)
            small, large, error = _lost(value, scale[:, None], inverse[:, None], largest, mantissa, least)
            under += tl.sum(small.to(tl.int32), 1)
            over += tl.sum(large.to(tl.int32), 1)
            square += tl.sum(error, 1)
            held = tl.max(inside.to(tl.int32), 1) > 0
            lows = tl.minimum(lows, tl.where(held, inverse, INFINITY))
            highs = tl.maximum(highs, tl.where(held, inverse, -INFINITY))
        _store_rounding(
            partials + (tl.load(row + 2) + program) * COLUMNS,
            tl.sum(under, 0),
            tl.sum(over, 0),
            tl.sum(square, 0),
            tl.min(lows, 0),
            tl.max(highs, 0),
        )


@triton.jit(do_not_specialize=["first", "each"])
def round_fours(
    table,
    partials,
    first,
    each,
    KIND: tl.constexpr,
    ITEM: tl.constexpr,
    HEIGHT: tl.constexpr,
    SOURCES: tl.constexpr,
    COLUMNS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Write what `round_whole` does, of four bits an element: blocks of 16 have scales of E4M3 below one of the tensor.

    Args:
        table: of jobs.
        partials: what programs write; what those of `summarize` have written is read.
        first: row of the table.
        each: programs of one job, as many as the job with the most has.
        KIND: of all tensors' elements.
        ITEM: bytes of one.
        HEIGHT: blocks at a time.
        SOURCES: no fewer than the programs of `summarize`.
        COLUMNS: of partials.
        FIELDS: of the table.
    """
    row, begin, before, size = tensor_of(table, first, each, KIND, ITEM, FIELDS)
    programs = tl.load(row + 3)
    program = tl.program_id(0) % each
    if program < programs:
        amax = _amax(row, partials, SOURCES, COLUMNS)
        # Takes the largest element to 6, the largest of E2M1, in a block whose scale is 448, the largest of E4M3.
        whole = tl.where(amax > 0, _inverse(tl.where(amax > 0, amax, 1.0)) * (6.0 * 448.0), 1.0)
        under = tl.zeros([HEIGHT], tl.int32)
        over = tl.zeros([HEIGHT], tl.int32)
        square = tl.zeros([HEIGHT], tl.float32)
        lows = tl.full([HEIGHT], INFINITY, tl.float32)
        highs = tl.full([HEIGHT], -INFINITY, tl.float32)
        length = tl.load(row + 6)
        for tile in range(program, tl.cdiv(size // length * tl.cdiv(length, 16), HEIGHT), programs):
            value, inside = _blocks(begin, before, size, length, tile, HEIGHT, 16)
            largest = or_nan(tl.max(tl.abs(value), 1), tl.sum(tl.abs(value), 1))
            stored = tl.minimum(tl.div_rn(largest, 6.0) * whole, 448.0, propagate_nan=tl.PropagateNan.ALL)
            # As E4M3 stores it: 3 bits of mantissa, normal from 2⁻⁶ on; 0 where the block is small beside the tensor.
            inverse = tl.div_rn(_rounded(stored, 3, 121), whole)
            wide = tl.broadcast_to(tl.where(inverse > 0, inverse, 1.0)[:, None], [HEIGHT, 16])
            scaled = tl.where((inverse > 0)[:, None], tl.div_rn(value, wide), 0.0)
            absolute = tl.abs(scaled)
            # 0, 0.5, 1, 1.5, 2, 3, 4, 6: 2²² in 32 bits has a last bit of 0.5, 2²³ of 1 and 2²⁴ of 2 (see `_rounded`).
            magic = tl.where(absolute < 2.0, 4194304.0, tl.where(absolute < 4.0, 8388608.0, 16777216.0))
            rounded = tl.minimum((absolute + magic) - magic, 6.0, propagate_nan=tl.PropagateNan.ALL)
            error = rounded * inverse[:, None] - tl.abs(value)
            under += tl.sum(((rounded == 0) & (value != 0)).to(tl.int32), 1)
            over += tl.sum((absolute > 6.0).to(tl.int32), 1)
            square += tl.sum(error * error, 1)
            held = (tl.max(inside.to(tl.int32), 1) > 0) & (largest > 0)  # a block of zeros says nothing about scales
            lows = tl.minimum(lows, tl.where(held, inverse, INFINITY))
            highs = tl.maximum(highs, tl.where(held, inverse, -INFINITY))
        lost = tl.sum(square, 0)  # no number where a scale is none
        _store_rounding(
            partials + (tl.load(row + 2) + program) * COLUMNS,
            tl.sum(under, 0),
            tl.sum(over, 0),
            lost,
            or_nan(tl.min(lows, 0), lost),
            or_nan(tl.max(highs, 0), lost),
        )
