"""Kernels that look at many tensors in one launch, for what the inspector shows of them; they need Triton.

The table has a row for each job: what one kernel does with one tensor. A job has as many programs as the table says;
each takes every so many-th tile of the tensor and writes a row of eight sums of 32 bits, which `fold` adds up in their
order: nothing depends on which program is first. What rounding to a format loses is in `rounding_kernels.py`.
"""

# mypy: ignore-errors
# Triton compiles these functions: their arguments have no types of Python.

from __future__ import annotations

import triton
import triton.language as tl

from otel_ml.diagnostics.tensor_statistics.job_tiles import INFINITY, edge_elements, or_nan, tensor_of, whole_tiles

__all__ = ["fold", "summarize"]


@triton.jit(do_not_specialize=["first", "each"])
def summarize(
    table,
    partials,
    first,
    each,
    KIND: tl.constexpr,
    ITEM: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    COLUMNS: tl.constexpr,
    FIELDS: tl.constexpr,
):
    """Write elements, sum, squared differences from their mean, smallest, largest, absolute sum, smallest not 0.

    Each lane has the mean of what it has seen, to which a tile is added by Chan's formula: no large numbers are
    subtracted, and no lane waits for another.

    Args:
        table: of jobs.
        partials: what programs write.
        first: row of the table.
        each: programs of one job, as many as the job with the most has.
        KIND: of all tensors' elements.
        ITEM: bytes of one.
        ROWS: that are looked at together.
        LANES: of a row.
        COLUMNS: of partials.
        FIELDS: of the table.
    """
    row, begin, before, size = tensor_of(table, first, each, KIND, ITEM, FIELDS)
    programs = tl.load(row + 3)
    program = tl.program_id(0) % each
    TILE: tl.constexpr = ROWS * LANES
    if program < programs:
        end = before + size
        lane = tl.arange(0, LANES)
        lanes = tl.arange(0, ROWS)[:, None] * LANES + lane[None, :]
        lows = tl.full([LANES], INFINITY, tl.float32)
        highs = tl.full([LANES], -INFINITY, tl.float32)
        least = tl.full([LANES], INFINITY, tl.float32)
        l1 = tl.zeros([LANES], tl.float32)
        count = tl.zeros([LANES], tl.float32)
        total = tl.zeros([LANES], tl.float32)
        mean = tl.zeros([LANES], tl.float32)
        m2 = tl.zeros([LANES], tl.float32)
        inner, outer = whole_tiles(before, end, ROWS, LANES)
        for tile in range(inner + program, outer, programs):
            value = tl.load(begin + tl.multiple_of(tile * TILE, TILE) + lanes).to(tl.float32)
            absolute = tl.abs(value)
            lows = tl.minimum(lows, tl.min(value, 0))
            highs = tl.maximum(highs, tl.max(value, 0))
            least = tl.minimum(least, tl.min(tl.where(value == 0, INFINITY, absolute), 0))
            l1 += tl.sum(absolute, 0)
            here = tl.sum(value, 0)
            center = here / ROWS
            away = value - center[None, :]
            apart = center - mean
            share = ROWS / (count + ROWS)
            m2 += tl.sum(away * away, 0) + apart * apart * (count * share)
            mean += apart * share
            total += here
            count += ROWS
        for index in range(program, 2 * ROWS, programs):
            place, inside = edge_elements(index, before, end, inner, outer, ROWS, LANES)
            value = tl.load(begin + place, mask=inside, other=0.0).to(tl.float32)
            absolute = tl.abs(value)
            lows = tl.minimum(lows, tl.where(inside, value, INFINITY))
            highs = tl.maximum(highs, tl.where(inside, value, -INFINITY))
            least = tl.minimum(least, tl.where(inside & (value != 0), absolute, INFINITY))
            l1 += absolute
            number = inside.to(tl.float32)
            apart = tl.where(inside, value - mean, 0.0)
            share = number / tl.maximum(count + number, 1.0)
            m2 += apart * apart * (count * share)
            mean += apart * share
            total += value
            count += number
        out = partials + (tl.load(row + 2) + program) * COLUMNS
        number = tl.sum(count, 0)
        sums = tl.sum(total, 0)
        apart = tl.where(count > 0, mean - sums / number, 0.0)
        tl.store(out, number)
        tl.store(out + 1, sums)
        tl.store(out + 2, tl.sum(m2, 0) + tl.sum(count * apart * apart, 0))
        tl.store(out + 3, tl.min(lows, 0))
        tl.store(out + 4, tl.max(highs, 0))
        tl.store(out + 5, tl.sum(l1, 0))
        tl.store(out + 6, tl.min(least, 0))


@triton.jit(do_not_specialize=["first"])
def fold(table, partials, results, first, SOURCES: tl.constexpr, COLUMNS: tl.constexpr, FIELDS: tl.constexpr):
    """Add up what the programs of each job have written, in 64 bits.

    Args:
        table: of jobs; the grid are its rows from `first` on.
        partials: what programs have written.
        results: a row for each job: mean, squared differences, smallest, largest, absolute sum, smallest not 0 of a
            summary; underflows, overflows, squared error, smallest and largest inverse scale of a rounding; the
            largest of a range.
        first: row of the table.
        SOURCES: no fewer than the programs of any job.
        COLUMNS: of partials and results.
        FIELDS: of the table.
    """
    job = first + tl.program_id(0)
    row = table + job * FIELDS
    lane = tl.arange(0, SOURCES)
    inside = lane < tl.load(row + 3)
    at = partials + (tl.load(row + 2) + lane) * COLUMNS
    kind = tl.load(row + 7)
    out = results + job * COLUMNS
    # Elements, sum, squared differences of a summary; underflows, overflows, squared error of a rounding.
    c0 = tl.load(at, mask=inside, other=0.0).to(tl.float64)
    c1 = tl.load(at + 1, mask=inside, other=0.0).to(tl.float64)
    c2 = tl.load(at + 2, mask=inside, other=0.0).to(tl.float64)
    lows = tl.load(at + 3, mask=inside, other=INFINITY)
    low = tl.min(lows, 0).to(tl.float64)
    high = tl.max(tl.load(at + 4, mask=inside, other=-INFINITY), 0).to(tl.float64)
    if kind == 0:
        # Chan's formula for all programs at once: Σ m2ᵢ + Σ nᵢ·(meanᵢ - mean)².
        mean = tl.sum(c1, 0) / tl.sum(c0, 0)
        apart = tl.where(c0 > 0, c1 / tl.where(c0 > 0, c0, 1.0) - mean, 0.0)
        absolute = tl.sum(tl.load(at + 5, mask=inside, other=0.0).to(tl.float64), 0)
        least = tl.min(tl.load(at + 6, mask=inside, other=INFINITY), 0).to(tl.float64)
        tl.store(out, mean)
        tl.store(out + 1, tl.sum(c2, 0) + tl.sum(c0 * apart * apart, 0))
        tl.store(out + 2, or_nan(low, absolute))
        tl.store(out + 3, or_nan(high, absolute))
        tl.store(out + 4, absolute)
        tl.store(out + 5, or_nan(least, absolute))
    else:
        scales = tl.sum(tl.where(inside, lows, 0.0).to(tl.float64), 0)  # which are not below 0
        tl.store(out, tl.sum(c0, 0))
        tl.store(out + 1, tl.sum(c1, 0))
        tl.store(out + 2, tl.sum(c2, 0))
        is_zero = high == -INFINITY  # blocks of zeros alone, which need no scale
        tl.store(out + 3, or_nan(tl.where(is_zero, 0.0, low), scales))
        tl.store(out + 4, or_nan(tl.where(is_zero, 0.0, high), scales))
