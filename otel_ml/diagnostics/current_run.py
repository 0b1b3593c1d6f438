"""The run this process records into, for what needs its rank or folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.lifecycle.runtime import RUNTIME

__all__ = ["current_run", "folder_for_files", "id_of_run"]


def current_run() -> Run | None:
    """Return the active run, or None; nothing is started."""
    # init() with no arguments returns the current run, and begins none where one is active.
    return RUNTIME.init({}) if RUNTIME.is_active else None


def id_of_run() -> str:
    """Return the id of the active run, empty where there is none: for a thread that may look while one ends."""
    session = RUNTIME.current  # asked for in another way, an ended run might be begun again
    run = None if session is None else session.run
    return "" if run is None else run.id


def folder_for_files() -> Path:
    """Return where to write files that become artifacts: in the run's folder, or a new one where that is elsewhere.

    Artifacts of more than 4 MiB do not travel; the service reads them there.

    Raises:
        OSError: it cannot be made.
    """
    run = current_run()
    if run is None or run.dir is None:
        return Path(tempfile.mkdtemp(prefix="otel-ml-"))
    folder = run.dir / "diagnostics"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
