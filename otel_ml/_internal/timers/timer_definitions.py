"""Which timers there are: a name's series, level, span, device and kind. The first definition of a name holds."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import exact_text, safe_repr
from otel_ml._internal.series.definition import DEFINITIONS, Series
from otel_ml._internal.series.reduction_arguments import Reduce, reduction_from
from otel_ml.wire.reduction import Reduction

__all__ = ["TIMERS", "TimerDefinition", "checked_level", "timer_definition"]

_KINDS = ("work", "wait")

_SLOWEST = Reduction(("max",), "sum", unsaid=("across", "within"))
"""What a timer is by default: the slowest rank's total in the step."""


class TimerDefinition:
    """What is measured under one name in this process; the first definition of a name holds.

    Attributes:
        level: it measures while `OTEL_ML_TIMER_LEVEL` is not below it.
        span: whether a span is kept, too.
        device: `cuda` where events on the device's stream measure, else None.
    """

    __slots__ = ("device", "level", "name", "series", "span")

    def __init__(self, name: str, series: Series, level: int, *, span: bool, device: str | None) -> None:
        self.name: str = name
        self.series: Series = series
        self.level: int = level
        self.span: bool = span
        self.device: str | None = device


TIMERS: dict[object, TimerDefinition] = {}
"""By name; where a call has more options than a level, by all of them."""


def timer_definition(
    name: str,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    *,
    span: bool = True,
    device: str | None = None,
    kind: str | None = None,
) -> TimerDefinition | None:
    """Return the timer of this name, made at first sight; None (said) where the name is not one."""
    try:
        key = name if _is_usual(reduce, within, span, device, kind) else (name, reduce, within, span, device, kind)
        definition = TIMERS.get(key)
    except Exception:  # noqa: BLE001 (a list of reductions, a class of the program's: no key)
        definition = key = None
    if definition is None:
        definition = _new_definition(name, level, reduce, within, span=span, device=device)
        if definition is not None and kind is not None:
            _declare(definition.name, kind)
        if definition is None or key is None:
            return definition
        TIMERS[key] = definition
    if definition.level == level:
        return definition
    # A level is the call's: of one name some calls may be above the level, and all record into one series.
    return TIMERS.setdefault(
        (key, level),
        TimerDefinition(definition.name, definition.series, level, span=definition.span, device=definition.device),
    )


def _is_usual(reduce: Reduce, within: str | None, span: bool, device: str | None, kind: str | None) -> bool:
    return reduce is None and within is None and span is True and device is None and kind is None


def _declare(name: str, kind: str) -> None:
    """Know whether a timer measures work or waiting; who compares ranks is told once."""
    if not isinstance(kind, str) or kind not in _KINDS:
        reporter.wrong(
            "bad-timer",
            f"Timer {name!r:.80}: expected kind 'work', 'wait' or None, got {safe_repr(kind)}. "
            "Its kind is told from its name.",
        )
    elif (known := DEFINITIONS.timers.setdefault(name, kind)) != kind:
        reporter.wrong(
            "bad-timer", f"Timer {name!r:.80} is of kind {known!r} in this process, so kind={kind!r} is not used."
        )


def _new_definition(
    name: str, level: int, reduce: Reduce, within: str | None, *, span: bool, device: str | None
) -> TimerDefinition | None:
    reduction = reduction_from(reduce, within, None, name)
    name = exact_text(name) if isinstance(name, str) else name
    # What is not a name stays as it is, for `series()` to refuse it.
    full = f"time/{name}" if isinstance(name, str) and name else name
    series = DEFINITIONS.series(full, reduction=reduction, unit="s", default=_SLOWEST)
    if series is None:
        return None
    if not isinstance(span, int):
        reporter.wrong(
            "bad-timer",
            f"Timer {safe_repr(name)}: expected span to be True or False, got {safe_repr(span)}. It has spans.",
        )
        span = True
    if device is not None and (not isinstance(device, str) or device != "cuda"):
        reporter.wrong(
            "bad-timer",
            f"Timer {name!r:.80}: expected device 'cuda' or None, got {safe_repr(device)}. It is timed on the CPU.",
        )
        device = None
    return TimerDefinition(name, series, level, span=span, device=device)


def _look_up(metric: str) -> None:
    """Use what is known of a timer by now."""
    for definition in [definition for definition in list(TIMERS.values()) if f"time/{definition.name}" == metric]:
        definition.series = DEFINITIONS.series(metric) or definition.series


DEFINITIONS.outdated.append(_look_up)


def checked_level(level: Any, name: object) -> int:
    """Return the level of a timer; 1 (said) where it is none."""
    if isinstance(level, int):
        return level
    reporter.wrong(
        "bad-timer",
        f"Timer {safe_repr(name)}: expected a level that is a whole number, got {safe_repr(level)}. It is 1.",
    )
    return 1
