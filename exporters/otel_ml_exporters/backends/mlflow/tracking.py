"""Finding MLflow's store, and the one run of an experiment run in it."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.redaction import redacted
from otel_ml.sqlite_address import database_of, sqlite_uri
from otel_ml.wire.safe_names import unique_path
from otel_ml_exporters.backends.mlflow.tags import tags_of
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.mlflow_run_search import RUN_ID, experiment_name, in_quotes
from otel_ml_exporters.records import RunInfo

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["OpenRun", "description", "load_mlflow", "open_run", "run_page", "tracking_uri"]

EXPERIMENT = "otel_ml.experiment_name"
"""Tag of an experiment whose name is longer than MLflow takes."""

_NOTES = "mlflow.note.content"
_NOTES_SAID = "otel_ml.notes"
"""Tag that holds a digest of the notes of the run: those that a person has edited since then stay."""

_OPENING_TIMEOUT = 30.0

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow would retry for four minutes by itself; the pipeline retries, and counts.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run in MLflow's store, as found or just created."""

    client: MlflowClient
    experiment_id: str
    run_id: str
    tags: dict[str, str]
    params: dict[str, str]
    metric_names: frozenset[str]
    is_of_files: bool = False


def load_mlflow() -> Any:
    """Import MLflow, without telemetry and log lines; what the user set in the environment stays.

    Raises:
        MissingDependencyError: it is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
    except ModuleNotFoundError as error:
        raise MissingDependencyError("Exporter 'mlflow'", package=error.name or "mlflow", extra="mlflow") from error
    # Sixty migrations of a new database would be sixty lines in the job's terminal.
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return mlflow


def tracking_uri(run: RunInfo, option: str | None) -> str:
    """Return the option, else `MLFLOW_TRACKING_URI`, else one SQLite file for all runs of `OTEL_ML_DIR`."""
    return option or os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(_root(run) / "mlflow.db")


def open_run(run: RunInfo, uri: str) -> OpenRun:
    """Find the run tagged with `run.id`, or create it; it is RUNNING afterwards.

    Two processes that open the same run at once get the same one: MLflow cannot create by id, so they take turns.
    """
    mlflow = load_mlflow()
    with _one_at_a_time(_root(run) / ".mlflow.lock"):
        # Inside of the lock: of two exporters that find no database both would make one, and the second would take the
        # first one's place.
        _create_database(mlflow, uri)
        client = mlflow.MlflowClient(uri)
        experiment_id = _experiment(client, run, uri)
        found = client.search_runs([experiment_id], f"tags.`{RUN_ID}` = {_quoted(run.id)}", max_results=1)
        entity = found[0] if found else _create(client, run, experiment_id)
        _remove_strayed_folder(uri)
    # Found as it ended: a run that goes on, or is replayed, is told again how it ends.
    if entity.info.status != "RUNNING":
        client.update_run(entity.info.run_id, status="RUNNING")
    return OpenRun(
        client,
        experiment_id,
        entity.info.run_id,
        tags=dict(entity.data.tags),
        params=dict(entity.data.params),
        metric_names=frozenset(entity.data.metrics),
        is_of_files=urlsplit(uri).scheme in {"", "file"},
    )


def run_page(uri: str, opened: OpenRun) -> str:
    """Return the run's page on a server, else the store's own address.

    The view for model training is asked for: in the one MLflow 3.17 begins with, the way back leads to traces.
    """
    uri = redacted(uri)
    if not uri.startswith("http"):
        return uri
    page = f"{uri.rstrip('/')}/#/experiments/{opened.experiment_id}/runs/{opened.run_id}"
    return f"{page}?workflowType=machine_learning"


def description(run: RunInfo, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that say what is new about the run.

    Args:
        run: what is said now.
        tags: as they are stored.
    """
    new = {key: value for key, value in tags_of(run.tags).items() if key not in tags}
    digest = hashlib.sha256((run.notes or "").encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if run.notes and tags.get(_NOTES_SAID) != digest:
        new |= {_NOTES: run.notes, _NOTES_SAID: digest}
    return new


def _root(run: RunInfo) -> Path:
    """Return `OTEL_ML_DIR`: the run's folder is `<experiment>/<id>` in it."""
    return run.dir.resolve().parent.parent


def _quoted(text: str) -> str:
    found = in_quotes(text)
    if found is None:
        raise ConfigError(
            f"Experiment id {text!r} has both kinds of quotes; MLflow cannot search for it. Use one kind.",
            slug="mlflow-experiment",
        )
    return found


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _OPENING_TIMEOUT
    with os.fdopen(_lock_file(path), "rb") as file:
        while True:
            try:
                # Not waited for in the kernel, which knows no time-out.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RetryableExportError(
                        f"Another process has been opening {path.parent} for too long."
                    ) from None
                time.sleep(0.02)
        yield


def _lock_file(path: Path) -> int:
    """Open a file that every user of the folder may lock; to be locked it need not be written to."""
    # In a folder that others write to, a link or a pipe may have its name: to open that pipe would wait.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    return os.open(path, flags)


def _refuse_others(path: Path) -> None:
    """Refuse a database that is not to be written to: of a user who lets us not, or planted in a shared folder.

    Raises:
        RetryableExportError: it names the file and why.
    """
    if not os.path.lexists(path):
        return
    # The link itself and, below, what it leads to: a link of this user may lead to a file that others share.
    link, reason = path.lstat(), ""
    if stat.S_ISLNK(link.st_mode) and link.st_uid != os.geteuid():
        reason = f"is a link of user {link.st_uid}"
    elif path.stat().st_uid != os.geteuid() and path.stat().st_mode & stat.S_IWOTH:
        reason = f"belongs to user {path.stat().st_uid}, and anybody may write to it"
    elif path.stat().st_nlink > 1:
        reason = "is a file with another name elsewhere"
    elif not os.access(path, os.R_OK | os.W_OK):
        reason = f"belongs to user {path.stat().st_uid}, who does not let this one write to it"
    if reason:
        raise RetryableExportError(
            f"{path} {reason}. Set MLFLOW_TRACKING_URI to a server or a file of yours, or have its owner share it "
            "(chmod g+w)."
        )


def _create_database(mlflow: Any, uri: str) -> None:
    """Make a new SQLite file whole before it gets its name.

    MLflow makes its tables by some sixty migrations; a process that dies among them, or a disk that is full, leaves a
    file that no later one can open. Each try has a name of its own: MLflow keeps what it once opened under a name.
    """
    path = database_of(uri)
    if path is not None:
        _refuse_others(path)
    if path is None or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}.*.new*"):  # nobody else is making it: we hold the lock
        left.unlink(missing_ok=True)
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    unfinished.touch(mode=0o664, exist_ok=False)  # as the umask says: SQLite would never let the group write to it
    mlflow.MlflowClient(sqlite_uri(unfinished))
    unfinished.replace(path)
    _forget_connections(uri)


def _remove_strayed_folder(uri: str) -> None:
    """Remove the empty folder that MLflow makes where it takes an address for a path: `a%2520b` beside `a%20b`."""
    database = database_of(uri)
    if database is not None and "%" in uri:
        strayed = Path(uri.removeprefix("sqlite:///")).parent
        with suppress(OSError):
            if strayed != database.parent:
                strayed.rmdir()


def _forget_connections(uri: str) -> None:
    """Close what MLflow keeps open under this name for the whole process: it is a file that has been deleted."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    engine = getattr(SqlAlchemyStore, "_engine_map", {}).get(uri)
    if engine is not None:
        engine.dispose()


def _experiment(client: MlflowClient, run: RunInfo, uri: str) -> str:
    from mlflow.exceptions import MlflowException

    # Without a server nobody else decides where files go: beside the database.
    beside = _root(run) / "mlflow-artifacts" / unique_path(run.experiment)
    # What is written as a path is read as an address: `%20` would be a space.
    local = None if not uri.startswith("sqlite:") else beside.as_uri() if "%" in str(beside) else str(beside)
    name = experiment_name(run.experiment)
    found = client.get_experiment_by_name(name)
    if found is None:
        tags = {} if name == run.experiment else {EXPERIMENT: run.experiment}
        try:
            return str(client.create_experiment(name, artifact_location=local, tags=tags))
        # Another host may have made it meanwhile: the lock is one of this host's folder.
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise ConfigError(
            f"MLflow's experiment {run.experiment!r} is deleted. Restore it (mlflow experiments restore "
            f"--experiment-id {found.experiment_id}) or choose another experiment name.",
            slug="mlflow-experiment",
        )
    return str(found.experiment_id)


def _create(client: MlflowClient, run: RunInfo, experiment_id: str) -> Any:
    tags = {**description(run, {}), RUN_ID: run.id}
    # Without a name MLflow makes one up.
    return client.create_run(
        experiment_id, start_time=round(run.started_at * 1000), tags=tags, run_name=run.name or run.id
    )
