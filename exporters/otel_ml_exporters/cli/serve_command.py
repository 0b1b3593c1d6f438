"""`otel-ml serve`."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_exporters.cli.parameters import EXPORTERS, dir_option

__all__ = ["command"]
