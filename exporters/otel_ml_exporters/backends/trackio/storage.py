"""Trackio's own storage: its folder, and the calls of it that are used here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from otel_ml.exceptions import MissingDependencyError
from otel_ml.wire.safe_names import unique_path
from otel_ml.wire.short_digest import short_digest
from otel_ml_exporters.file_identity import identity
from otel_ml_exporters.records import RunInfo

__all__ = ["Row", "Storage", "project_name"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_\-]")
_LONGEST = 200
"""Characters of a project: its files add some thirty to it, and file systems take 255 bytes."""
_REGISTRIES = "registry-"


class Row(NamedTuple):
    """One row of the table `metrics`; `seq` makes it unique."""

    seq: int
    step: int
    time: float
    values: Mapping[str, Any]


class Storage:
    """One run in a project's file.

    `trackio.log()` gives every row an id at random and the time of a background thread. Its storage takes both, and
    ignores a row whose id is there, which is what makes a replay harmless.

    Args:
        folder: of all projects, unless `TRACKIO_DIR` says another one.

    Raises:
        MissingDependencyError: Trackio is not installed.
    """

    def __init__(self, folder: Path, run: RunInfo) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder))  # read by Trackio when it is imported
        try:
            from trackio.sqlite_storage import SQLiteStorage
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Exporter 'trackio'", package=(error.name or "trackio").partition(".")[0], extra="trackio"
            ) from error
        self._storage = SQLiteStorage
        self.project, self.run, self._run_id = project_name(run.experiment), run.name or run.id, run.id
        self.path = Path(SQLiteStorage.init_db(self.project))
        self._opened = identity(self.path)
        self.params: dict[str, Any] = SQLiteStorage.get_run_config(self.project, self.run, self._run_id) or {}

    @property
    def is_intact(self) -> bool:
        """Whether the file is the one that was opened."""
        return identity(self.path) == self._opened

    def last_seq(self) -> int:
        """Return the `seq` of the newest row; 0 where there is none."""
        # Trackio's own way to ask takes no parameters.
        quoted = self._run_id.replace("'", "''")
        question = f"SELECT MAX(log_id) AS last FROM metrics WHERE run_id = '{quoted}'"
        last = self._storage.query_project(self.project, question)["rows"][0]["last"]
        return 0 if last is None else int(last.rpartition(":")[2])

    def write(self, rows: Sequence[Row], *, params: bool) -> None:
        """Write rows, and with `params` the config, in one transaction."""
        self._storage.bulk_log(
            self.project,
            self.run,
            metrics_list=[dict(row.values) for row in rows],
            steps=[row.step for row in rows],
            timestamps=[_timestamp(row.time) for row in rows],
            # Of one length: `last_seq` asks for the largest, and texts are compared.
            log_ids=[f"{self._run_id}:{row.seq:015d}" for row in rows],
            config=self.params if params else None,
            run_id=self._run_id,
        )

    def keep(self, name: str, content: bytes, step: int) -> str:
        """Write a file of a row, the same in a replay, and return its path as rows hold it."""
        from trackio.media.utils import get_project_media_path
        from trackio.utils import MEDIA_DIR

        # Trackio takes a run's name for a path as it is: `../x` and `/x` would lead out of its folder.
        path = Path(get_project_media_path(self.project, unique_path(self.run), step)) / name
        path.write_bytes(content)
        return str(path.relative_to(MEDIA_DIR))


def project_name(experiment: str) -> str:
    """Return a name that Trackio takes, and takes for no other project.

    Trackio drops characters instead of refusing them, so that `my.model` and `mymodel` are one file; endings such as
    `_system` are files of its own.

    Examples:
        >>> project_name("grpo-dev"), project_name("team/run")
        ('grpo-dev', 'team-run-a3e54ec8')
    """
    from trackio.sqlite_storage import SQLiteStorage

    try:
        SQLiteStorage.validate_project_name(experiment)
        fits = not _FORBIDDEN.search(experiment) and 0 < len(experiment) <= _LONGEST
    except ValueError:
        fits = False
    shown = _FORBIDDEN.sub("-", experiment)[: _LONGEST - len("_-12345678")]
    return experiment if fits else f"{'_' if shown.startswith(_REGISTRIES) else ''}{shown}-{short_digest(experiment)}"


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
