"""OTLP: closed steps as gauge points for any OpenTelemetry backend."""

from __future__ import annotations

from otel_ml_exporters.backends.otlp.exporter import OtlpExporter

__all__ = ["OtlpExporter"]
