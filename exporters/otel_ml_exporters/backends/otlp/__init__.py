"""OTLP: closed steps as gauge points, and spans, for any OpenTelemetry backend."""

from __future__ import annotations

from otel_ml_exporters.backends.otlp.exporter import OtlpExporter
from otel_ml_exporters.backends.otlp.traces import TracesExporter

__all__ = ["OtlpExporter", "TracesExporter"]
