"""The `traces` exporter: the spans of a run leave as OTLP traces over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp.destination import TRACES
from otel_ml_exporters.backends.otlp.http_exporter import HttpExporter
from otel_ml_exporters.backends.otlp.mlflow_run import credentials, headers_of_run
from otel_ml_exporters.backends.otlp.spans import encoded_requests, rows
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import Record, RunInfo, SpanBatch

__all__ = ["TracesExporter"]


class TracesExporter(HttpExporter):
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
        mlflow: the endpoint is an MLflow server, and the traces belong to the run that the exporter `mlflow` writes. It
            is asked with the credentials of MLflow's own variables (`MLFLOW_TRACKING_TOKEN`, `…_USERNAME` and
            `…_PASSWORD`), unless `headers` have `authorization`.
        every: export only spans of steps that are multiples of this, and those without a step.

    **Guarantee**: at least once: OTLP has no place to ask how far one got, so a request whose answer was lost, or that
    was not noted before a kill, is sent again with the same ids. Jaeger and MLflow show one span of an id. Spans only.
    **Ordering**: in the order in which they arrived at the service: a span after those inside of it.
    **Non-finite values**: NaN and ±Inf in attributes, as doubles.
    **Names**: as they were written.
    """

    max_batch = 64

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
        options = {
            "endpoint": endpoint,
            "headers": headers,
            "certificate": certificate,
            "client_certificate": client_certificate,
            "client_key": client_key,
            "compression": compression,
            "timeout": timeout,
        }
        problems: list[str] = []
        if not isinstance(mlflow, bool):
            problems.append(f"traces.mlflow: expected true or false, got {mlflow!r}.")
        shown: Mapping[str, str] = {}
        # What stands there may be another value, which is told above.
        if mlflow is True:
            try:
                shown = credentials()
            except ConfigError as error:
                problems.extend(error.problems)
        super().__init__(TRACES, options, every, problems, shown)
        self._is_mlflow = mlflow
        self._headers: Mapping[str, str] | None = None

    def export(self, records: Sequence[Record]) -> None:
        """Send the spans, in requests of at most 1,000.

        Raises:
            RetryableExportError: nobody took a request; all come again.
            PermanentExportError: a request was refused, or some of what is in it; the others are sent.
        """
        run = self._run
        batches = [record for record in records if isinstance(record, SpanBatch)]
        # The pipeline thins rows alone: in one batch there are spans of many steps.
        spans = [span for span in rows(batches) if span["step"] is None or span["step"] % self.every == 0]
        refusals = []
        for request in encoded_requests(run, spans):
            headers = self._headers_of(run)
            try:
                self._client.send(request, headers)
            except PermanentExportError as error:
                # One record has the spans of all ranks: nobody sends the rest of it once it is set aside.
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _headers_of(self, run: RunInfo) -> Mapping[str, str]:
        # At the first request, and not at the start: the exporter `mlflow`, which makes the run, starts at the same
        # time.
        if self._headers is None:
            self._headers = headers_of_run(self._client, run) if self._is_mlflow else {}
        return self._headers
