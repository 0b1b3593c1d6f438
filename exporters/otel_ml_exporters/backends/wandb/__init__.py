"""W&B: one run, online where there is a key and a network, else offline."""

from __future__ import annotations

from otel_ml_exporters.backends.wandb.exporter import WandbExporter

__all__ = ["WandbExporter"]
