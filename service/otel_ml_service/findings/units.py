"""The units of what otel_ml itself records, by name: the service keeps no others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from otel_ml.quantities import quantity
from otel_ml.wire.reductions import REDUCTIONS
from otel_ml_service.findings.wording import number

__all__ = ["UNITS", "measured", "unit_of"]

UNITS: Mapping[str, str] = {
    "hw.gpu.memory.usage": "By",
    "hw.gpu.memory.limit": "By",
    "hw.gpu.power.limit": "W",
    "hw.gpu.clock": "MHz",
    "hw.power": "W",
    "hw.power.step": "W",
    "hw.energy": "J",
    "hw.energy.step": "J",
    "hw.temperature": "Cel",
    "hw.errors": "{error}",
    "system.memory.usage": "By",
    "system.memory.limit": "By",
    "process.count": "{process}",
    "process.memory.usage": "By",
    "process.memory.virtual": "By",
}
"""Name → unit in UCUM; what has none is left out."""

_SHOWN = {"By": "B", "Cel": "°C"}
_NAMED = re.compile(r"(?:.*/)?(" + "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True))) + r")(?:/.*)?")
_TIMER = re.compile(r"(?:.*/)?time/.+")
_UNITLESS = "|".join(name for name, row in REDUCTIONS.items() if row.scale == "none")
_OTHER_UNIT = re.compile(rf".*/({_UNITLESS})|(?:.*/)?time/(batches|samples|tokens|exposed/.+/rank)")
"""Reductions that are a rank or a number, ranks at the front, and what Megatron counts below `time/`."""


def unit_of(name: str) -> str:
    """Return the unit of a published name as people write it; empty where it has none, or nobody knows.

    Examples:
        >>> unit_of("generator/time/forward/mean"), unit_of("time/forward/argmax"), unit_of("loss")
        ('s', '', '')
        >>> unit_of("time/tokens"), unit_of("time/tokens/pack"), unit_of("time/exposed/forward/rank")
        ('', 's', '')
        >>> unit_of("system/hw.temperature/host.name/n1/hw.id/gpu0"), unit_of("process.count/host.name/n1")
        ('°C', 'process')
    """
    if _OTHER_UNIT.fullmatch(name):
        return ""
    if _TIMER.fullmatch(name):
        return "s"
    found = _NAMED.fullmatch(name)
    unit = UNITS[found[1]] if found else ""
    return _SHOWN.get(unit, unit.strip("{}"))


def measured(name: str, value: float, plain: Callable[[float], str] = number) -> str:
    """Return a value of a metric: in the unit that fits where that is known, as of what otel_ml itself measures.

    Args:
        name: of the metric, as published.
        value: of it.
        plain: writes a value that has no unit; in four digits by default.

    Examples:
        >>> measured("time/forward", 0.0251), measured("loss", 0.0251234), measured("loss", 0.0251234, str)
        ('25.1 ms', '0.02512', '0.0251234')
    """
    unit = unit_of(name)
    return quantity(value, unit) if unit else plain(value)
