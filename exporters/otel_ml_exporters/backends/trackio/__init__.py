"""Trackio: the SQLite file of a project, as `trackio show` reads it."""

from __future__ import annotations

from otel_ml_exporters.backends.trackio.exporter import TrackioExporter

__all__ = ["TrackioExporter"]
