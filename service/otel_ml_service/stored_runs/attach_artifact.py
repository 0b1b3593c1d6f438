"""Give a run a file that was made of it: it goes through the run's service into every backend, as any artifact does."""

from __future__ import annotations

import hashlib
import logging
import time
import urllib.request
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained
from otel_ml.wire import attributes as wire
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.service import Service
from otel_ml_service.stored_runs.alone import alone
from otel_ml_service.stored_runs.read_records import Facts, RunInUseError, is_over_within, stored_facts
from otel_ml_service.stored_runs.recorded_id import recorded_id
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.serve_again import service_again
from otel_ml_service.stored_runs.unfinished import Unfinished

__all__ = ["NotAttachedError", "attach"]

_log = logging.getLogger(__name__)

_ANSWER_S = 10.0

_INLINE = 4 * 2**20
"""Bytes of a file that travels in the message (docs/protocol.md §2.12); a larger one is read by the service here."""


class NotAttachedError(OtelMLError):
    """A file did not become an artifact of a run."""

    slug = "report-not-attached"


def attach(folder: RunFolder, file: Path, *, name: str, kind: str, timeout: float) -> tuple[str, ...]:
    """Make `file` an artifact of a run that nobody records anymore; return the exporters that have it.

    A service is started for it, with the exporters that the run had. How the run ended stays as it is.

    Args:
        folder: of the run.
        file: on this host.
        name: of the artifact.
        kind: its type.
        timeout: seconds it may take.

    Raises:
        NotAttachedError: the run is being recorded, its database is missing, or an exporter did not take the file.
        ConfigError: an option that an exporter had cannot be had again.
    """
    deadline = time.monotonic() + timeout
    folder = RunFolder(folder.path.absolute())  # this process is in another folder for a while
    # A job that has just ended has its service for some seconds more.
    if _facts(folder, deadline) is None:
        raise _not_over(folder, "has no database of a service (state/run.db)")
    base, run_id = folder.path.parent.parent, recorded_id(folder)
    run = Unfinished(run_id, folder.experiment, run_id, base, 0, rendezvous_of(run_id), has_folder=True)
    try:
        with alone(run.rendezvous) as is_alone:
            if not is_alone:
                raise _not_over(folder, _RECORDED)
            # Said, not refused: a run of an older version can have its report, too.
            if ServedSettings.read(folder.database.parent) is None:
                _log.warning("%s", explained(_not_known(folder), "options-not-kept"))
            request = _request(run, file, name, kind)
            with service_again(run) as service:
                return _taken(service, folder, request, deadline)
    finally:
        run.rendezvous.remove()


_RECORDED = "is being recorded"


def _not_over(folder: RunFolder, reason: str) -> NotAttachedError:
    return NotAttachedError(f"Run {folder.id!r} {reason}. A report is attached to a run that is over: try again then.")


def _facts(folder: RunFolder, deadline: float) -> Facts | None:
    """Return what a service noted of a run that is over; None where it cannot be read."""
    # With no time left it is looked at once all the same.
    while is_over_within(folder, deadline - time.monotonic()):
        try:
            return stored_facts(folder)
        except RunInUseError:  # since it was over: it goes on, or its file is made small
            if time.monotonic() >= deadline:
                break
    raise _not_over(folder, _RECORDED)


def _not_known(folder: RunFolder) -> str:
    return (
        f"What options the exporters of run {folder.id!r} had is not known: it was recorded by an older version. They "
        "get none now, and the variables of this process: a backend that was elsewhere gets a second run."
    )


def _taken(service: Service, folder: RunFolder, request: bytes, deadline: float) -> tuple[str, ...]:
    service.start()
    try:
        _post(f"{service.endpoint}/v1/logs", service.token, request)
        # Until the run is over again: its exporters have it, and have told their backends how the run had ended.
        is_over = service.wait(max(deadline - time.monotonic(), 0.0))
    except OSError as error:
        raise NotAttachedError(f"The run's service did not take the report: {error}. Try again.") from error
    finally:
        service.stop(max(deadline - time.monotonic(), 1.0))
    left = _facts(folder, deadline)
    assert left is not None
    behind = [mark.name for mark in left.exporters if mark.seq < left.last_seq]
    if behind or not is_over:
        missing = ", ".join(behind) or "the end of the run"
        raise NotAttachedError(
            f"The report is in run {folder.id!r}; what is missing in time: {missing}. `otel-ml recover` does the rest."
        )
    if not left.exporters:
        raise NotAttachedError(f"Run {folder.id!r} has no exporter that could take the report: use it as a file.")
    return tuple(mark.name for mark in left.exporters)


def _request(run: Unfinished, file: Path, name: str, kind: str) -> bytes:
    """Return one log record, as any OpenTelemetry SDK could send it: no running number, so no writer to wait for."""
    content = file.read_bytes()
    record = LogRecord(
        time_unix_nano=time.time_ns(),
        event_name=wire.EVENT_ARTIFACT,
        body=AnyValue(bytes_value=content) if len(content) <= _INLINE else None,
        attributes=[
            _text(wire.NAME, name),
            _text("ml.artifact.type", kind),
            _text("ml.artifact.path_in", file.name),
            _text("ml.artifact.uri", file.absolute().as_uri()),
            _text("ml.artifact.sha256", hashlib.sha256(content).hexdigest()),
            KeyValue(key="ml.artifact.size", value=AnyValue(int_value=len(content))),
        ],
    )
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    identity = {
        wire.EXPERIMENT_ID: run.id,
        wire.EXPERIMENT_NAME: run.experiment,
        "service.name": "trainer",
        "service.instance.id": "otel-ml-report",
    }
    resource.resource.attributes.extend(_text(key, value) for key, value in identity.items())
    resource.scope_logs.add().log_records.append(record)
    return request.SerializeToString()


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _post(url: str, token: str, body: bytes) -> None:
    headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, body, headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this host
    with direct.open(request, timeout=_ANSWER_S):
        pass
