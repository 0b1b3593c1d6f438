"""The backends of the disturbed job: our own exporters, each of which fails, hangs, or is slow when it is told to.

`install` makes them known as a plug-in does, by entry points: `unreliable-jsonl` and so on. What they store is read
back by the readers of the real ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.backends.mlflow import MlflowExporter
from otel_ml_exporters.backends.tensorboard import TensorBoardExporter
from otel_ml_exporters.backends.wandb import WandbExporter
from otel_ml_exporters.errors import RestartExporterError, RetryableExportError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record

TROUBLE = "OTEL_ML_CHAOS_TROUBLE"
"""Names the file that says what is wrong with which backend: `<backend> <how>`; nothing where there is no file."""

_CLASSES = {
    "jsonl": "UnreliableJsonl",
    "tensorboard": "UnreliableTensorBoard",
    "mlflow": "UnreliableMlflow",
    "wandb": "UnreliableWandb",
}
NAMES = tuple(f"unreliable-{backend}" for backend in _CLASSES)


class Unreliable(Exporter):
    """Does what the trouble file says before each call of `export`.

    raises: the backend is not there now. hangs: the call takes until the trouble is over. is slow: half a second.
    starts anew: the backend wants another exporter, once for each trouble.
    """

    _backend: str
    _restarted_for = ""

    def export(self, records: Sequence[Record]) -> None:
        """Export, or fail."""
        how = self._trouble()
        while how == "hangs":
            time.sleep(0.05)  # between two looks
            how = self._trouble()
        if how == "raises":
            raise RetryableExportError(f"{self._backend} is not there", retry_after=0.2)
        if how == "is slow":
            time.sleep(0.5)  # the fault itself
        if how.startswith("starts anew") and Unreliable._restarted_for != how:
            Unreliable._restarted_for = how  # its own
            raise RestartExporterError(f"{self._backend} wants a new connection")
        super().export(records)  # type: ignore[safe-super]  # the real exporter comes next

    def _trouble(self) -> str:
        try:
            backend, _, how = Path(os.environ[TROUBLE]).read_text().partition(" ")
        except FileNotFoundError:
            return ""
        return how if backend == self._backend else ""


class UnreliableJsonl(Unreliable, JsonlExporter):
    """JSONL."""

    _backend = "jsonl"


class UnreliableTensorBoard(Unreliable, TensorBoardExporter):
    """TensorBoard."""

    _backend = "tensorboard"


class UnreliableMlflow(Unreliable, MlflowExporter):
    """MLflow."""

    _backend = "mlflow"


class UnreliableWandb(Unreliable, WandbExporter):
    """W&B."""

    _backend = "wandb"


def install(folder: Path) -> None:
    """Make the exporters known to processes that have `folder` on their PYTHONPATH."""
    info = folder / "otel_ml_chaos-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-ml-chaos\nVersion: 1\n")
    points = [f"unreliable-{backend} = {__name__}:{name}" for backend, name in _CLASSES.items()]
    (info / "entry_points.txt").write_text("\n".join(["[otel_ml.exporters]", *points, ""]))
