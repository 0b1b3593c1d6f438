"""SwanLab: the file that SwanLab itself writes offline, made here, to be uploaded by `swanlab sync`."""

from __future__ import annotations

from otel_ml_exporters.backends.swanlab.exporter import SwanlabExporter

__all__ = ["SwanlabExporter"]
