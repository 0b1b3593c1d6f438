"""The `otlp` exporter: closed steps leave as OTLP metrics over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from otel_ml_exporters.backends.otlp.destination import METRICS
from otel_ml_exporters.backends.otlp.http_exporter import HttpExporter
from otel_ml_exporters.backends.otlp.request import encoded
from otel_ml_exporters.records import Record, StepRecord

__all__ = ["OtlpExporter"]


class OtlpExporter(HttpExporter):
    """Sends every value of a closed step as a gauge point to an OTLP/HTTP endpoint (protobuf).

    The point's attributes are `ml.step`, `ml.step.axis`, `ml.attempt`, `ml.seq`, and `ml.amendment` where it corrects
    an earlier one. Its resource has `service.name` (the role), `service.instance.id` (the run's id: each run is a
    series of Prometheus), `ml.run.id`, `ml.run.name` and `ml.experiment.name`.

    What is not given is taken from `OTEL_EXPORTER_OTLP_METRICS_…`, else from `OTEL_EXPORTER_OTLP_…`.

    Args:
        endpoint: base URL; `/v1/metrics` is appended.
        headers: of every request.
        certificate: CA certificates (PEM) to trust.
        client_certificate: certificate (PEM) for mTLS.
        client_key: its key (PEM).
        compression: `gzip` or `none`.
        timeout: seconds for one request.
        every: export only steps that are multiples of this.

    **Guarantee**: at least once: OTLP has no place to ask how far one got, so a request whose answer was lost, or that
    was not noted before a kill, is sent again with the same times and attributes. A point that repeats another one in
    name, time and attributes is that point. Scalars only.
    **Ordering**: by `seq`. A correction is a further point at its step, with the attribute `ml.amendment`.
    **Non-finite values**: NaN and ±Inf, as doubles; what the backend makes of them is its own.
    **Names**: as published, which is as they were written. Prometheus has `_` for all but letters of ASCII and digits,
    unless it is told to take UTF-8: there `a b` and `a/b` are one.
    """

    max_batch = 512

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
        super().__init__(METRICS, options, every)

    def position(self) -> int | None:
        """Return nothing: no OTLP receiver tells; the pipeline's own mark counts."""
        return None

    def export(self, records: Sequence[Record]) -> None:
        """Send one request."""
        run = self._run
        # A request without a point would be answered, too, and tell the receiver nothing.
        steps = [record for record in records if isinstance(record, StepRecord) and record.values]
        if steps:
            self._client.send(encoded(run, steps).SerializeToString())
