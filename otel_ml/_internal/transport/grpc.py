"""OTLP over gRPC, with grpcio (extra `grpc`); the bodies are the same bytes as over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otel_ml._internal.transport.answer import Answer, accepted
from otel_ml._internal.transport.credentials import Credentials
from otel_ml._internal.transport.grpc_answer import answer_of
from otel_ml._internal.transport.url import Target
from otel_ml.config import Endpoint
from otel_ml.exceptions import MissingDependencyError, WireError

__all__ = ["GrpcTransport"]

_SERVICE = "/opentelemetry.proto.collector"
METHODS = {
    "/v1/metrics": f"{_SERVICE}.metrics.v1.MetricsService/Export",
    "/v1/traces": f"{_SERVICE}.trace.v1.TraceService/Export",
    "/v1/logs": f"{_SERVICE}.logs.v1.LogsService/Export",
}
_METADATA = re.compile(r"[0-9a-z_.\-]+(?<!-bin)")

_RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    # The sender has pauses of its own; those of the channel come on top.
    ("grpc.max_reconnect_backoff_ms", 1000),
    # How long a connection may take that is accepted and then silent, as that of a stopped receiver; by default 20 s.
    ("grpc.min_reconnect_backoff_ms", 5000),
)


_MOST_TIMES = 1024.0
"""Of the usual time; `_SLOWEST` bounds it before, but for the largest records."""

_SLOWEST = 8 * 1024
"""Bytes a second, of a link that is waited for."""


class GrpcTransport:
    """Posts OTLP to an endpoint; the channel is opened when first used.

    Of a request under way gRPC says nothing. One that was given up is given twice the time when it comes again, up to
    what a slow link needs for it.

    Raises:
        MissingDependencyError: grpcio is not installed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            import grpc
        except ModuleNotFoundError as error:
            raise MissingDependencyError("OTEL_EXPORTER_OTLP_PROTOCOL=grpc", package="grpcio", extra="grpc") from error
        self._grpc: Any = grpc
        self._endpoint = endpoint
        self._credentials = Credentials(endpoint)
        self._channels: dict[str, Any] = {}
        self._times = 1.0

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        answer = self._credentials.again_where_denied(lambda: self._post(path, body, timeout))
        if answer.outcome == "ok":
            self._times = max(1.0, self._times / 2)
        return answer

    def _post(self, path: str, body: bytes, timeout: float) -> Answer:
        url = self._endpoint.signals.get(path) or self._endpoint.url
        compression = self._grpc.Compression.Gzip if self._endpoint.compression == "gzip" else None
        try:
            call = self._channel(url).unary_unary(METHODS[path])
            # Twice as long after each attempt in vain, but no longer than a link of `_SLOWEST` takes for this body.
            longest = min(timeout * self._times, timeout + len(body) / _SLOWEST)
            return accepted(call(body, timeout=longest, metadata=self._metadata(), compression=compression))
        except self._grpc.RpcError as error:
            if error.code() == self._grpc.StatusCode.DEADLINE_EXCEEDED:
                self._times = min(2 * self._times, _MOST_TIMES)
            self._renew(url, error.code().name)
            return answer_of(error.code().name, error.details() or "", error.trailing_metadata() or (), _target(url))
        except WireError as error:
            return Answer("retry", reason=f"{error}", obstacle="not-otlp")
        except (OSError, ValueError) as error:  # a certificate's file, an endpoint
            return Answer("retry", reason=f"unreachable: {error}")

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the headers that gRPC has a place for: others would be an error in each request."""
        return tuple(pair for pair in self._credentials.headers.items() if _METADATA.fullmatch(pair[0]))

    def get(self, path: str, timeout: float) -> bytes | None:
        """Return None: what a service says beyond OTLP is HTTP only."""
        del path, timeout
        return None

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def forget(self) -> None:
        """Leave the parent's channels alone: gRPC objects must not be touched in a forked child."""
        self._channels = {}

    def _channel(self, url: str) -> Any:
        if url not in self._channels:
            options = [("grpc.max_receive_message_length", 4 * 2**20), *_RECONNECT]
            if Target.parse(url).is_loopback:
                options.append(("grpc.enable_http_proxy", 0))  # grpcio would ask the proxy for this host's own ports
            if self._is_secure(url):
                self._channels[url] = self._grpc.secure_channel(_target(url), self._certificates(), options)
            else:
                self._channels[url] = self._grpc.insecure_channel(_target(url), options)
        return self._channels[url]

    def _is_secure(self, url: str) -> bool:
        return url.startswith("https://") or ("://" not in url and not self._endpoint.insecure)

    def _renew(self, url: str, code: str) -> None:
        """Let the next request read the certificates again, which may have been exchanged: a channel never does."""
        if code == "UNAVAILABLE" and self._is_secure(url) and (channel := self._channels.pop(url, None)) is not None:
            channel.close()

    def _certificates(self) -> Any:
        def content(name: str) -> bytes | None:
            return Path(name).read_bytes() if name else None

        return self._grpc.ssl_channel_credentials(
            root_certificates=content(self._endpoint.certificate),
            private_key=content(self._endpoint.client_key),
            certificate_chain=content(self._endpoint.client_certificate),
        )


def _target(url: str) -> str:
    return urlsplit(url if "://" in url else f"//{url}").netloc or url
