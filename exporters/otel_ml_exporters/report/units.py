"""Units that the names of timers and of hardware tell; a record has no others, for backends have no place for them."""

from __future__ import annotations

import re

__all__ = ["unit_of"]

_COUNTS = re.compile(r"/(argmax|argmin|count)$")
"""Reductions that return ranks or numbers of values, whatever was recorded."""

_UNITS = (
    (re.compile(r"(^|/)time/"), "s"),
    (re.compile(r"(^|/)hw\.energy([./]|$)"), "J"),
    (re.compile(r"(^|/)hw\.(gpu\.)?power([./]|$)"), "W"),
    (re.compile(r"(^|/)hw\.temperature(/|$)"), "°C"),
    (re.compile(r"(^|/)hw\.gpu\.clock(/|$)"), "MHz"),
    (re.compile(r"(^|/)(hw\.gpu|system|process)\.memory\.(usage|limit|virtual)(/|$)"), "B"),
)
"""Timers, and the metrics of OpenTelemetry's conventions that `otel_ml.diagnostics.hardware` records."""


def unit_of(name: str) -> str:
    """Return the unit of a published name, empty where it tells none.

    Examples:
        >>> unit_of("generator/time/decode/max"), unit_of("hw.power/host.name/n1/hw.id/gpu0"), unit_of("loss")
        ('s', 'W', '')
        >>> unit_of("time/decode/argmax")
        ''
    """
    if _COUNTS.search(name):
        return ""
    return next((unit for pattern, unit in _UNITS if pattern.search(name)), "")
