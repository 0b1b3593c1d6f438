"""From an accepted call to the buffer: conversion, weights, the bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, compress
from time import time_ns
from typing import Any

from otel_ml._internal.device_tensor import BeingCapturedError, Deferred
from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.devices.non_blocking_copy import STAGING, Staged, StagedRow, launch, launch_plainly
from otel_ml._internal.devices.stream_buffer import BacklogError
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.native import native
from otel_ml._internal.record.fold import BACKLOG
from otel_ml._internal.record.relieve import relieve
from otel_ml._internal.record.values import (
    READERS,
    Recordable,
    UnrecordableError,
    plain_numbers,
    record_value,
    weighted_value,
    which_are_cuda_scalars,
)
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.buffer import LIMIT, RECORDS, STRIDE
from otel_ml._internal.series.definition import Series
from otel_ml._internal.series.row import Row
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.axis import Step

__all__ = ["add_record", "append", "append_cuda_row", "append_deferred", "append_row"]


def append(records: Iterable[Any]) -> None:
    """Append whole records to the buffer."""
    buffer = RECORDS
    buffer += records
    if len(buffer) > LIMIT:
        relieve()


def append_row(
    row: Row, step: Step, values: dict[str, object], time_ns: int, others: Iterable[tuple[Series, Recordable]] = ()
) -> bool:
    """Append a value of each name of `row`, in their order; or nothing, where one is more than a number.

    With `others` there is a record of each of them, too, in the same append.
    """
    numbers: Collection[object] = values.values()
    # Exact types: a subclass of float may have a `__float__` of its own, and is converted.
    if [*map(type, numbers)] != row.floats:
        converted = plain_numbers(numbers)
        if converted is None:
            return False
        numbers = converted
    buffer = RECORDS
    if others:
        numbers = [*numbers, *chain.from_iterable([(series, step, item, time_ns) for series, item in others])]
    buffer += (row, step, None, time_ns, *numbers)
    if len(buffer) > LIMIT:
        relieve()
    return True


_NUMBERS = frozenset({float, int, bool})


def append_cuda_row(row: Row, step: Step, values: Mapping[str, object], time_ns: int) -> bool:
    """Append a value of each name of `row`, in their order: numbers, and scalars on one CUDA device; or nothing."""
    # The first value that is not a plain number tells most calls apart before anything is made: a text, an array, a
    # tensor in CPU memory.
    for value in values.values():
        if type(value) not in _NUMBERS:
            if not getattr(value, "is_cuda", False):
                return False
            break
    given = [*values.values()]
    are_tensors = which_are_cuda_scalars(given)
    if are_tensors is None:
        return False
    of_tensors, of_numbers = row.split(are_tensors)
    tensors = [*compress(given, are_tensors)]
    numbers = plain_numbers([item for item, is_tensor in zip(given, are_tensors, strict=True) if not is_tensor])
    if numbers is None:
        return False
    try:
        batch, at = STAGING.put(tensors, len(tensors))
    except Exception:  # noqa: BLE001 (which one it is, and why, is found out one by one)
        return False
    # Once it is read a `StagedRow` becomes a row. Until then it is one deferred value, under the name of its first
    # series.
    records = (of_tensors.series[0], step, StagedRow(of_tensors, batch, at), time_ns)
    append((of_numbers, step, None, time_ns, *numbers, *records) if numbers else records)
    return True


def add_record(records: list[Any], series: Series, step: Step, value: object, weight: object, time_ns: int) -> bool:
    """Add the record of any value to `records`, or say and count why it is none.

    Returns:
        Whether it comes later, so that `append_deferred()` has to append the records.
    """
    try:
        item = record_value(value) if weight is None else _weighted(series, value, weight)
    except UnrecordableError as error:
        _refuse(series, value, error)
        return False
    records += (series, step, item, time_ns)
    # Exact types first: `isinstance()` with an ABC runs code of Python.
    kind = type(item)
    return kind is not float and kind is not tuple and kind is not list and isinstance(item, Deferred)


def _refuse(series: Series, value: object, error: UnrecordableError) -> None:
    expected = "a number, a 0-d array or tensor, or a 1-d sequence of numbers (and a weight from 0 on)"
    name = series.definition.name
    kind = f"{error.reason} of {name}: {type(value).__name__}"
    reporter.drop(error.reason, f"Metric {name!r:.120}: expected {expected}, got {error}.", kind=kind)


def append_deferred(records: list[Any]) -> None:
    """Append records of which some have values on a device: those are copied there now, all of the call together."""
    try:
        if len(records) == STRIDE and type(records[2]) is Staged:  # which is launched in half the time
            records[2].launch_alone()
        else:
            # The third item of each record is its value. No row is among these records, so each has four.
            launch(_unlaunched(records[2::STRIDE]))
    except BeingCapturedError:
        # What is on a device becomes part of the graph; values of the host that the call had beside are recorded now,
        # once.
        records = CAPTURED.add(records)
    except Exception:  # noqa: BLE001 (which one it is, and why, is found out one by one)
        records = [item for at in range(0, len(records), STRIDE) for item in _launched(*records[at : at + STRIDE])]
    append(records)


def _unlaunched(items: Iterable[Any]) -> list[Staged]:
    return [staged for item in items if isinstance(item, Deferred) for staged in item.unlaunched()]


def _launched(series: Series, step: Step, item: Any, time_ns: int) -> Iterable[Any]:
    """Return a record whose values are copied now, or nothing, counted and said."""
    staged = _unlaunched((item,))
    try:
        launch_plainly(staged)
    # torch does not copy such a tensor; whatever else is raised is the device's.
    except (TypeError, ValueError) as error:
        _refuse(series, item, UnrecordableError("bad_value", f"a tensor on a device, which {error}"))
    except BacklogError:
        reporter.dropped["device_backlog"] += item.size
        reporter.say("device-backlog", BACKLOG)
    except Exception as error:  # noqa: BLE001 (whatever a device raises costs its values, not training)
        reporter.dropped["device_error"] += item.size
        reporter.say("device-error", f"Metric {series.definition.name!r}: the device did not give its value: {error}.")
    else:
        return series, step, item, time_ns
    return ()


def _weighted(series: Series, value: object, weight: object) -> Recordable:
    reduction = series.definition.reduction
    if reduction is not None and reduction.within is not None:
        raise UnrecordableError("bad_weight", f"a weight together with within={reduction.within!r}")
    item = weighted_value(value, weight)
    if reduction is not None and not reduction.takes_weights:
        name, reduce = series.definition.name, ",".join(reduction.across)
        reporter.wrong(
            "unused-weight",
            f"Metric {name!r:.120}: a weight has no part in reduce={reduce!r}. Expected 'mean', 'geomean', 'rank', or "
            "'std' alone. The value is recorded as if it had none: leave weight= out, or multiply by it for a weighted "
            "sum.",
            kind=f"weight of {name}",
        )
    return item


if native is not None:
    native.bind_buffer(RECORDS, NOW, current_step, relieve, time_ns, reporter.failed, LIMIT, READERS)
