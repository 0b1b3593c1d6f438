"""The console: a line for each closed step, or a live table where the output is a terminal."""

from __future__ import annotations

from otel_ml_exporters.backends.console.exporter import ConsoleExporter

__all__ = ["ConsoleExporter"]
