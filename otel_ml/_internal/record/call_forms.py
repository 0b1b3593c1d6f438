"""What a call of `log()` or `record()` means that is written as other loggers have it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.meant_name import meant_names
from otel_ml._internal.record.values import BeingTracedError, UnrecordableError, record_value
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml._internal.series.definition import bad_name
from otel_ml._internal.signature import MISSING

__all__ = ["NO_VALUES", "OPTIONS", "Meant", "how_many", "items_of", "meant_by_log", "meant_by_record"]

NO_VALUES: Mapping[str, Any] = {}
"""What `log()` has where nothing is given."""


_OF_VALUES = {"values", "data", "metrics"}
"""How the argument is called that has all names and values: by us, by W&B, by MLflow and Lightning."""

OPTIONS = ("step", "axis", "prefix", "reduce", "within", "over", "weight", "attributes")
"""What stands beside the values of a call, by name."""


class Meant(NamedTuple):
    """What is recorded, at which step, on which axis; without values it was counted and said."""

    values: Mapping[str, Any]
    step: Any = None
    axis: Any = None


def meant_by_log(values: Any, step: Any, axis: Any, named: dict[str, Any]) -> Meant:
    """Return what `log()` means whose first argument is not a mapping, or that has names which are not options.

    `log("loss", 1.0)`, and `log("loss", 1.0, 3)` as TensorBoard has it, are one value; `log(loss=1.0)` and
    `log([("loss", 1.0)])` are several.
    """
    if values is NO_VALUES and named:
        # `log(metrics={…})` has all values under one name; `log(metrics=0.5)` has a metric that is called so.
        [(name, given), *more] = named.items()
        return Meant(given if not more and name in _OF_VALUES and isinstance(given, Mapping) else named, step, axis)
    _say_unknown("log", named)
    if isinstance(values, Mapping):
        return Meant(values, step, axis)
    if isinstance(values, str):
        return _one(values, step, axis)
    pairs = _pairs(values)
    found = dict(pairs)
    # Of two values under one name nobody can tell which is meant.
    if pairs and len(found) == len(pairs):
        return Meant(found, step, axis)
    _refuse(safe_repr(values), len(pairs) or 1, type(values).__name__)
    return Meant(NO_VALUES)


def items_of(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values of a mapping of the program's; none (counted, said) where it raises in the middle."""
    try:
        return [*values.items()]
    except Exception as error:  # noqa: BLE001 (of a class of the program's)
        _refuse(f"{safe_repr(values)}, which {text_of(error)}", how_many(values), type(values).__name__)
        return []


def how_many(values: Any) -> int:
    """Return how many values a call has that has failed; 1 where nobody can tell."""
    try:
        return max(1, len(values))
    except Exception:  # noqa: BLE001 (a mapping of the program's)
        return 1


def _one(name: str, value: Any, axis: Any) -> Meant:
    """Return the value that stands in the place of a step, at the step that stands in the place of an axis."""
    if value is None:
        what = safe_repr(name)
        _refuse(f"{what} without a value. Call log({{{what}: …}}) or record({what}, …)", 1, what)
        return Meant(NO_VALUES)
    # `log("loss", 0.5, 10)`: what is third by position is the step, as TensorBoard has it; a text is an axis.
    return Meant({name: value}, None, axis) if axis is None or isinstance(axis, str) else Meant({name: value}, axis)


def _pairs(values: Any) -> list[tuple[str, Any]]:
    """Return names and values that stand in pairs; none where one is something else."""
    if type(values) not in {list, tuple}:
        return []
    pairs = [(pair[0], pair[1]) for pair in values if type(pair) in {list, tuple} and len(pair) == 2]
    return pairs if len(pairs) == len(values) and all(isinstance(name, str) for name, _ in pairs) else []


def meant_by_record(name: Any, value: Any, step: Any, named: dict[str, Any]) -> Meant:
    """Return what `record()` means that has no name or no value, or names which are not options.

    `record({"loss": 1.0})` and `record(loss=1.0)` are values by name.
    """
    name = named.pop("name", MISSING) if name is MISSING else name
    value = named.pop("value", MISSING) if value is MISSING else value
    if name is MISSING and value is MISSING and named:
        return Meant(named, step)
    _say_unknown("record", named)
    # `record({"loss": 1.0}, 3)`: what stands in the place of the value is the step.
    if isinstance(name, Mapping):
        return Meant(name, step if value is MISSING else value)
    if name is MISSING or value is MISSING:
        _say_missing(name, value)
    elif isinstance(name, str):
        return Meant({name: value}, step)
    else:
        reporter.drop("bad_name", bad_name(name))
    return Meant(NO_VALUES)


def _say_missing(name: Any, value: Any) -> None:
    if value is MISSING:
        got = "nothing" if name is MISSING else f"{safe_repr(name)} without a value"
    else:
        got = f"{safe_repr(value)} without a name"
    call = f"record({safe_repr('loss' if name is MISSING else name)}, …)"
    reporter.drop(
        "bad_value", f"record(): expected a name and a value, got {got}. Call {call}.", kind=f"record() {got}"
    )


def _say_unknown(call: str, named: Mapping[str, Any]) -> None:
    """Say what stands beside the values, and count what of it is a number: these are values that are not recorded."""
    if not named:
        return
    names = ", ".join(name[:_SHOWN] for name in islice(named, 5))
    meant = meant_names(islice(named, 5), OPTIONS)
    said = f"{call}(): unknown argument {names}.{meant} It is not used, and the values are recorded."
    numbers = [name for name, value in named.items() if not isinstance(value, bool) and _is_number(value)]
    if not numbers:
        reporter.wrong("unknown-argument", said)
        return
    among = f"log({{…, {safe_repr(numbers[0])}: {safe_repr(named[numbers[0]])}}})"
    reporter.dropped["bad_value"] += len(numbers)
    reporter.wrong(
        "unknown-argument", f"{said} If it is a value, call {among}.", kind=f"{call}() beside values: {names}"
    )


_SHOWN = 80


def _is_number(value: object) -> bool:
    if isinstance(value, (int, float)):
        return True
    try:
        record_value(value)
    except (UnrecordableError, BeingTracedError):
        return False
    return True


def _refuse(got: str, count: int, kind: str) -> None:
    reporter.drop(
        "bad_value",
        f"log(): expected names and values such as {{'loss': 0.5}}, got {got}.",
        count,
        kind=f"log() {kind}",
    )
