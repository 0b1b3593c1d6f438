"""Exporter `mlflow`: one MLflow run, found again by the tag `otel_ml.run_id`.

The store is the option `tracking_uri`, else `MLFLOW_TRACKING_URI`, else one SQLite file `mlflow.db` in `OTEL_ML_DIR`
with artifacts beside it. Credentials stay in MLflow's own variables (`MLFLOW_TRACKING_TOKEN`, …).

Guarantee:
    Scalars exactly once, over any number of SIGKILLs of the exporter and of answers that got lost: a point's key in
    MLflow is (metric, time, step, value), all from the record, and the tag `otel_ml.seq` is written after the points
    it counts. Files and tables are written at least once, under names that a replay repeats. A parameter keeps its
    first value; another one is reported in the tag `otel_ml.param_conflicts`.
Ordering:
    Steps may come in any order. A correction is a second point at its step, n ms after its source time (n: the run's
    n-th correction), so it is the newer one; the tag `otel_ml.amended` lists them. A restarted job's points are second
    points as well. Which attempt points belong to is the metric `<role>/<axis>/otel_ml/attempt` at their step and time;
    points without it are the first attempt's. The tag `ml.attempt` holds the newest attempt.
Non-finite values:
    NaN is stored as NaN, ±Inf as ±1.797e308.
Names:
    As published: letters of any language, digits, spaces and `_-./:`. One that MLflow refuses is written with words
    for what it does not take (`%` is `percent`), cut to 250 characters, and with a number where another one has that
    key; in a store of files `a/b` beside the metric `a` is `a.b`. The tags `otel_ml.names.<n>`, of parameters
    `otel_ml.param_names.<n>`, say what it was. An experiment's name is cut to 500 characters. A metric that two axes
    have is `<name>/over_<axis>` on the second one; a final value whose name is also a metric is `summary/<name>`; the
    tags `otel_ml.axes.<n>` say which metrics are not on the axis `step`. Parameters are flattened with dots. A tag
    `key:value` of the run is the tag `key`; any other is key and value.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml.sqlite_address import database_of
from otel_ml_exporters.backends.mlflow.errors import export_error
from otel_ml_exporters.backends.mlflow.session import Session
from otel_ml_exporters.backends.mlflow.tracking import load_mlflow, open_run, run_page, tracking_uri
from otel_ml_exporters.errors import PermanentExportError, translated
from otel_ml_exporters.exporter import Exporter, every_problems, renamed, require_started
from otel_ml_exporters.file_identity import identity
from otel_ml_exporters.mlflow_run_search import experiment_name
from otel_ml_exporters.records import Record, RunInfo, RunStatus

__all__ = ["MlflowExporter"]


class MlflowExporter(Exporter):
    """Writes one MLflow run.

    Args:
        tracking_uri: where MLflow stores runs: `http://…`, `sqlite:///…`, `databricks`, ….
        every: export only steps that are multiples of this.
    """

    # A call costs 8 ms on SQLite however little is in it (docs/performance.md), so rows are collected for it.
    max_batch = 1000
    max_delay = 2.0

    def __init__(self, *, tracking_uri: str | None = None, every: int = 1) -> None:
        problems = every_problems("mlflow", every)
        if tracking_uri is not None and (not isinstance(tracking_uri, str) or not tracking_uri):
            problems.append(f"mlflow.tracking_uri: expected text such as 'http://host:5000', got {tracking_uri!r}.")
        if problems:
            raise ConfigError(*problems)
        self.every = every
        self._tracking_uri = tracking_uri
        self._session: Session | None = None
        self._url: str | None = None
        self._renamed: str | None = None
        self._cut: str | None = None
        self._database: Path | None = None
        self._opened: tuple[int, int] | None = None
        self._closed = False

    def start(self, run: RunInfo) -> None:
        """Open or resume the run; see `Exporter.start`."""
        load_mlflow()
        uri = tracking_uri(run, self._tracking_uri)
        try:
            with translated(export_error):
                opened = open_run(run, uri)
                session = Session(opened)
                session.describe(run)
        except PermanentExportError as error:
            raise ConfigError(
                f"mlflow: cannot open a run at {uri!r}: {error.sentence}", slug="exporter-failing"
            ) from error
        self._session = session
        # Told once, by `notice`: a cut name may surprise who looks for it in MLflow.
        if experiment_name(run.experiment) != run.experiment:
            self._cut = (
                "mlflow: the experiment's name has more than the 500 characters that MLflow takes. It is cut; the "
                "experiment's tag otel_ml.experiment_name has it."
            )
        self._url = run_page(uri, opened)
        self._database = database_of(uri)
        # Behind the opening, which makes the file where there is none.
        self._opened = None if self._database is None else identity(self._database)

    def position(self) -> int | None:
        """Return the tag `otel_ml.seq`."""
        return self._session.stored if self._session else None

    @property
    def is_intact(self) -> bool:
        """Whether the SQLite file is the one that was opened; of a server nobody can tell."""
        return self._database is None or identity(self._database) == self._opened

    def export(self, records: Sequence[Record]) -> None:
        """Write `records`; those at or below the stored `seq` are there already and are skipped."""
        session = require_started("mlflow", self._session, is_closed=self._closed)
        with translated(export_error):
            session.write(records)

    def describe(self, run: RunInfo) -> None:
        """Add tags, replace name and notes."""
        if self._session is not None and not self._closed:
            with translated(export_error):
                self._session.describe(run)

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Set the run's status; every earlier call of `export` has already stored its records.

        Raises:
            RetryableExportError, PermanentExportError: the status could not be stored.
        """
        if self._closed:
            return
        # Before the status is sent: whatever becomes of that, this exporter takes no record anymore.
        self._closed = True
        if self._session is not None and status is not None:
            with translated(export_error):
                self._session.set_status(status)

    @property
    def notice(self) -> str | None:
        """Which names MLflow does not take, when the first one has come."""
        if self._renamed is None and self._session is not None and self._session.mapped:
            where = "The tags otel_ml.names.0, … and otel_ml.param_names.0, … have"
            self._renamed = renamed("mlflow", self._session.mapped, where)
        # Renamed names come later than the start, so they are told when there are some.
        return self._renamed or self._cut

    @property
    def place(self) -> str | None:
        """The store, where it is said: a run is one run in a store."""
        return self._tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""

    @property
    def url(self) -> str | None:
        """The run's page on a server, else the address of the database (`mlflow ui --backend-store-uri …`)."""
        return self._url
