"""OTLP requests → observations. Protobuf stops here.

::

    body ─▶ message (upb) ─▶ resource → Writer ─▶ scope ─┬ metrics → points.py
                                                         ├ logs    → events.py
                                                         └ spans   → spans.py

A `Decoder` keeps the interned writers and shapes, so one belongs to one service. It may be used by several
threads: its caches are plain dictionaries of equal values, of which a race only makes one more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

from otel_ml_exporters.aggregation.observation import Observation, Writer
from otel_ml_exporters.receiver.events import decode_events
from otel_ml_exporters.receiver.otlp_json import parse_json
from otel_ml_exporters.receiver.points import MetricsDecoder, count_points
from otel_ml_exporters.receiver.rejection import Rejections, UndecodableError
from otel_ml_exporters.receiver.resource import Writers
from otel_ml_exporters.receiver.spans import decode_spans

__all__ = ["SIGNALS", "Decoded", "Decoder", "Signal", "response"]

Signal = Literal["metrics", "traces", "logs"]
SIGNALS: tuple[Signal, ...] = ("metrics", "traces", "logs")


@dataclass(frozen=True, slots=True)
class Decoded:
    """One request, decoded.

    Attributes:
        body: the request as OTLP protobuf, for the journal.
        observations: by `ml.experiment.id`.
        rejections: what will never be accepted.
    """

    signal: Signal
    body: bytes
    observations: Mapping[str, list[Observation]]
    rejections: Rejections


class Decoder:
    """Decodes requests of all three signals."""

    def __init__(self) -> None:
        self._writers = Writers()
        self._metrics = MetricsDecoder()
        self._scope: Mapping[Signal, Callable[[Writer, Any, Rejections], list[Any]]] = {
            "metrics": self._metrics.scope,
            "traces": decode_spans,
            "logs": decode_events,
        }

    def protobuf(self, signal: Signal, body: bytes) -> Decoded:
        """Decode an OTLP protobuf request.

        Raises:
            UndecodableError: it is not one.
        """
        try:
            message = _REQUESTS[signal].FromString(body)
        except DecodeError as error:
            raise UndecodableError(f"the body is not an OTLP {signal} request in protobuf: {error}") from error
        return self._decoded(signal, body, message)

    def json(self, signal: Signal, body: bytes) -> Decoded:
        """Decode an OTLP/JSON request.

        Raises:
            UndecodableError: it is not one.
        """
        message = parse_json(body, _REQUESTS[signal]())
        return self._decoded(signal, message.SerializeToString(), message)

    def _decoded(self, signal: Signal, body: bytes, message: Any) -> Decoded:
        rejections = Rejections()
        observations: dict[str, list[Observation]] = {}
        resources, scopes, count = _PARTS[signal]
        for resource in getattr(message, resources):
            writer = self._writers.of(resource.resource)
            for scope in getattr(resource, scopes):
                if isinstance(writer, str):
                    rejections.add(writer, count(scope), slug="bad-resource")
                    continue
                before = rejections.total
                found = self._scope[signal](writer, scope, rejections)
                if rejections.total > before:
                    rejections.experiments[writer.experiment] += rejections.total - before
                if found:
                    observations.setdefault(writer.experiment, []).extend(found)
        return Decoded(signal, body, observations, rejections)


def response(signal: Signal, rejections: Rejections) -> Any:
    """Return the `Export…ServiceResponse` message: empty, or with `partial_success`."""
    answer = _RESPONSES[signal]()
    if rejections.total:
        setattr(answer.partial_success, _REJECTED[signal], rejections.total)
        answer.partial_success.error_message = rejections.message
    return answer


_REQUESTS: Mapping[Signal, Any] = {
    "metrics": metrics.ExportMetricsServiceRequest,
    "traces": traces.ExportTraceServiceRequest,
    "logs": logs.ExportLogsServiceRequest,
}
_RESPONSES: Mapping[Signal, Any] = {
    "metrics": metrics.ExportMetricsServiceResponse,
    "traces": traces.ExportTraceServiceResponse,
    "logs": logs.ExportLogsServiceResponse,
}
_REJECTED: Mapping[Signal, str] = {
    "metrics": "rejected_data_points",
    "traces": "rejected_spans",
    "logs": "rejected_log_records",
}
_PARTS: Mapping[Signal, tuple[str, str, Callable[[Any], int]]] = {
    "metrics": ("resource_metrics", "scope_metrics", count_points),
    "traces": ("resource_spans", "scope_spans", lambda scope: len(scope.spans)),
    "logs": ("resource_logs", "scope_logs", lambda scope: len(scope.log_records)),
}
