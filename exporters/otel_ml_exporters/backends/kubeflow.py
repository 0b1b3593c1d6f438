"""The `kubeflow` exporter: how far a TrainJob is, and its newest metrics, in its status in Kubernetes."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml.redaction import redacted
from otel_ml.wire.published_name import is_own
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.exporter import Exporter, every_problems, names_problems, require_started, timeout_problems
from otel_ml_exporters.records import Record, RunInfo, RunStatus, StepRecord
from otel_ml_exporters.run_progress import RunProgress
from otel_ml_exporters.telling_metrics import interesting

__all__ = ["KubeflowExporter"]

_MOST_METRICS, _LONGEST = 256, 64
"""Metrics of a status, and characters of a name or value: what the resource TrainJob takes."""

_MOST_ANSWERED = 4096
"""Bytes of an answer that are read: the beginning of an error's page says what it is."""

_URL, _TOKEN, _AUTHORITY = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "TOKEN", "CA_CERT"))


class KubeflowExporter(Exporter):
    """Keeps `status.trainerStatus` of a TrainJob: percent done, seconds left, and the newest value of each metric.

    `kubectl get trainjob NAME -o jsonpath='{.status.trainerStatus}'` shows it. Kubeflow Trainer gives address,
    certificate and token to each pod of the job where its feature `TrainJobStatus` is on; it is written to at most once
    in 5 s. What the run is to last comes from a parameter such as `max_steps`, or from `progress/remaining_steps`.

    Args:
        metrics: globs of the names to send, in order; without, the most telling 256.
        url: of the TrainJob's status; `KUBEFLOW_TRAINER_SERVER_URL`.
        token: file of the token, read for each request since it is exchanged; `KUBEFLOW_TRAINER_SERVER_TOKEN`.
        certificate: CA certificates (PEM) to trust; `KUBEFLOW_TRAINER_SERVER_CA_CERT`.
        timeout: seconds for one request.
        every: look only at steps that are multiples of this.

    **Guarantee**: at least once, of the newest step: a status has one value of a metric.
    **Ordering**: by `seq`; a correction of an older step is not shown.
    **Non-finite values**: `nan`, `inf`, `-inf`, as text, which all values of a status are.
    **Names**: as published; one of more than 64 characters is left out, and reported once.
    """

    # A status has the newest value of each metric: what comes within 5 s is one request, however many rows it is.
    max_batch = 10_000
    max_delay = 5.0

    def __init__(
        self,
        *,
        metrics: str | Sequence[str] = (),
        url: str | None = None,
        token: str | Path | None = None,
        certificate: str | Path | None = None,
        timeout: float = 10.0,
        every: int = 1,
    ) -> None:
        url, token = url or os.environ.get(_URL, ""), token or os.environ.get(_TOKEN, "")
        certificate = certificate or os.environ.get(_AUTHORITY, "")
        problems = [
            *every_problems("kubeflow", every),
            *names_problems("kubeflow", "metrics", metrics),
            *timeout_problems("kubeflow", timeout),
        ]
        if not isinstance(url, str) or not url.startswith("https://"):
            problems.append(
                f"kubeflow.url: expected https://…, got {url!r}. Kubeflow Trainer sets {_URL} in the pods of a "
                "TrainJob where its feature TrainJobStatus is on."
            )
        if not isinstance(token, (str, Path)) or not token:
            problems.append(
                f"kubeflow.token: expected the file of a token, got {token!r}. Kubeflow Trainer sets {_TOKEN}."
            )
        if not isinstance(certificate, (str, Path)):
            problems.append(f"kubeflow.certificate: expected a file of CA certificates, got {certificate!r}.")
        if problems:
            raise ConfigError(*problems)
        self._url, self._token, self._certificate = url, str(token), str(certificate)
        self.every = every
        self._timeout = timeout
        self._patterns = [metrics] if isinstance(metrics, str) else list(metrics)
        self._progress = RunProgress()
        # Of all rows so far: a status replaces the one before, and a row has the metrics of one role and axis.
        self._values: dict[str, float] = {}
        self._opener: urllib.request.OpenerDirector | None = None
        self._notice: str | None = None
        self._closed = False

    @property
    def place(self) -> str | None:
        """The TrainJob's status."""
        return self._url

    @property
    def url(self) -> str | None:
        """The TrainJob's status: a program's address, not a page."""
        return self._url

    @property
    def notice(self) -> str | None:
        """What the TrainJob's status does not show, and why."""
        return self._notice

    def start(self, run: RunInfo) -> None:
        """Read the certificates.

        Raises:
            ConfigError: they cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self._certificate or None)
        except OSError as error:
            raise ConfigError(
                f"kubeflow.certificate: expected CA certificates, got {self._certificate!r}: {error}."
            ) from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def export(self, records: Sequence[Record]) -> None:
        """Send the state behind these records."""
        opener = require_started("kubeflow", self._opener, is_closed=self._closed)
        for record in records:
            self._progress.add(record)
            if isinstance(record, StepRecord) and not record.amendment:
                self._values.update((name, value) for name, value in record.values.items() if not is_own(name))
        if self._progress.newest is not None:
            self._send(opener, {"trainerStatus": self._status(self._progress.newest)})

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Do nothing more: each `export` was answered."""
        self._closed = True

    def _status(self, newest: StepRecord) -> Mapping[str, object]:
        fraction, left = self._progress.fraction, self._progress.seconds_left
        chosen = [name for name in interesting(self._values, self._patterns) if 0 < len(name) <= _LONGEST]
        # Before the status is sent: what is left out of it is told even where the server refuses it.
        self._note_long_names()
        return {
            **({} if fraction is None else {"progressPercentage": int(fraction * 100)}),
            **({} if left is None else {"estimatedRemainingSeconds": min(math.ceil(left), 2**31 - 1)}),
            "metrics": [{"name": name, "value": f"{self._values[name]:.6g}"} for name in chosen[:_MOST_METRICS]],
            "lastUpdatedTime": datetime.fromtimestamp(newest.time, timezone.utc).isoformat(),
        }

    def _note_long_names(self) -> None:
        if self._notice is None and (long := [name for name in self._values if len(name) > _LONGEST]):
            self._notice = (
                f"kubeflow: a TrainJob takes names of {_LONGEST} characters: {long[0]!r:.100} and others like it are "
                "left out of its status."
            )

    def _send(self, opener: urllib.request.OpenerDirector, content: Mapping[str, object]) -> None:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._read_token()}"}
        body = json.dumps(content).encode()
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            with opener.open(request, timeout=self._timeout) as answer:
                answer.read(_MOST_ANSWERED)
        # First, as it is an OSError, too.
        except urllib.error.HTTPError as error:
            self._take_refusal(error)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RetryableExportError(f"kubeflow: {self._url} cannot be reached: {reason}.") from error

    def _read_token(self) -> str:
        try:
            return Path(self._token).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise RetryableExportError(f"kubeflow: the token in {self._token!r} cannot be read: {error}.") from error

    def _take_refusal(self, error: urllib.error.HTTPError) -> None:
        """Come again where time may put it right, such as a token that is exchanged; else the next state may be taken.

        Nothing of the run is lost by what a status does not show, so no record is set aside.
        """
        said = ""
        with contextlib.suppress(OSError, http.client.HTTPException):  # the status counts, where the rest is lost
            said = redacted(error.read(_MOST_ANSWERED).decode("utf-8", "replace").strip())
        message = f"kubeflow: {self._url} answered {error.code} {error.reason}: {said!r:.200}."
        if error.code in {401, 403, 429} or error.code >= 500:
            raise RetryableExportError(message) from error
        self._notice = f"{message} The status of the TrainJob is not what the run is at."
