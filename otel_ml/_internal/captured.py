"""Recording calls inside a captured CUDA graph: each replay's values are in the run, at the step it was launched in.

The call itself is made once, while the graph is captured, and records nothing then: it becomes part of the graph. The
background thread reads from time to time what the replays have written (`captured_ring`).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from otel_ml._internal.append import add_record, append
from otel_ml._internal.axes import NOW, STEPS, Step, current_step
from otel_ml._internal.buffer import RECORDS
from otel_ml._internal.captured_ring import Cell, Ring, Row
from otel_ml._internal.definition import Series
from otel_ml._internal.device import BeingCapturedError, Deferred
from otel_ml._internal.guard import guard
from otel_ml._internal.values import record_value

__all__ = ["CAPTURED", "Captured"]

_LOOK_S = 0.25
_MAX_COLUMNS = 4096
"""32 MB of the device, in all graphs together."""
_MAX_HELD = 100_000
_MAX_STEPS = 1024


@dataclass(frozen=True, slots=True)
class _Column:
    """Where in a row the values of a series are, and its weights: numbers where the call had them on the host."""

    series: Series
    values: slice | float | list[float]
    weights: slice | float | list[float] | None

    def recordable(self, row: list[float]) -> Any:
        values = _in(row, self.values)
        if self.weights is None:
            return values
        weights = _in(row, self.weights)
        if len(weights) == 1:
            weights = weights * len(values)
        pairs = [pair for pair in zip(values, weights, strict=False) if pair[1] >= 0]
        guard.dropped["bad_weight"] += len(values) - len(pairs)
        return pairs


def _in(row: list[float], where: slice | float | list[float]) -> list[float]:
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
        self._token = random.getrandbits(40)
        self._steps: dict[int, Step] = {}
        self._looked = 0.0
        NOW.boundary = None

    @property
    def is_used(self) -> bool:
        """Whether a graph was captured with a recording call inside."""
        return bool(self._calls)

    def add(self, values: Sequence[tuple[Series, Any]], weight: Any, step: Step, time_ns: int) -> None:
        """Make the values that are on a device part of the graph; those of the host are recorded once, now."""
        records: list[Any] = []
        columns: dict[Any, list[tuple[Series, Any, Any]]] = {}
        for series, value in values:
            parts = _parts(value, weight)
            if parts is None:
                _add_of_host(records, series, step, value, weight, time_ns)
            else:
                device = next(part.device for part in parts if _is_captured(part))
                columns.setdefault(device, []).append((series, *parts))
        append(records)
        for device, wanted in columns.items():
            try:
                self._add_call(device, wanted)
            except Exception as error:  # noqa: BLE001 (no memory on the device: that is training's)
                guard.drop(
                    "device_error",
                    f"Metric {wanted[0][0].definition.name!r:.120} is not recorded by a captured CUDA graph: "
                    f"{type(error).__name__}: {error}.",
                    len(wanted),
                )

    def _add_call(self, device: Any, wanted: Sequence[tuple[Series, Any, Any]]) -> None:
        torch = sys.modules["torch"]
        tensors: list[Any] = []
        columns = tuple(
            _Column(series, _placed(value, tensors), None if weight is None else _placed(weight, tensors))
            for series, value, weight in wanted
        )
        size = sum(tensor.numel() for tensor in tensors)
        if size + sum(len(call.columns) for call in self._calls) > _MAX_COLUMNS:
            guard.drop(
                "captured_full",
                f"More than {_MAX_COLUMNS:,} values are recorded inside captured CUDA graphs: those captured from now "
                "on are not recorded. Record fewer of them in the graph, or after its replay.",
                len(columns),
            )
            return
        with torch.inference_mode(False), torch.no_grad():
            cell = self._cells.get(device)
            if cell is None:
                cell = self._cells[device] = Cell(device, self._token)
            ring = Ring(cell, size)
            ring.write(tensors)
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
        append((self._calls[0].columns[0].series, ended, _Boundary(self, self._token), time.time_ns()))

    def has_passed(self, token: int) -> bool:
        """Whether all is read that was launched before the interval `token` began."""
        return all(call.ring.passed is not None and token <= call.ring.passed <= self._token for call in self._calls)

    def look(self) -> None:
        """Record what replays have written since; with the fold lock, on the background thread."""
        now = time.monotonic()
        is_due = now - self._looked >= _LOOK_S or not self.has_passed(self._token)
        try:
            for call in self._calls:
                if call.ring.is_looking:
                    self._take(call)
                if is_due and not call.ring.is_looking:
                    with self._own_stream(call.ring.cell.value.device):
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
        if lost:
            guard.dropped["captured_overrun"] += lost * len(call.columns)
            guard.say(
                "captured-overrun",
                f"A captured CUDA graph was replayed more than {Ring.ROWS:,} times between two looks: what it "
                f"recorded of {call.columns[0].series.definition.name!r} and others then is not in the run.",
                kind="captured overrun",
            )
        held, call.held = [*call.held, *rows][-_MAX_HELD:], []
        now = time.time_ns()
        for row in held:
            step = self._step_of(row.token, call.ring.cell.born)
            if step is None:
                call.held.append(row)
            elif NOW.several or step.generation == STEPS.generation:
                for column in call.columns:
                    RECORDS.extend((column.series, step, column.recordable(row.values), now))

    def _step_of(self, token: int, born: int) -> Step | None:
        """Return the step of an interval, None while only the program's own context knows it."""
        now = NOW.step
        if not born < token <= self._token:  # before the first boundary: what the memory held
            token = born
        return now if token == self._token else self._steps.get(token, now)

    def _give_up(self, error: Exception) -> None:
        lost = sum(len(call.columns) for call in self._calls)
        self.forget()
        guard.dropped["device_error"] += lost
        guard.say(
            "device-error",
            f"What captured CUDA graphs record is not read any more: {type(error).__name__}: {error}.",
        )


def _add_of_host(records: list[Any], series: Series, step: Step, value: Any, weight: Any, time_ns: int) -> None:
    try:
        add_record(records, series, step, value, weight, time_ns)
    except BeingCapturedError as error:  # a list of tensors that are on a device
        guard.drop("bad_value", f"Metric {series.definition.name!r:.120}: a list of values {error}.")


def _parts(value: Any, weight: Any) -> tuple[Any, Any] | None:
    """Return a value and its weight, of which one at least is on a device that captures; None for all else."""
    try:
        parts = _part(value), None if weight is None else _part(weight)
    except Exception:  # noqa: BLE001 (what is no value is said where it is recorded)
        return None
    return parts if any(map(_is_captured, parts)) else None


def _part(value: Any) -> Any:
    try:
        found = record_value(value)
    except BeingCapturedError as captured:
        if isinstance(value, (list, tuple)):
            raise
        return captured.tensor
    if isinstance(found, Deferred):
        raise TypeError("it is on another device, which is not captured")
    return found


def _is_captured(part: Any) -> bool:
    return part is not None and not isinstance(part, (float, list))


def _placed(part: Any, tensors: list[Any]) -> Any:
    if not _is_captured(part):
        return part
    begin = sum(tensor.numel() for tensor in tensors)
    tensors.append(part)
    return slice(begin, begin + part.numel())


CAPTURED = Captured()
