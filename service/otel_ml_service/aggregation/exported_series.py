"""Which series were exported at the closed steps of which no fold state is left: a few bytes a step, for good.

Steps mostly have the series of the step before. So blocks of steps hold each set of series once, and for each run of
steps which set it has::

    {"sets": [[["loss", [], null], ["time/step", [], null]]], "runs": [[0, 511, 0]]}
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from otel_ml_exporters.json_text import plain_json
from otel_ml_service.aggregation.lazy_entries import PREFIX, LazyEntries
from otel_ml_service.aggregation.observation import Attributes
from otel_ml_service.aggregation.piece import Piece

__all__ = ["ExportedSeries", "Series", "from_plain", "rank_of", "rows_of", "to_plain"]

Series = tuple[str, Attributes, int | None]
"""Name, identity attributes; and the rank, where each rank has a series of its own."""

BLOCK = 1024
"""Steps of a block."""

Block = dict[str, list[Any]]


def rank_of(piece: Piece) -> int | None:
    """Return the rank whose own series a piece is part of; None where ranks are reduced."""
    return piece.source.rank if piece.reduction.across == ("rank",) else None


def rows_of(piece: Piece, exported: frozenset[Series] | None) -> list[int]:
    """Return the rows of a piece that are part of exported series; None stands for all there are."""
    rank = rank_of(piece)
    series = enumerate(piece.shape.series)
    return [row for row, key in series if exported is None or (key.name, key.attributes, rank) in exported]


def to_plain(exported: Iterable[Series] | None) -> list[Any] | None:
    """Return series for JSON, in one order."""
    return None if exported is None else sorted(exported, key=repr)


def from_plain(stored: list[Any] | None) -> frozenset[Series] | None:
    """Return series from their JSON form."""
    if stored is None:
        return None
    return frozenset(
        (name, tuple((key, value) for key, value in attributes), rank) for name, attributes, rank in stored
    )


class ExportedSeries:
    """Reads and writes the blocks."""

    def __init__(self, disk: LazyEntries) -> None:
        self._disk = disk
        self._changed: dict[str, Block] = {}
        self._last: tuple[frozenset[Series], list[Any]] = frozenset(), []

    def at(self, attempt: int, step: int) -> frozenset[Series] | None:
        """Return the series that were exported at a step of which no fold state is left; empty where it never was."""
        block = self._block(attempt, step)
        for first, last, number in block["runs"]:
            if first <= step <= last:
                return from_plain(block["sets"][number])
        return frozenset()

    def note(self, attempt: int, step: int, exported: frozenset[Series]) -> None:
        """Remember what was exported at a step, in the place of what was remembered before."""
        block = self._block(attempt, step)
        # Nearly always it is the set of the step before, of which the JSON form is there.
        if exported != self._last[0]:
            self._last = exported, json.loads(plain_json(to_plain(exported)))
        # Compared in the JSON form: the sets of a block that was read back are lists.
        plain = self._last[1]
        sets, runs = block["sets"], block["runs"]
        number = sets.index(plain) if plain in sets else len(sets)
        if number == len(sets):
            sets.append(plain)
        if runs and runs[-1][1] == step - 1 and runs[-1][2] == number:  # the usual case: as the step before
            runs[-1][1] = step
        else:
            block["runs"] = _with(runs, step, number)
        self._changed[_key(attempt, step)] = block

    def store(self) -> None:
        """Put what changed on the disk: blocks are written once an outcome, not once a step."""
        for key, block in self._changed.items():
            self._disk.put(key, zlib.compress(plain_json(block)))
        self._changed.clear()

    def _block(self, attempt: int, step: int) -> Block:
        key = _key(attempt, step)
        if key in self._changed:
            return self._changed[key]
        data = self._disk.get(key)
        block: Block = {"sets": [], "runs": []} if data is None else json.loads(zlib.decompress(data))
        return block


def _with(runs: list[list[int]], step: int, number: int) -> list[list[int]]:
    """Return runs of steps, ascending, in which `step` has the set `number`."""
    # All others without `step`: of a run around it both sides are left, [0, 9] without 4 is [0, 3] and [5, 9].
    found = [[step, step, number]]
    for first, last, other in runs:
        beside = (first, min(last, step - 1)), (max(first, step + 1), last)
        found += [[low, high, other] for low, high in beside if low <= high]
    joined: list[list[int]] = []
    for run in sorted(found):
        if joined and joined[-1][1] == run[0] - 1 and joined[-1][2] == run[2]:
            joined[-1][1] = run[1]
        else:
            joined.append(run)
    return joined


def _key(attempt: int, step: int) -> str:
    return f"{PREFIX}names/{attempt}/{step // BLOCK}"
