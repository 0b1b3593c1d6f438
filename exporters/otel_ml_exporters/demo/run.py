"""The whole demo: start the job, follow it, read what was recorded, compare the backends, say what was found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.demo.launch import RANKS, Launch, launch
from otel_ml_exporters.demo.progress import progress_bar
from otel_ml_exporters.demo.stored import READERS, NotStoredError
from otel_ml_exporters.demo.summary import GOOD_ACCURACY, Findings, findings
from otel_ml_exporters.demo.verify import Comparison, compare
from otel_ml_exporters.runs.folders import RunFolder
from otel_ml_exporters.runs.source import records

__all__ = ["installed", "run_demo"]

_NEEDS = {"jsonl": "json", "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""Backend → the module it cannot do without."""
EXPERIMENT = "digits"


def installed(backend: str) -> bool:
    """Whether a backend's package is there, without importing it."""
    return find_spec(_NEEDS[backend]) is not None
