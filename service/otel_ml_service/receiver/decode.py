"""OTLP requests → observations. Protobuf stops here.

::

    body ─▶ message (upb) ─▶ resource → Writer ─▶ scope ─┬ metrics → metrics_decoder.py
                                                         ├ logs    → log_events.py
                                                         └ spans   → span_decoder.py

What writers send again and again is taken without decoding it: `fast_path.py`, `span_fast_path.py`.

A `Decoder` keeps the interned writers and shapes, so one belongs to one service. It may be used by several
threads: its caches are plain dictionaries of equal values, of which a race only makes one more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from otel_ml_service.aggregation.observation import Observation, Writer, size_of
from otel_ml_service.receiver.attribute_aliases import Aliases
from otel_ml_service.receiver.fast_path import FastPath
from otel_ml_service.receiver.log_events import decode_events
from otel_ml_service.receiver.metrics_decoder import MetricsDecoder, count_points
from otel_ml_service.receiver.otlp_json import parse_json
from otel_ml_service.receiver.partial_success import Rejections, Unacceptable, UndecodableError
from otel_ml_service.receiver.request_parts import ResourcePart, parts
from otel_ml_service.receiver.resource import Writers
from otel_ml_service.receiver.span_decoder import decode_spans
from otel_ml_service.receiver.span_fast_path import SpanFastPath
from otel_ml_service.receiver.third_party_points import ThirdPartyReader

__all__ = ["NO_ALIASES", "SIGNALS", "Decoded", "Decoder", "Signal", "response"]

_log = logging.getLogger(__name__)

Signal = Literal["metrics", "traces", "logs"]
NO_ALIASES: Mapping[str, str] = {}
SIGNALS: tuple[Signal, ...] = ("metrics", "traces", "logs")

_REQUEST_BYTES = 700
"""What a request takes in memory beside its observations, about."""


class Decoded(NamedTuple):
    """One request, decoded.

    Attributes:
        body: the request as OTLP protobuf, for the journal.
        observations: by `ml.experiment.id`.
        rejections: what will never be accepted.
        size: bytes that it takes, about: of memory once `body` is in the journal, or of the journal, whichever is more.
    """

    signal: Signal
    body: bytes
    observations: dict[str, list[Observation]]
    rejections: Rejections
    size: int = 0


class Decoder:
    """Decodes requests of all three signals.

    Args:
        aliases: attributes of others that are read as ours.
    """

    def __init__(self, aliases: Mapping[str, str] = NO_ALIASES) -> None:
        self._aliases = Aliases(aliases)
        self._writers = Writers(self._aliases)
        self._metrics = MetricsDecoder()
        # An alias of a step is an attribute that the reader does not know of.
        reader = None if aliases else ThirdPartyReader(self._metrics_of, self._metrics.shapes.interned)
        self._messages = FastPath(self._metrics_of, reader)
        self._timers = SpanFastPath()
        self._fast: Mapping[Signal, Callable[[Writer, bytes], Sequence[Observation] | None]] = {
            "metrics": self._messages.take,
            "traces": lambda writer, message: self._timers.take(writer, [message]),
        }
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
            request = parts(body) if signal in self._fast else None
            if request is not None:
                return self._by_fast_path(signal, body, request)
            return self._decoded(signal, body, _REQUESTS[signal].FromString(body))
        except DecodeError as error:
            raise UndecodableError(f"the body is not an OTLP {signal} request in protobuf: {error}") from error

    def json(self, signal: Signal, body: bytes) -> Decoded:
        """Decode an OTLP/JSON request.

        Raises:
            UndecodableError: it is not one.
        """
        message = parse_json(body, _REQUESTS[signal]())
        # The journal holds protobuf alone: `Admission.again` decodes nothing else.
        return self._decoded(signal, message.SerializeToString(), message)

    def part(self, decoded: Decoded, experiments: Container[str]) -> Decoded:
        """Return what of a request is of some runs, as a request; without what of it will never be accepted."""
        resources, _, _ = _PARTS[decoded.signal]
        body = _REQUESTS[decoded.signal]()
        for resource in getattr(_REQUESTS[decoded.signal].FromString(decoded.body), resources):
            writer = self._writers.of(resource.resource)
            if isinstance(writer, Writer) and writer.experiment in experiments:
                getattr(body, resources).append(resource)
        observations = {of: found for of, found in decoded.observations.items() if of in experiments}
        return _sized(Decoded(decoded.signal, body.SerializeToString(), observations, Rejections()))

    def _decoded(self, signal: Signal, body: bytes, message: Any) -> Decoded:
        decoded = Decoded(signal, body, {}, Rejections())
        resources, scopes, _ = _PARTS[signal]
        for resource in getattr(message, resources):
            writer = self._writers.of(resource.resource)
            for scope in getattr(resource, scopes):
                self._add(decoded, writer, scope)
        return _sized(decoded)

    def _by_fast_path(self, signal: Signal, body: bytes, request: list[ResourcePart]) -> Decoded:
        """Decode only what has to be."""
        decoded = Decoded(signal, body, {}, Rejections())
        for resource, places in request:
            writer = self._writers.encoded(resource)
            together = signal == "traces" and len(places) > 1  # of each, the engine would take as long as of all
            if together and isinstance(writer, Writer):
                spans = self._timers.take(writer, [body[start:end] for start, end in places])
                # Else one of them has to be decoded, and each is looked at by itself below.
                if spans:
                    decoded.observations.setdefault(writer.experiment, []).extend(spans)
                    continue
            known: Sequence[Observation | None] = [None] * len(places)
            if signal == "metrics" and isinstance(writer, Writer):
                known = self._messages.known(writer, body, places)
            for (start, end), observation in zip(places, known, strict=True):
                if observation is None:
                    self._take(decoded, writer, body[start:end])
                else:
                    decoded.observations.setdefault(observation.writer.experiment, []).append(observation)
        return _sized(decoded)

    def _take(self, decoded: Decoded, writer: Writer | Unacceptable, message: bytes) -> None:
        """Take a ScopeMetrics or ScopeSpans by its form, else decode it, and learn that."""
        found = self._fast[decoded.signal](writer, message) if isinstance(writer, Writer) else None
        if isinstance(writer, Writer) and found is not None:
            decoded.observations.setdefault(writer.experiment, []).extend(found)
            return
        added = self._add(decoded, writer, _SCOPES[decoded.signal].FromString(message))
        self._messages.learn(message, added)

    def _metrics_of(self, writer: Writer, message: bytes) -> list[Observation]:
        scope = ScopeMetrics.FromString(message)
        self._aliases.rename(scope)
        # Nobody is told of these rejections: what is decoded here is a copy that shows where its points go.
        return self._metrics.scope(writer, scope, Rejections())

    def _add(self, decoded: Decoded, writer: Writer | Unacceptable, scope: Any) -> list[Observation]:
        """Decode a scope; return its observations where all of it could be used."""
        signal, rejections = decoded.signal, decoded.rejections
        before = rejections.total
        rejections.sender = writer
        if isinstance(writer, Unacceptable):
            rejections.add(writer.reason, _PARTS[signal][2](scope), slug="bad-resource")
            return []
        self._aliases.rename(scope)
        found = self._found(signal, writer, scope, rejections)
        if found:
            decoded.observations.setdefault(writer.experiment, []).extend(found)
        # The form of a message is learned from what this returns: of one that was not taken whole, others would be.
        return found if rejections.total == before else []

    def _found(self, signal: Signal, writer: Writer, scope: Any, rejections: Rejections) -> list[Any]:
        try:
            return self._scope[signal](writer, scope, rejections)
        except MemoryError:
            raise  # may go right later
        except Exception:  # noqa: BLE001 (a defect of ours; the same bytes would meet it again, however often they come)
            _log.exception("A scope of %s could not be decoded. Please report it with this log.", signal)
            rejections.add("the service has an internal error, see its log.", _PARTS[signal][2](scope))
            return []


def response(signal: Signal, rejections: Rejections) -> Any:
    """Return the `Export…ServiceResponse` message: empty, or with `partial_success`."""
    answer = _RESPONSES[signal]()
    if rejections.total:
        setattr(answer.partial_success, _REJECTED[signal], rejections.total)
        answer.partial_success.error_message = rejections.message
    return answer


def _sized(decoded: Decoded) -> Decoded:
    held = sum([size_of(one) for found in decoded.observations.values() for one in found], _REQUEST_BYTES)
    return decoded._replace(size=max(held, len(decoded.body)))


_REQUESTS: Mapping[Signal, Any] = {
    "metrics": metrics.ExportMetricsServiceRequest,
    "traces": traces.ExportTraceServiceRequest,
    "logs": logs.ExportLogsServiceRequest,
}
_SCOPES: Mapping[Signal, Any] = {"metrics": ScopeMetrics, "traces": ScopeSpans}
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
