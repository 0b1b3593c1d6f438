"""The `traces` exporter: the spans of a run leave as OTLP traces over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp.client import Client
from otel_ml_exporters.backends.otlp.destination import TRACES, destination
from otel_ml_exporters.backends.otlp.mlflow_run import headers_of_run
from otel_ml_exporters.backends.otlp.spans import encoded_requests, rows
from otel_ml_exporters.errors import ExporterClosedError, PermanentExportError
from otel_ml_exporters.exporter import Exporter, every_problems
from otel_ml_exporters.records import Record, RunInfo, RunStatus, SpanBatch

__all__ = ["TracesExporter"]


class TracesExporter(Exporter):
    """Sends every span of the run to an OTLP/HTTP endpoint (protobuf): Jaeger, Tempo, a Collector, MLflow.

    A span keeps its ids, parent, times, attributes, links and status. Its resource is its process: `service.name` (the
    role), `ml.rank`, `service.instance.id` (run and rank), `ml.run.id`, `ml.run.name` and `ml.experiment.name`.

    What is not given is taken from `OTEL_ML_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_…`, else from
    `OTEL_EXPORTER_OTLP_…`.

    Args:
        endpoint: base URL; `/v1/traces` is appended.
        headers: of every request.
        certificate: CA certificates (PEM) to trust.
        client_certificate: certificate (PEM) for mTLS.
        client_key: its key (PEM).
        compression: `gzip` or `none`.
        timeout: seconds for one request.
        mlflow: the endpoint is an MLflow server, and the traces belong to the run that the exporter `mlflow` writes.
        every: export only spans of steps that are multiples of this, and those without a step.

    **Guarantee**: at least once: OTLP has no place to ask how far one got, so a request whose answer was lost, or that
    was not noted before a kill, is sent again with the same ids. Jaeger and MLflow keep one span of an id. Spans only.
    **Ordering**: in the order in which they arrived at the service: a span after those inside of it.
    **Non-finite values**: NaN and ±Inf in attributes, as doubles.
    **Names**: as they were written.
    """

    max_batch = 64
    max_delay = 1.0

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        certificate: str | Path | None = None,
        client_certificate: str | Path | None = None,
        client_key: str | Path | None = None,
        compression: str | None = None,
        timeout: float | None = None,
        mlflow: bool = False,
        every: int = 1,
    ) -> None:
        problems = every_problems("traces", every)
        if not isinstance(mlflow, bool):
            problems.append(f"traces.mlflow: expected true or false, got {mlflow!r}.")
        options = {
            "endpoint": endpoint,
            "headers": headers,
            "certificate": certificate,
            "client_certificate": client_certificate,
            "client_key": client_key,
            "compression": compression,
            "timeout": timeout,
        }
        try:
            self._destination = destination(options, signal=TRACES)
        except ConfigError as error:
            problems.extend(error.problems)
        if problems:
            raise ConfigError(*problems)
        self.every = every
        self._client = Client(self._destination, TRACES)
        self._is_mlflow = mlflow
        self._headers: Mapping[str, str] | None = None
        self._run: RunInfo | None = None
        self._closed = False

    @property
    def place(self) -> str | None:
        """The endpoint."""
        return self._destination.url

    def start(self, run: RunInfo) -> None:
        """Keep what the spans say of their run; the first `export` connects."""
        self._run = run

    def export(self, records: Sequence[Record]) -> None:
        """Send the spans, in requests of at most 1,000."""
        if self._closed:
            raise ExporterClosedError("traces")
        if self._run is None:
            raise PermanentExportError("traces: export before start. Call start(run) first.", slug="exporter-order")
        batches = [record for record in records if isinstance(record, SpanBatch)]
        spans = [span for span in rows(batches) if span["step"] is None or span["step"] % self.every == 0]
        for request in encoded_requests(self._run, spans):
            self._client.send(request, self._headers_of(self._run))

    def _headers_of(self, run: RunInfo) -> Mapping[str, str]:
        if self._headers is None:
            self._headers = headers_of_run(self._client, run) if self._is_mlflow else {}
        return self._headers

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Do nothing more: every earlier call of `export` was answered."""
        self._closed = True
