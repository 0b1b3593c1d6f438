"""A small OTLP/HTTP receiver for tests: remembers what it got, answers what it is told to."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests import waiting

MESSAGES = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Reply(NamedTuple):
    """What to answer to one request."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Point(NamedTuple):
    """One metric point, with what its scope and resource say."""

    name: str
    step: int | None
    axis: str | None
    reduction: str | None
    seq: int | None
    resource: Mapping[str, Any]
    attributes: Mapping[str, Any]
    count: int
    value: float


class Event(NamedTuple):
    """One log record."""

    name: str
    body: Any
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


def value_of(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [value_of(item) for item in any_value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: value_of(pair.value) for pair in any_value.kvlist_value.values}
    return getattr(any_value, kind)


def attributes_of(pairs: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in pairs}


class OtlpServer:
    """Receives on a free loopback port.

    Attributes:
        requests: (path, headers, decoded message), in order of arrival.
        replies: what to answer to the next requests; 200 once it is empty.
        pages: path → JSON, for GET.
        headers: of every answer to an export.
        pause: seconds before every answer to an export.
    """

    def __init__(self, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []
        self.replies: list[Reply] = []
        self.pages: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.pause = 0.0
        self.connections = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server.connections += 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                time.sleep(server.pause)
                reply = server.replies.pop(0) if server.replies else Reply()
                if reply.status == 200:
                    message = MESSAGES[self.path].FromString(body)
                    server.requests.append((self.path, dict(self.headers), message))
                self._answer(reply.status, reply.body, {**server.headers, **reply.headers})

            def do_GET(self) -> None:
                found = server.pages.get(self.path.partition("?")[0])
                self._answer(404 if found is None else 200, b"" if found is None else json.dumps(found).encode(), {})

            def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.port: int = self._http.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def points(self, name: str | None = None) -> list[Point]:
        """All metric points, manifests and positions only if asked for by name."""
        found = [
            point for path, _, message in list(self.requests) if path == "/v1/metrics" for point in points_of(message)
        ]
        return [
            point for point in found if point.name == name or (name is None and not point.name.startswith("otel_ml."))
        ]

    def events(self, name: str | None = None) -> list[Event]:
        found = [
            event for path, _, message in list(self.requests) if path == "/v1/logs" for event in events_of(message)
        ]
        return [event for event in found if name in (None, event.name)]

    def spans(self) -> list[tuple[Any, Mapping[str, Any]]]:
        """(span, resource attributes) of all spans."""
        return [
            (span, attributes_of(resource.resource.attributes))
            for path, _, message in list(self.requests)
            if path == "/v1/traces"
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def points_of(message: Any) -> Iterator[Point]:
    for resource in message.resource_metrics:
        about = attributes_of(resource.resource.attributes)
        for scope in resource.scope_metrics:
            said = attributes_of(scope.scope.attributes)
            for metric in scope.metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    is_number = hasattr(point, "as_double")
                    value = (
                        (point.as_double if point.WhichOneof("value") == "as_double" else point.as_int)
                        if is_number
                        else point.sum
                    )
                    yield Point(
                        metric.name, said.get("ml.step"), said.get("ml.step.axis"), said.get("ml.reduction"),
                        said.get("ml.seq"), about, attributes_of(point.attributes),
                        1 if is_number else point.count, value,
                    )  # fmt: skip


def events_of(message: Any) -> Iterator[Event]:
    for resource in message.resource_logs:
        about = attributes_of(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield Event(record.event_name, value_of(record.body), attributes_of(record.attributes), about)


@contextmanager
def otlp_server(**arguments: Any) -> Iterator[OtlpServer]:
    server = OtlpServer(**arguments)
    try:
        yield server
    finally:
        server.close()


def eventually(condition: Callable[[], Any], *, within: float = 15.0) -> Any:
    """Return the condition's first true value; fail if there is none in time."""
    return waiting.eventually(condition, timeout=within)
