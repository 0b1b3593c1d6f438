"""Spans of a step, of a `spans.jsonl` that is asked many times: which steps are in a block is found out once."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from otel_ml_exporters.records import Span
from otel_ml_service.stored_runs.follow_jsonl import is_another
from otel_ml_service.stored_runs.follow_spans import span_in

__all__ = ["SpanSteps"]

_BLOCK = 2**20
"""Bytes of a block: some 4,000 lines, in which a step is looked for."""

_NEAR = 64
"""Steps with fewer between them are one stretch: a block of a job has one or two, and not one for each step."""

# It stands in texts and links, too: then a block is looked at for nothing.
_STEP = re.compile(rb'"step":(-?\d{1,19})')


class _Block(NamedTuple):
    """Whole lines of the file, and which steps may be in them: from each of `firsts` to that of `lasts`."""

    begin: int
    end: int
    firsts: list[int]
    lasts: list[int]

    def may_have(self, step: int) -> bool:
        place = bisect_right(self.firsts, step) - 1
        return place >= 0 and step <= self.lasts[place]


class SpanSteps:
    """Finds spans by their step.

    The first question reads the file once, and those after it what has come since, and the blocks that may have the
    step. Steps that are done again are in several.

    Args:
        path: the file; it may grow, be replaced, or not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: os.stat_result | None = None
        self._blocks: list[_Block] = []

    def of(self, role: str, axis: str, step: int) -> Iterator[Span]:
        """Yield the spans of one step, wherever in the file they are."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            self._read_on(file)
            for begin, end in [*self._places(step), (self._end, None)]:  # behind the last block a line may be torn
                file.seek(begin)
                lines = file.read() if end is None else file.read(end - begin)
                for line in _lines_with(lines, b'"step":%d' % step):
                    span = span_in(line)
                    # `"step":1` is in `"step":12` and in texts, too.
                    if span is not None and (span.role, span.axis, span.step) == (role, axis, step):
                        yield span

    @property
    def _end(self) -> int:
        return self._blocks[-1].end if self._blocks else 0

    def _places(self, step: int) -> list[tuple[int, int]]:
        return [(block.begin, block.end) for block in self._blocks if block.may_have(step)]

    def _read_on(self, file: IO[bytes]) -> None:
        if is_another(self._path, self._file, self._end):
            self._blocks.clear()
        self._file = os.fstat(file.fileno())
        # What comes while somebody looks each second would be a block for each look.
        if self._blocks and self._end - self._blocks[-1].begin < _BLOCK:
            self._blocks.pop()
        file.seek(self._end)
        while content := file.read(_BLOCK):
            if not content.endswith(b"\n"):
                content += file.readline()
            whole = content.rfind(b"\n") + 1
            if whole:
                firsts, lasts = _stretches(map(int, {*_STEP.findall(content, 0, whole)}))
                self._blocks.append(_Block(self._end, self._end + whole, firsts, lasts))
            if whole < len(content):  # the last line, which is torn or being written
                return


def _stretches(steps: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return where stretches of steps begin and end.

    Examples:
        >>> _stretches([7, 1, 3, 1000])
        ([1, 1000], [7, 1000])
        >>> _stretches([])
        ([], [])
    """
    firsts: list[int] = []
    lasts: list[int] = []
    for step in sorted(steps):
        if lasts and step - lasts[-1] <= _NEAR:
            lasts[-1] = step
        else:
            firsts.append(step)
            lasts.append(step)
    return firsts, lasts


def _lines_with(lines: bytes, wanted: bytes) -> Iterator[bytes]:
    """Yield the lines that hold what is `wanted`: a third of the time that it takes to look at each line."""
    place = lines.find(wanted)
    while place >= 0:
        begin, end = lines.rfind(b"\n", 0, place) + 1, lines.find(b"\n", place)
        end = len(lines) if end < 0 else end
        yield lines[begin:end]
        place = lines.find(wanted, end)
