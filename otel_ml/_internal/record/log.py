"""`log()` and `record()`: values by name."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, overload

from otel_ml._internal.error_reporting import reporter, say_unused
from otel_ml._internal.native import native
from otel_ml._internal.record.append import add_record, append, append_cuda_row, append_deferred, append_row
from otel_ml._internal.record.call_forms import NO_VALUES, Meant, how_many, items_of, meant_by_log, meant_by_record
from otel_ml._internal.record.trace_into_graph import trace_log
from otel_ml._internal.record.values import BeingTracedError
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import exact_text
from otel_ml._internal.series.buffer import STRIDE
from otel_ml._internal.series.definition import DEFINITIONS, Series, bad_prefix, identity
from otel_ml._internal.series.reduction_arguments import Reduce, are_attributes, reduction_from
from otel_ml._internal.series.row import FEWEST, WIDE, Row, Table
from otel_ml._internal.signature import MISSING, public, publish
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.step import step_for

__all__ = ["forget_names", "log", "record"]

_PLAIN = Table()
"""Of names recorded without any option but `step=` and `axis=`: the usual case."""

_TABLES: dict[tuple[object, ...], Table] = {}
"""Of each combination of options; a cache, emptied where attributes never repeat."""

_MAX_TABLES = 10_000


@overload
def log(
    values: Mapping[str, Any],
    step: int | None = None,
    *,
    axis: str | None = None,
    prefix: str | None = None,
    reduce: Reduce = None,
    within: str | None = None,
    over: str | None = None,
    weight: Any = None,
    attributes: Mapping[str, object] | None = None,
    commit: bool | None = None,
) -> None: ...
@overload
def log(name: str, value: Any, step: int | None = None, /, **options: Any) -> None: ...
@overload
def log(*, step: int | None = None, axis: str | None = None, **values: Any) -> None: ...
@public  # type: ignore[misc] # what is positional-only may be a keyword all the same: it is among `named`
@publish("values", "step")
def log(
    values: Any = NO_VALUES,
    at: Any = None,
    where: Any = None,
    /,
    prefix: str | None = None,
    reduce: Reduce = None,
    within: str | None = None,
    over: str | None = None,
    weight: Any = None,
    attributes: Mapping[str, object] | None = None,
    commit: bool | None = None,
    step: int | None = None,
    axis: str | None = None,
    *more: Any,
    **named: Any,
) -> None:
    """Record values at the current step, or at `step` of `axis`.

    A value is a number, a 0-d array or tensor, or a 1-d sequence of which each element is one record. Values in
    CPU memory are copied now; a device tensor is copied on its stream and read later: the call never waits.
    Nothing is raised: what cannot be recorded is counted and reported once.

    As other loggers have it, `log("loss", 0.5)`, `log("loss", 0.5, step)` and `log(loss=0.5)` work, too.

    Args:
        values: name → value.
        at: the step, by position.
        where: the axis, by position.
        step: the step to record at; the current one stays where `set_step()` or `step()` is used.
        axis: the axis of `step`, or the one whose current step is meant.
        prefix: `prefix="val"` records `loss` as `val/loss`.
        reduce: how values become one across ranks (else as defined, else the mean); a tuple gives several.
        within: how this rank's records of a step combine first.
        over: topology dimension of which one rank per coordinate counts.
        weight: of each value in the mean; from 0 on.
        attributes: what tells series of the same name apart.
        commit: accepted as W&B has it, and not needed: all values of a step are one row, whichever calls they came in.
        more: not used: said, as any other mistake.
        named: values by name, where `values` is left out; beside them said and counted, as any other mistake.
    """
    if NOW.off:
        return
    try:
        if named or more or (type(values) is not dict and not isinstance(values, Mapping)):
            values, at, where = _meant(values, at, where, more, named)
            if not values:
                return
        if (
            reduce is None
            and step is None
            and at is None
            and weight is None
            and prefix is None
            and axis is None
            and where is None
            and attributes is None
            and within is None
            and over is None
        ):
            target, table, options = NOW.step or current_step(), _PLAIN, None
        else:
            # Both by position and by name are reported, as what is neither a step nor an axis.
            step = step if at is None else at if step is None else (at, step)  # type: ignore[assignment]
            axis = axis if where is None else where if axis is None else (where, axis)  # type: ignore[assignment]
            given = step_for(step, axis, "log()", len(values))
            if given is None or not _are_usable(prefix, attributes, len(values)):
                return
            target = given if prefix is None else _as_prefixed(given)
            options = (_as_text(prefix), reduce, within, over, attributes)
            table = _table(options)
        now = time_ns()
        if type(values) is dict:
            values = values.copy()  # another thread may write to the caller's
            # The names in their order are the key: in another order they are another row.
            row = table.rows.get((*values,)) if len(values) >= WIDE and weight is None else None
            # Each of the two appends the whole call or nothing: what neither takes is recorded value by value below.
            if row is not None and (append_row(row, target, values, now) or append_cuda_row(row, target, values, now)):
                return
        _record_each(values, target, weight, now, table, options)
    # It is raised while values are read, before the first of them is appended: nothing is recorded twice.
    except BeingTracedError:
        trace_log(values, step, axis, prefix, reduce, within, over, weight, attributes)
    except Exception as error:  # noqa: BLE001 - the boundary to the user's program
        reporter.failed("log()", error, how_many(values))


def _meant(values: Any, at: Any, where: Any, more: tuple[object, ...], named: dict[str, Any]) -> Meant:
    if more:
        say_unused(log, more, ())
    return meant_by_log(values, at, where, named)


def _are_usable(prefix: object, attributes: object, values: int) -> bool:
    """Whether names can have this prefix, and series these attributes; else the values are counted, and it is said."""
    if prefix is not None and not isinstance(prefix, (str, int)):
        reporter.drop("bad_name", bad_prefix(prefix), values, kind="prefix of log()")
        return False
    return are_attributes(attributes, "log()", values)


@overload
def record(
    name: str,
    value: Any,
    step: int | None = None,
    *,
    axis: str | None = None,
    prefix: str | None = None,
    reduce: Reduce = None,
    within: str | None = None,
    over: str | None = None,
    weight: Any = None,
    attributes: Mapping[str, object] | None = None,
) -> None: ...
@overload
def record(values: Mapping[str, Any], step: int | None = None, /, **options: Any) -> None: ...
@public  # type: ignore[misc] # the same
@publish("name", "value", "step", required=2)
def record(
    name: Any = MISSING,
    value: Any = MISSING,
    at: Any = None,
    /,
    axis: str | None = None,
    prefix: str | None = None,
    reduce: Reduce = None,
    within: str | None = None,
    over: str | None = None,
    weight: Any = None,
    attributes: Mapping[str, object] | None = None,
    step: int | None = None,
    *more: Any,
    **named: Any,
) -> None:
    """Record one value; the arguments are those of `log()`."""
    if NOW.off:
        return
    if more:
        say_unused(record, more, ())
    if at is not None:
        step = at if step is None else (at, step)  # type: ignore[assignment] # which is said, as it is by log()
    if named or value is MISSING or type(name) is not str:
        values, step, _ = meant_by_record(name, value, step, named)
        if not values:
            return
    else:
        values = {name: value}
    # By position, which costs half of what names do; compiled `log()` knows the call.
    log(values, step, axis, prefix, reduce, within, over, weight, attributes)  # type: ignore[call-overload,misc]


_Options = tuple[Any, Any, Any, Any, Any]


def _as_text(prefix: object) -> object:
    """Return a prefix as a text where it is a number: 0 is a name as 1 is, and not none, as an empty text is."""
    return str(prefix) if type(prefix) is int else prefix


def _as_prefixed(step: Step) -> Step:
    """Return the step of values with a prefix of their own: they say what they are of, in a stage too."""
    is_staged = step.base is not None and step.stage is not None and step.stage.name is not None
    return step.base if is_staged and step.base is not None else step


def _record_each(
    values: Mapping[str, Any], step: Step, weight: Any, time_ns: int, table: Table, options: _Options | None
) -> None:
    records: list[Any] = []
    some_come_later = False
    # A mapping of the program's is gone through once, before anything is recorded, for it may fail in the middle: then
    # all of it is lost, and counted.
    items = values.items() if type(values) is dict else items_of(values)
    for name, value in items:
        series = table.series.get(name) or _series(table, name, options)
        if series is None:
            continue
        if type(value) is float and weight is None:
            records += (series, step, value, time_ns)
        else:
            some_come_later |= add_record(records, series, step, value, weight, time_ns)
    if some_come_later:
        append_deferred(records)
    else:
        append(records)
    # A row is of names that each gave one record: where one was refused the others stay single.
    fewest = FEWEST if table is _PLAIN else WIDE
    is_whole = weight is None and len(records) == STRIDE * len(items) >= STRIDE * fewest
    if is_whole and type(values) is dict and (names := (*values,)) not in table.rows:
        table.add_row(names, records[::STRIDE])


def _table(options: _Options) -> Table:
    prefix, reduce, within, over, attributes = options
    if prefix is None and reduce is None and within is None and over is None and attributes is None:
        return _PLAIN  # `log(values, step=7)`
    try:
        several = reduce if reduce is None or isinstance(reduce, str) else tuple(reduce)
        key = (prefix, several, within, over, None if attributes is None else tuple(attributes.items()))
        table = _TABLES.get(key)
    except Exception:  # noqa: BLE001 (a list, a class of the program's)
        # Something that cannot be a key: what it means, or that it means nothing, is found out without the cache.
        return Table()
    if table is None:
        if len(_TABLES) >= _MAX_TABLES:
            _TABLES.clear()
        table = _TABLES[key] = Table()
    return table


def _series(table: Table, name: object, options: _Options | None) -> Series | None:
    prefix, reduce, within, over, attributes = options or (None, None, None, None, None)
    above = exact_text(prefix).rstrip("/") if prefix else ""
    full = f"{above}/{exact_text(name)}" if above and isinstance(name, str) and name else name
    reduction = reduction_from(reduce, within, over, name)
    series = DEFINITIONS.series(full, identity(attributes) if attributes else (), reduction)
    # A name that was refused is not kept, so that each further call with it is counted, too.
    if series is not None:
        table.series[name] = series  # type: ignore[index] # a name that has a series is a str
    return series


def forget_names() -> None:
    """Look names up again."""
    # Emptied and not replaced: compiled `log()` has `_PLAIN.rows` itself.
    _PLAIN.series.clear()
    _PLAIN.rows.clear()
    if native is not None:
        native.forget_rows()
    _TABLES.clear()


def _forget_names_of(_: str) -> None:
    """Look all names up again: that more is known of one happens once a metric."""
    forget_names()


DEFINITIONS.outdated.append(_forget_names_of)

if native is not None:
    log = native.log_function(log, _PLAIN.rows, Row, FEWEST)
