"""TensorBoard: an own event file, appended to; needs neither TensorFlow nor TensorBoard to write."""

from __future__ import annotations

from otel_ml_exporters.backends.tensorboard.exporter import TensorBoardExporter

__all__ = ["TensorBoardExporter"]
