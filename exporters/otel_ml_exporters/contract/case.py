"""What the contract has to know of an exporter."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunInfo
from otel_ml_exporters.registry import as_exporter, exporter_class

__all__ = ["CANNOT_BE_FORKED", "ExporterCase", "Point", "exporter_of"]

CANNOT_BE_FORKED = 3
"""Exit status of lives that cannot begin: the exporter's library has threads once it is imported."""

Point = tuple[str, str, int, float]
"""Name, axis, step and value of one stored value."""


@dataclass(frozen=True, slots=True)
class ExporterCase:
    """An exporter, and how to read back what it stored.

    Attributes:
        exporter: the name it is registered by, or `module:class`: it is made in other processes too.
        read: returns every stored value of a run, in the order in which the backend has them.
        options: of its constructor, such as can be written as JSON.
        stored: what the backend makes of a double, such as one with 32 bits.
    """

    exporter: str
    read: Callable[[RunInfo], Iterable[Point]]
    options: Mapping[str, Any] = field(default_factory=dict)
    stored: Callable[[float], float] = float

    def make(self) -> Exporter:
        """Return a new exporter."""
        return exporter_of(self.exporter, self.options)


def exporter_of(name: str, options: Mapping[str, Any]) -> Exporter:
    """Return a new exporter, by its registered name or `module:class`."""
    if ":" not in name:
        return exporter_class(name)(**options)
    module, _, attribute = name.partition(":")
    return as_exporter(name, getattr(importlib.import_module(module), attribute))(**options)
