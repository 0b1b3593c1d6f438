"""What writes a run into a backend: the interface of an exporter, its records and errors, and the built-in ones.

This module is the surface for plug-in authors; see docs/exporters/write-your-own.md.
"""

from __future__ import annotations

from otel_ml_exporters.errors import (
    ExporterClosedError,
    ExportError,
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    StoreGoneError,
    UnknownExporterError,
)
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.former_names import keep_former_names
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunInfo,
    RunStatus,
    Span,
    SpanBatch,
    SpanLink,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = [
    "Artifact",
    "Audio",
    "ExportError",
    "Exporter",
    "ExporterClosedError",
    "HistogramValue",
    "Image",
    "Params",
    "PermanentExportError",
    "Record",
    "RestartExporterError",
    "RetryableExportError",
    "RunInfo",
    "RunStatus",
    "Span",
    "SpanBatch",
    "SpanLink",
    "StepRecord",
    "StoreGoneError",
    "Summary",
    "Table",
    "Text",
    "UnknownExporterError",
]

keep_former_names()
