"""Parquet: closed steps in long format, in files that any data frame library reads."""

from __future__ import annotations

from otel_ml_exporters.backends.parquet.exporter import ParquetExporter

__all__ = ["ParquetExporter"]
