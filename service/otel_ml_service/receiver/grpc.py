"""OTLP over gRPC (needs `pip install 'otel-ml[grpc]'`): the same verdicts as HTTP, as gRPC status codes.

Nothing transient may leave as UNKNOWN or INTERNAL, which an uncaught exception would: a Collector then
drops the data for good (OTLP specification, “Failures”).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.explanation import explained
from otel_ml_service.receiver.admission import MAX_REQUEST, Admission
from otel_ml_service.receiver.decode import Signal, response
from otel_ml_service.receiver.partial_success import UndecodableError
from otel_ml_service.receiver.refusal_log import WRONG_TOKEN, RefusalLog
from otel_ml_service.receiver.tls import PemFiles, ServerCertificate
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Telemetry

__all__ = ["MESSAGE_S", "GrpcReceiver"]

_log = logging.getLogger(__name__)

_DECODING = 4
"""Requests decoded at once. More are slower: it holds the interpreter (measured: 4 threads 419k points/s, 32 less)."""

_THREADS = 64
"""Calls at once: most of them wait for their message or for the journal."""

_HANDSHAKE_S = 10.0
"""Until TLS is agreed on, and HTTP/2 is spoken; as over HTTP."""

_STREAMS = 64
"""Calls at once on one connection; further ones wait at the sender."""

_STORED_S = 30.0
"""How long a request waits for the journal before the sender is told to come back."""

_SERVICES: Sequence[tuple[Signal, str]] = (
    ("metrics", "opentelemetry.proto.collector.metrics.v1.MetricsService"),
    ("traces", "opentelemetry.proto.collector.trace.v1.TraceService"),
    ("logs", "opentelemetry.proto.collector.logs.v1.LogsService"),
)


class GrpcReceiver:
    """Listens on one address."""

    def __init__(
        self,
        admission: Admission,
        telemetry: Telemetry,
        host: str,
        port: int,
        refusals: RefusalLog,
        *,
        tokens: Tokens,
        tls: ServerCertificate | None = None,
    ) -> None:
        try:
            import grpc
        except ModuleNotFoundError as error:
            raise MissingDependencyError("OTLP over gRPC", package="grpcio", extra="grpc") from error
        self._grpc = grpc
        self._admission = admission
        self._telemetry = telemetry
        self._refusals = refusals
        self._host, self._port = host, port
        self._tokens = tokens
        self._tls = tls
        self._decoding = threading.BoundedSemaphore(_DECODING)
        self._call_timeout = CallTimeout()
        self._server: Any = None

    def start(self) -> tuple[str, int]:
        """Bind, start to serve, and return the address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        grpc = self._grpc
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="otel-ml-grpc"),
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST),
                # Another service on this port is to be refused, and not to get every other connection.
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", _STREAMS),
                ("grpc.server_handshake_timeout_ms", int(_HANDSHAKE_S * 1000)),
                ("grpc.max_connection_idle_ms", 300_000),  # as over HTTP; without end where nothing is said
            ],
        )
        self._server.add_generic_rpc_handlers(tuple(self._handlers()))
        address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._credentials(self._tls))
        except RuntimeError as error:
            port = 0
            reason = str(error)
        else:
            reason = "address in use"
        if port == 0:
            raise ConfigError(
                f"Cannot listen on {address} for gRPC: {reason}. "
                "Stop what uses it, or choose another address with OTEL_ML_LISTEN_GRPC=HOST:PORT.",
                slug="cannot-listen",
            )
        self._call_timeout.start()
        self._server.start()
        return self._host, int(port)

    def stop(self, timeout: float) -> None:
        """Take no new requests, let those in progress be answered, and close; safe twice."""
        if self._server is not None:
            self._server.stop(timeout).wait(timeout + 1.0)
            self._call_timeout.stop()

    def _handlers(self) -> list[Any]:
        grpc = self._grpc
        handlers = []
        for signal, service in _SERVICES:
            # No deserializer: undecodable bytes are our verdict (INVALID_ARGUMENT), grpc's would be INTERNAL.
            # A stream on our side: of a sender without the token not one message is read.
            method = grpc.stream_unary_rpc_method_handler(self._export(signal))
            handlers.append(grpc.method_handlers_generic_handler(service, {"Export": method}))
        return handlers

    def _export(self, signal: Signal) -> Callable[[Iterator[bytes], Any], bytes]:
        code = self._grpc.StatusCode

        def export(messages: Iterator[bytes], context: Any) -> bytes:
            if not self._is_authorized(context):
                self._telemetry.count("refused", reason="unauthenticated")
                self._refusals.tell(_host(context.peer()), WRONG_TOKEN)
                sentence = "The bearer token is missing or wrong. Set OTEL_ML_TOKEN to the service's."
                # `abort` raises: no message of the call is read.
                context.abort(code.UNAUTHENTICATED, explained(sentence, "unauthenticated"))
            with self._call_timeout.with_(context):
                body = next(messages, b"")  # a call without a message is an empty request
            try:
                with self._decoding:
                    stored = self._admission.future(signal, body)
                # Outside of the semaphore: who waits for the journal does not keep others from decoding.
                decoded = stored.result(_STORED_S)
            except UndecodableError as error:
                self._telemetry.count("refused", reason="undecodable")
                context.abort(code.INVALID_ARGUMENT, explained(f"Cannot take this request: {error}", "bad-request"))
            except Exception as error:  # noqa: BLE001 (whatever else goes wrong may go right later)
                context.abort(code.UNAVAILABLE, explained(f"Not stored: {error or type(error).__name__}", "not-stored"))
            encoded: bytes = response(signal, decoded.rejections).SerializeToString()
            return encoded

        return export

    def _is_authorized(self, context: Any) -> bool:
        given = dict(context.invocation_metadata()).get("authorization", "")
        return self._tokens.accept(given.encode() if isinstance(given, str) else given)

    def _credentials(self, tls: ServerCertificate) -> Any:
        """Return credentials that ask for a renewed certificate at each connection."""
        grpc, shown = self._grpc, tls.current()
        is_mutual = shown.client_ca is not None

        def configuration(files: PemFiles) -> Any:
            return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)], files.client_ca)

        def renewed() -> Any:
            nonlocal shown
            before, shown = shown, tls.current()
            # None: gRPC goes on with the certificate that it has.
            return None if shown == before else configuration(shown)

        return grpc.dynamic_ssl_server_credentials(
            configuration(shown), renewed, require_client_authentication=is_mutual
        )


def _host(peer: str) -> str:
    """Return the host of what gRPC calls a peer: `ipv4:10.0.0.3:5555`, `ipv6:[::1]:5555`."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer


MESSAGE_S = 60.0
"""From the call's headers to the end of its message; 64 MiB at 10 Mbit/s, as over HTTP."""

_LOOK_S = 1.0


class Call(Protocol):
    """A gRPC servicer's context."""

    def cancel(self) -> None:
        """End the call."""


class CallTimeout:
    """Cancels calls that take longer, on a thread of its own: grpcio has no such limit, and each holds a thread."""

    def __init__(self) -> None:
        # Guards _until: the receiver's threads add and remove, ours looks.
        self._lock = threading.Lock()
        self._until: dict[Call, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="otel-ml-grpc-timeout", daemon=True)

    def start(self) -> None:
        """Start to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; safe twice."""
        self._stopped.set()

    @contextmanager
    def with_(self, call: Call) -> Iterator[None]:
        """Give `call` its time inside the block."""
        with self._lock:
            self._until[call] = time.monotonic() + MESSAGE_S
        try:
            yield
        finally:
            with self._lock:
                del self._until[call]

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            now = time.monotonic()
            with self._lock:
                overdue = [call for call, until in self._until.items() if until <= now]
            # Without the lock: a call that ends takes it.
            for call in overdue:
                call.cancel()
