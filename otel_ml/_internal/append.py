"""From an accepted call to the buffer: conversion, weights, the bound."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from time import time_ns
from typing import Any

from otel_ml._internal.axes import NOW, Step, current_step
from otel_ml._internal.buffer import LIMIT, RECORDS
from otel_ml._internal.definition import Series
from otel_ml._internal.fold import relieve
from otel_ml._internal.guard import guard
from otel_ml._internal.native import native
from otel_ml._internal.row import Row
from otel_ml._internal.values import Recordable, UnrecordableError, plain_numbers, record_value, weighted_value

__all__ = ["add_record", "append", "append_row"]


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
    numbers: Iterable[object] = values.values()
    if [*map(type, values.values())] != row.floats:
        converted = plain_numbers(values.values())
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


def add_record(records: list[Any], series: Series, step: Step, value: object, weight: object, time_ns: int) -> None:
    """Add the record of any value to `records`, or say and count why it is none."""
    try:
        item = record_value(value) if weight is None else _weighted(series, value, weight)
        records += (series, step, item, time_ns)
    except UnrecordableError as error:
        expected = "a number, a 0-d array or tensor, or a 1-d sequence of numbers (and a weight from 0 on)"
        name = series.definition.name
        kind = f"{error.reason} of {name}: {type(value).__name__}"
        guard.drop(error.reason, f"Metric {name!r:.120}: expected {expected}, got {error}.", kind=kind)


def _weighted(series: Series, value: object, weight: object) -> Recordable:
    reduction = series.definition.reduction
    if reduction is not None and reduction.within is not None:
        raise UnrecordableError("bad_weight", f"a weight together with within={reduction.within!r}")
    return weighted_value(value, weight)


if native is not None:
    native.bind_buffer(RECORDS, NOW, current_step, relieve, time_ns, guard.failed, LIMIT)
