"""Recording calls inside a captured CUDA graph: each replay's values are in the run, at the step it was launched in.

The call itself is made once, while the graph is captured, and records nothing then: it becomes part of the graph. The
background thread reads from time to time what the replays have written (`captured_ring`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import urandom
from typing import Any

from otel_ml._internal.device_tensor import Deferred, Weighted, weighted
from otel_ml._internal.devices.cuda_thread import be_on
from otel_ml._internal.devices.graph_ring_buffer import Cell, Ring, Row
from otel_ml._internal.devices.non_blocking_copy import Staged
from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.buffer import RECORDS, STRIDE
from otel_ml._internal.series.definition import Series
from otel_ml._internal.steps.axes import STEPS, current_step
from otel_ml._internal.steps.axis import Step

__all__ = ["CAPTURED", "Captured"]

_LOOK_S = 0.25
"""Seconds between two looks at a ring, which holds `Ring.ROWS` replays."""
_MAX_COLUMNS = 4096
"""32 MB of the device, in all graphs together."""
_MAX_HELD = 100_000
"""Rows of a call that wait for somebody to say their step; as many device values are kept at all."""
_MAX_STEPS = 1024
"""Intervals whose step is remembered; a ring has as many rows."""


_Where = slice | float | list[float]
"""Where in a row something is; or what it is, where the call had it on the host."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Values of a series in a row, and their weights."""

    series: Series
    values: _Where
    weights: _Where | None

    def recordable(self, row: list[float], step: Step) -> Any:
        """Return what a row records of the series."""
        values = _in(row, self.values)
        return values if self.weights is None else weighted(self.series, step, values, _in(row, self.weights))


def _in(row: list[float], where: _Where) -> list[float]:
    if isinstance(where, slice):
        return row[where]
    return where if isinstance(where, list) else [where]


@dataclass(slots=True)
class _Call:
    """One recording call in one captured graph."""

    ring: Ring
    columns: tuple[_Column, ...]
    held: list[Row]


class _Boundary(Deferred):
    """The end of an interval of the program, for every device: the step that it ends waits for what was launched."""

    __slots__ = ("_captured", "_token")

    def __init__(self, captured: Captured, token: int) -> None:
        self._captured = captured
        self._token = token

    def ready(self) -> bool:
        return self._captured.has_passed(self._token)

    def read(self) -> list[float]:
        return []


class Captured:
    """Owner of what captured graphs record. A graph may be replayed as long as the process lives, so it stays."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._kept: list[_Call] = []
        self.forget()

    def forget(self) -> None:
        """Know of no graph. Its memory is kept: it may be replayed; and a forked child must not free its parent's."""
        self._kept += self._calls
        self._calls = []
        self._cells: dict[Any, Cell] = {}
        self._streams: dict[Any, Any] = {}
        # Each replay writes the token of the interval it was launched in. Memory of the device is not cleared, so the
        # first token must be one that garbage does not hold.
        self._token = int.from_bytes(urandom(5), "little")  # what memory does not hold by chance
        self._steps: dict[int, Step] = {}
        self._looked = 0.0
        self._size = 0
        NOW.boundary = None

    @property
    def is_used(self) -> bool:
        """Whether a graph was captured with a recording call inside."""
        return bool(self._calls)

    def add(self, records: Sequence[Any]) -> list[Any]:
        """Make what is on a device part of the graph; return the records of values of the host, which have it once."""
        of_host: list[Any] = []
        by_device: dict[Any, list[tuple[Series, Any]]] = {}
        for at in range(0, len(records), STRIDE):
            series, _, item, _ = record = records[at : at + STRIDE]
            staged = next(iter(item.unlaunched()), None) if isinstance(item, Deferred) else None
            if staged is None:
                of_host += record
            else:
                by_device.setdefault(staged.tensor.device, []).append((series, item))
        for device, items in by_device.items():
            try:
                self._add_call(device, items)
            except Exception as error:  # noqa: BLE001 (no memory on the device: that is training's)
                reporter.drop(
                    "device_error",
                    f"Metric {items[0][0].definition.name!r:.120} is not recorded by a captured CUDA graph: "
                    f"{type(error).__name__}: {error}.",
                    len(items),
                )
        return of_host

    def _add_call(self, device: Any, items: Sequence[tuple[Series, Any]]) -> None:
        torch = sys.modules["torch"]
        if torch.cuda.get_allocator_backend() != "native":
            # Of cudaMallocAsync what a capture allocates is there from a replay on, and another with the next one.
            raise RuntimeError("what a graph writes to stays only with torch's own allocator, backend:native")
        tensors: list[Any] = []
        columns = tuple(_column(series, item, tensors) for series, item in items)
        size = sum(tensor.numel() for tensor in tensors)
        # Of all graphs so far, as their memory stays for as long as the process.
        if size + self._size > _MAX_COLUMNS:
            reporter.drop(
                "captured_full",
                f"More than {_MAX_COLUMNS:,} values are recorded inside captured CUDA graphs: those captured from now "
                "on are not recorded. Record fewer of them in the graph, or after its replay.",
                len(columns),
            )
            return
        with plain_torch_mode(torch):
            cell = self._cells.get(device)
            if cell is None:
                cell = self._cells[device] = Cell(device, self._token)
            ring = Ring(cell, size)
            ring.write(tensors)
        self._size += size
        self._calls.append(_Call(ring, columns, []))
        NOW.boundary = self.mark

    def mark(self) -> None:
        """Note on the caller's thread that the program goes on to another step, or waits for all it has recorded."""
        torch = sys.modules["torch"]
        try:
            if torch.cuda.is_current_stream_capturing():
                return
            ended = current_step()
            for cell in self._cells.values():
                cell.set(self._token + 1)
        except Exception as error:  # noqa: BLE001 (a device that was lost: training says so itself)
            self._give_up(error)
            return
        self._steps[self._token] = ended
        if len(self._steps) > _MAX_STEPS:
            del self._steps[next(iter(self._steps))]
        self._token += 1
        records = RECORDS
        # Of any series, as a boundary has no values: what counts is that the step's watermark waits until it is read.
        records += (self._calls[0].columns[0].series, ended, _Boundary(self, self._token), time.time_ns())

    def has_passed(self, token: int) -> bool:
        """Whether all is read that was launched before the interval `token` began."""
        # Not beyond the newest token: until it is set first, a cell has whatever the memory held.
        return all(call.ring.passed is not None and token <= call.ring.passed <= self._token for call in self._calls)

    def look(self) -> None:
        """Record what replays have written since; with the fold lock, on the background thread."""
        now = time.monotonic()
        is_due = now - self._looked >= _LOOK_S or not self.has_passed(self._token)
        try:
            for call in self._calls:
                # A copy is under way: until it is taken, the next one would overwrite it.
                if call.ring.is_looking:
                    self._take(call)
                if is_due and not call.ring.is_looking:
                    device = call.ring.cell.value.device
                    be_on(device.index)
                    with self._own_stream(device):
                        call.ring.look()
        except Exception as error:  # noqa: BLE001 (whatever a device raises)
            self._give_up(error)
        if is_due:
            self._looked = now

    @contextmanager
    def _own_stream(self, device: Any) -> Iterator[None]:
        cuda = sys.modules["torch"].cuda
        if device not in self._streams:
            self._streams[device] = cuda.Stream(device=device)
        with cuda.stream(self._streams[device]):
            yield

    def _take(self, call: _Call) -> None:
        taken = call.ring.take()
        if taken is None:
            return
        rows, lost = taken
        series = call.columns[0].series.definition.name
        if lost:
            reporter.dropped["captured_overrun"] += lost * len(call.columns)
            reporter.say(
                "captured-overrun",
                f"A captured CUDA graph was replayed more than {Ring.ROWS:,} times between two looks: what it "
                f"recorded of {series!r} and others then is not in the run.",
                kind="captured overrun",
            )
        held, call.held = [*call.held, *rows], []
        if (beyond := len(held) - _MAX_HELD) > 0:
            reporter.dropped["captured_overrun"] += beyond * len(call.columns)
            reporter.say(
                "captured-overrun",
                f"A captured CUDA graph was replayed more than {_MAX_HELD:,} times in one step: what it recorded of "
                f"{series!r} and others first is not in the run.",
                kind="captured overrun in a step",
            )
            del held[:beyond]
        now = time.time_ns()
        for row in held:
            step = self._step_of(row.token, call.ring.cell.born)
            if step is None:
                call.held.append(row)
            # Of a run that is over nothing is recorded; with several, the fold finds out whose it is.
            elif NOW.several or step.generation == STEPS.generation:
                for column in call.columns:
                    RECORDS.extend((column.series, step, column.recordable(row.values, step), now))

    def _step_of(self, token: int, born: int) -> Step | None:
        """Return the step of an interval, None while only the program's own context knows it."""
        # Read first: where the program goes on to another step meanwhile, `_token` is another one when it is compared
        # below.
        now = NOW.step
        if not born < token <= self._token:  # before the first boundary: what the memory held
            token = born
        return now if token == self._token else self._steps.get(token, now)

    def _give_up(self, error: Exception) -> None:
        lost = sum(len(call.columns) for call in self._calls)
        self.forget()
        reporter.dropped["device_error"] += lost
        reporter.say(
            "device-error",
            f"What captured CUDA graphs record is no longer read: {type(error).__name__}: {error}.",
        )


def _column(series: Series, item: Any, tensors: list[Any]) -> _Column:
    values, weights = item.sides if isinstance(item, Weighted) else (item, None)
    return _Column(series, _placed(values, tensors), None if weights is None else _placed(weights, tensors))


def _placed(part: float | list[float] | Deferred, tensors: list[Any]) -> _Where:
    if not isinstance(part, Deferred):
        return part
    if not isinstance(part, Staged):
        raise TypeError(f"{type(part).__name__} together with a value on a device that captures")
    begin = sum(tensor.numel() for tensor in tensors)
    tensors.append(part.tensor)
    return slice(begin, begin + part.size)


CAPTURED = Captured()
