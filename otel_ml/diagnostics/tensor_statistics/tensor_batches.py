"""Tensors that come by one after another in a step, of which kernels find something, as many at once as can be.

What comes by in a hook may be changed as soon as the hook returns. It is looked at before, unless its caller knows that
it stays as it is: then it waits for others, and one launch looks at all.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from otel_ml.diagnostics.tensor_statistics.copy_to_host import Block, Blocks, CopyToHost, arrival_of
from otel_ml.diagnostics.tensor_statistics.kernel_compilation import launch
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import (
    COLUMNS,
    FIELDS,
    SUMMARY,
    Job,
    fold,
    kind_of,
    programs_of,
    recipe_of,
)

__all__ = ["HELD_BYTES", "SeenTensor", "TensorBatches"]

HELD_BYTES = 32 * 2**20
"""Of tensors that wait although training has no more use for them: more of its memory is not kept from it."""

_ROWS = 512
_PARTIALS = 32_768
"""Rows of what programs write, 1 MB: to begin with."""


class SeenTensor(NamedTuple):
    """A tensor that came by.

    Attributes:
        owner: whose it is.
        size: elements.
        rows: of what is found, for each of its jobs.
    """

    owner: int
    size: int
    rows: dict[Job, int]


class _Waiting(NamedTuple):
    tensor: Any
    version: int | None  # None of what nobody can have changed yet
    jobs: Sequence[Job]
    owners: Sequence[int]

    def is_as(self, other: _Waiting) -> bool:
        return self.tensor is other.tensor and (self.version, self.jobs) == (other.version, other.jobs)

    def has_changed(self) -> bool:
        # Torch counts each write in place in a tensor's version, also that of a view of it.
        return self.version is not None and self.tensor._version != self.version  # noqa: SLF001 (torch has no other way)


class TensorBatches:
    """What came by on one stream of a device since the last `take()`.

    Args:
        stream: of torch; work is launched there, from whatever thread.
        blocks: pinned memory.
    """

    def __init__(self, stream: Any, blocks: Blocks) -> None:
        self.stream = stream
        self._blocks = blocks
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._capacity = (0, 0)
        self._block: Block | None = None
        self._words: Any = None
        self._device_table: Any = None
        self._written: Any = None
        self._results: Any = None
        self._seen: list[SeenTensor] = []
        self._rows = self._partials = 0
        self._found: list[tuple[CopyToHost, list[SeenTensor]]] = []

    def see(
        self, tensor: Any, jobs: Sequence[Job], owners: Sequence[int], *, stays: bool, is_kept: bool = False
    ) -> list[int]:
        """Take a tensor, for which `is_plain()` is true; blocks need it to be contiguous.

        Args:
            tensor: with elements.
            jobs: what is to be found, a summary first where others need the tensor's extremes.
            owners: whose it is, of which each wants some of the jobs.
            stays: whether nobody changes it until `launch()`; else it is looked at now.
            is_kept: whether training keeps its memory until then anyway.

        Returns:
            Owners of which a tensor was changed all the same, and is lost.
        """
        may_change = stays and not tensor.is_inference()  # which has no version
        version = tensor._version if may_change else None  # noqa: SLF001
        new = _Waiting(tensor, version, jobs, owners)
        if stays and self._waiting and self._waiting[-1].is_as(new):  # of a container and of its first or last layer
            self._waiting[-1] = new._replace(owners=(*self._waiting[-1].owners, *owners))
            return []
        self._waiting.append(new)
        if stays and not is_kept:
            self._bytes += tensor.numel() * tensor.element_size()
        return self.launch() if not stays or self._bytes > HELD_BYTES else []

    def launch(self) -> list[int]:
        """Look at all that waits; return the owners of what was changed meanwhile, and is lost."""
        import torch

        # First: what a launch that fails was to look at is not tried again with tensors that are changed by then.
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if not waiting:
            return []
        changed = [one for one in waiting if one.has_changed()]
        if changed:
            waiting = [one for one in waiting if not one.has_changed()]
        if waiting:
            with torch.cuda.stream(self.stream):
                self._launch(waiting)
        return [owner for one in changed for owner in one.owners]

    def take(self) -> list[tuple[CopyToHost, list[SeenTensor]]]:
        """Return what was seen since the last time, and the arrivals of what was found of it."""
        import torch

        if self._rows:
            with torch.cuda.stream(self.stream):
                self._close()
        found, self._found = self._found, []
        return found

    def forget(self) -> None:
        """Forget what was seen since the last time."""
        self._waiting, self._bytes = [], 0
        self._seen, self._found = [], []

    def _launch(self, waiting: list[_Waiting]) -> None:
        if self.stream.cuda_stream:  # else it is the one that training's memory is taken and given back on
            for one in waiting:
                one.tensor.record_stream(self.stream)
        groups = _groups(waiting)
        rows = sum(len(group.waiting) for group in groups)
        self._reserve(rows, sum(sum(group.programs) for group in groups))
        first = self._rows
        found: list[dict[Job, int]] = [{} for _ in waiting]
        table = self._table(groups, found)
        block = self._block
        ctypes.memmove(block.address + 8 * FIELDS * first, table.tobytes(), 8 * len(table))  # type: ignore[union-attr]
        # Rows of earlier launches are in it as before; a copy of them that is still on its way reads the same.
        self._device_table.copy_(self._words, non_blocking=True)
        for group in groups:
            each = max(group.programs)
            recipe = recipe_of(group.job, group.kind, self.stream.device)
            arguments = (self._device_table, self._written, first, each, *group.job.numbers)
            launch(recipe, each * len(group.programs), *arguments)
            first += len(group.programs)
        # Last: of what was not looked at nothing is found.
        for one, its in zip(waiting, found, strict=True):
            self._seen += [SeenTensor(owner, one.tensor.numel(), its) for owner in one.owners]

    def _table(self, groups: list[_Group], rows: list[dict[Job, int]]) -> array[int]:
        """Return the rows of the table for all groups; say in `rows` which they are."""
        table = array("q")
        # Place → first row of what the programs of its summary write, and how many those are.
        extremes: dict[int, tuple[int, int]] = {}
        row, partial = self._rows, self._partials
        for group in groups:
            job, is_summary = group.job, group.job == SUMMARY
            each = zip(group.waiting, group.tensors, group.programs, strict=True)
            for place, (address, size, length), programs in each:
                if is_summary:
                    extremes[place] = (partial, programs)
                source, sources = extremes.get(place, (0, 0))
                rows[place][job] = row
                table.extend((address, size, partial, programs, source, sources, length, not is_summary))
                partial += programs
                row += 1
        self._rows, self._partials = row, partial
        return table

    def _reserve(self, rows: int, partials: int) -> None:
        """Have memory for so many more rows; what is there already is brought to an end where it would not do."""
        has_rows, has_partials = self._capacity
        if self._rows + rows <= has_rows and self._partials + partials <= has_partials:
            if self._block is None:
                self._begin()
            return
        # With what is there already: the next step is likely to need as much at once.
        wanted = (self._rows + rows, self._partials + partials)
        if self._rows:
            self._close()
        self._allocate(max(_ROWS, has_rows, _rounded(wanted[0])), max(_PARTIALS, has_partials, _rounded(wanted[1])))
        self._begin()

    def _allocate(self, rows: int, partials: int) -> None:
        import torch

        device = self.stream.device
        with torch.inference_mode(mode=False):  # else it could not be written to outside of that mode
            self._device_table = torch.empty(rows * FIELDS, dtype=torch.int64, device=device)
            self._written = torch.empty(partials * COLUMNS, dtype=torch.float32, device=device)
            self._results = torch.empty(rows * COLUMNS, dtype=torch.float64, device=device)
        self._capacity = (rows, partials)

    def _begin(self) -> None:
        self._block = self._blocks.take(self._capacity[0] * FIELDS)
        self._words = self._block.words[: self._capacity[0] * FIELDS]

    def _close(self) -> None:
        """Add up what programs have written, and begin to copy it to the host."""
        assert self._block is not None
        rows, block = self._rows, self._block
        self._rows = self._partials = 0
        self._block = self._words = None
        seen, self._seen = self._seen, []
        launch(fold(self.stream.device), rows, self._device_table, self._written, self._results, 0)
        arrival = arrival_of(self._results[: rows * COLUMNS], self._blocks, (block,))
        self._found.append((arrival, seen))


class _Group(NamedTuple):
    """What one launch looks at.

    Attributes:
        job: the same of all.
        kind: of all tensors' elements.
        waiting: places of what waited.
        tensors: of each, its address, elements, and those of its last dimension.
        programs: for each.
    """

    job: Job
    kind: int
    waiting: list[int]
    tensors: list[tuple[int, int, int]]
    programs: list[int]


def _groups(waiting: list[_Waiting]) -> list[_Group]:
    places: dict[tuple[Job, int], list[int]] = {}
    tensors = []
    for place, one in enumerate(waiting):
        tensor, kind = one.tensor, kind_of(one.tensor)
        tensors.append((tensor.data_ptr(), tensor.numel(), tensor.shape[-1] if tensor.dim() else 1))
        for job in one.jobs:
            places.setdefault((job, kind), []).append(place)
    found = []
    # Summaries first: others take their scales from the extremes.
    for (job, kind), group in sorted(places.items(), key=lambda item: item[0][0] != SUMMARY):
        its = [tensors[place] for place in group]
        programs = [programs_of(job, size, length, len(group)) for _, size, length in its]
        found.append(_Group(job, kind, group, its, programs))
    return found


def _rounded(number: int) -> int:
    """Return a power of two with room for more, so that memory is not asked for again and again."""
    return 1 << (number + number // 4).bit_length()
