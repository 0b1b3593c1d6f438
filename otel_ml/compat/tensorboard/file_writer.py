"""`writer.file_writer`, to which programs hand messages of TensorBoard's own."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept

__all__ = ["FileWriter"]


class FileWriter:
    """Takes what TensorBoard's takes; messages of its own are not recorded, which is reported."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir

    def get_logdir(self) -> str:
        """Return the folder of the writer."""
        return self._log_dir

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del summary, global_step, walltime
        _not_recorded("add_summary")

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del event, step, walltime
        _not_recorded("add_event")

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del graph_profile, walltime
        _not_recorded("add_graph")

    def flush(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Do nothing: `SummaryWriter.close()` ends the run."""

    def reopen(self) -> None:
        """Do nothing: the next call of the writer goes on."""


def _not_recorded(call: str) -> None:
    not_kept(
        f"SummaryWriter.file_writer.{call}()",
        "messages of TensorBoard's own are not recorded. Use the writer's methods, such as add_scalar() and "
        "add_hparams().",
    )
