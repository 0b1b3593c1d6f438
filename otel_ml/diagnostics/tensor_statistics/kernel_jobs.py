"""What kernels find of a tensor that comes by: a job for each kernel that is to look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from otel_ml.diagnostics.tensor_statistics.kernel_compilation import Recipe, warps
from otel_ml.diagnostics.tensor_statistics.tensor_tables import KINDS, kinds_by_type

__all__ = [
    "COLUMNS",
    "FIELDS",
    "MOST_PROGRAMS",
    "SUMMARY",
    "Job",
    "fold",
    "kind_of",
    "needs",
    "programs_of",
    "recipe_of",
]

COLUMNS = 8
"""Of what a program writes, and of what is found for a job."""

FIELDS = 8
"""Of a row of the table: address, elements, first row of what its programs write, how many those are, the same two of
the job that has the tensor's extremes, elements of the last dimension, and whether it is not a summary."""

MOST_PROGRAMS = 1024
"""Of a job: as many as the largest devices run at once, and what `fold` adds up in one go."""

_FEWEST_PROGRAMS = 64
"""Of a large tensor, however many others there are."""

_THREADS = 256
_LOADS, _LANES = 4, 2048
"""Elements that a program looks at together: each thread loads 16 bytes at once, several times."""

_BLOCKED = 4096
"""The same where they are blocks."""

_REGISTERS = 128
"""For a thread, so that a processor has work for another program while one waits for its memory."""


class Job(NamedTuple):
    """What one kernel finds of a tensor.

    Attributes:
        kernel: `summarize`, `round_whole`, `round_blocks` or `round_fours`.
        largest: number of the format that is rounded to.
        mantissa: its bits.
        least: exponent of its smallest normal number, plus 127.
        width: elements of a block along the last dimension; 0 where there are no blocks.
    """

    kernel: str
    largest: float = 0.0
    mantissa: int = 0
    least: int = 0
    width: int = 0

    @property
    def needs_extremes(self) -> bool:
        """Whether a summary has to come before it."""
        return self.kernel in {"round_whole", "round_fours"}

    @property
    def numbers(self) -> tuple[float, ...]:
        """What the kernel is told of the format."""
        return (self.largest, self.mantissa, self.least) if self.largest else ()


SUMMARY = Job("summarize")


def kind_of(tensor: Any) -> int:
    """Return the type of a tensor's elements, as its place in `KINDS`."""
    return kinds_by_type()[tensor.dtype]


def programs_of(job: Job, size: int, length: int, tensors: int) -> int:
    """Return how many programs look at one of several tensors; none sees more elements than 32 bits count exactly."""
    if job.width:
        tiles = -(-(size // length * -(-length // job.width)) // (_BLOCKED // job.width))
    else:
        tiles = -(-size // (_LOADS * _LANES))
    # All tensors of a launch together have about as many programs as the device runs at once.
    # 2²⁴ elements: up to there a float32 counts them exactly.
    limit = max(_FEWEST_PROGRAMS, MOST_PROGRAMS // tensors, -(-size // 2**24))
    return max(1, min(tiles, limit, MOST_PROGRAMS))


def recipe_of(job: Job, kind: int, device: Any) -> Recipe:
    """Return how a kernel is launched for tensors of a type: formats of one shape have one."""
    # The numbers of a format are arguments of the kernel, so any will do for what is compiled.
    return _recipe_of(job._replace(largest=1.0, mantissa=1, least=2) if job.largest else job, kind, device)


@cache
def _recipe_of(job: Job, kind: int, device: Any) -> Recipe:
    import torch
    import triton.language as tl

    from otel_ml.diagnostics.tensor_statistics import inspection_kernels, rounding_kernels

    kernels = inspection_kernels if job == SUMMARY else rounding_kernels
    item = getattr(torch, KINDS[kind]).itemsize  # of `KIND` itself not every Triton knows it
    constants: dict[str, Any] = {
        "KIND": getattr(tl, KINDS[kind]),
        "ITEM": item,
        "COLUMNS": COLUMNS,
        "FIELDS": FIELDS,
    }
    if job.width:
        constants |= {"HEIGHT": _BLOCKED // job.width}
    else:
        constants |= {"ROWS": _LOADS, "LANES": _LANES}
    if job.kernel == "round_blocks":
        constants |= {"WIDTH": job.width}
    if job.needs_extremes:
        constants |= {"SOURCES": MOST_PROGRAMS}
    # 2 stands for any number of 32 bits.
    arguments = (torch.int64, torch.float32, 2, 2, *job.numbers)
    return Recipe(getattr(kernels, job.kernel), arguments, {**constants, **_options(_THREADS, device)})


@cache
def fold(device: Any) -> Recipe:
    """Return how what programs have written is added up."""
    import torch

    from otel_ml.diagnostics.tensor_statistics import inspection_kernels

    constants = {"SOURCES": MOST_PROGRAMS, "COLUMNS": COLUMNS, "FIELDS": FIELDS}
    arguments = (torch.int64, torch.float32, torch.float64, 2)
    return Recipe(inspection_kernels.fold, arguments, {**constants, **_options(_THREADS, device)})


def needs(jobs: Iterable[Job], kind: int, device: Any) -> Iterator[tuple[str, Any]]:
    """Yield what has to be compiled for these jobs with tensors of a type, as `launching` takes it."""
    yield "fold of jobs", partial(fold, device)
    for job in jobs:
        shape = job.width if job.kernel == "round_blocks" else ""  # formats are numbers, not constants
        yield f"{job.kernel} {shape} of {KINDS[kind]}", partial(recipe_of, job, kind, device)


def _options(threads: int, device: Any) -> dict[str, Any]:
    import torch

    options = warps(threads, device)
    # An option of Triton's compiler for NVIDIA alone.
    return options if device.type != "cuda" or torch.version.hip else {**options, "maxnreg": _REGISTERS}
