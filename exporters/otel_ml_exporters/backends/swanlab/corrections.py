"""How often each value was corrected: SwanLab has one value for a metric and step, so each time is another metric."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from otel_ml_exporters.file_identity import OpenFile

__all__ = ["Corrections"]

Place = tuple[str, int]
"""Metric and step."""


class Corrections(OpenFile):
    """A file with a line, `["metric",step]`, for each correction; made with the first one.

    It is only appended to: a late rank corrects thousands of values, and a batch is to cost what is in the batch.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._counts: Counter[Place] = Counter()
        self._new: Counter[Place] = Counter()

    def open(self, size: int) -> bool:
        """Count what the first `size` bytes say; return whether they are there, and whole."""
        if not size:
            return True
        # What is behind `size` was not noted in the mark, and is cut off below.
        content = os.pread(self._open(), size, 0)
        try:
            counts = Counter((str(metric), int(step)) for metric, step in map(json.loads, content.splitlines()))
        except (ValueError, TypeError):  # zeros, as a power cut leaves them
            return False
        if len(content) < size:
            return False
        self.cut(size)
        self._counts = counts
        return True

    def key(self, metric: str, step: int) -> str:
        """Return the metric of a correction, which is counted.

        Examples:
            >>> corrections = Corrections(Path("run.corrections"))
            >>> corrections.key("loss", 4), corrections.key("loss", 4), corrections.key("loss", 5)
            ('loss/amended', 'loss/amended_2', 'loss/amended')
        """
        self._new[metric, step] += 1
        # Counter gives 0 for what it has not, and does not keep it.
        number = self._counts[metric, step] + self._new[metric, step]
        return f"{metric}/amended" + (f"_{number}" if number > 1 else "")

    def forget_new(self) -> None:
        """Forget what was counted and not written: it is about to come again."""
        self._new.clear()

    def append(self, at: int) -> int:
        """Write what was counted behind the first `at` bytes, and return where it ends."""
        if self._new:
            if self._file is None:
                self._open()
            self.cut(at)  # what is behind it was not noted
            self.write(_lines(self._new))
        return self.size if self._new else at

    def keep_new(self) -> None:
        """Note that what was written is in the mark."""
        self._counts.update(self._new)
        self._new.clear()

    def add(self, counts: Iterable[tuple[str, int]]) -> None:
        """Count what a mark of the first form says, `<metric>@<step>` → how often; the next mark does not."""
        for place, number in counts:
            metric, _, step = place.rpartition("@")
            # As new ones: they are in no file yet, and are written with the next mark.
            self._new[metric, int(step)] += number


def _lines(counts: Counter[Place]) -> bytes:
    return b"".join(json.dumps(place, separators=(",", ":")).encode() + b"\n" for place in counts.elements())
