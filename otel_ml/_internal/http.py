"""OTLP over HTTP/1.1 on a plain keep-alive socket: no `requests`, no `http.client`, ssl only for https."""

from __future__ import annotations

import contextlib
import select
import socket
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_ml._internal.answer import Answer, accepted, denied
from otel_ml.config import Endpoint
from otel_ml.exceptions import WireError
from otel_ml.wire.protobuf import fields

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpTransport"]

RETRYABLE = frozenset({429, 502, 503, 504})
DENIED = frozenset({401, 403})
"""The status codes after which the same request may be sent again (OTLP specification)."""

MAX_ANSWER = 4 * 2**20
"""No otel_ml or OTLP answer is larger; a receiver must not fill a trainer's memory."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Target:
    """One URL, taken apart."""

    scheme: str
    host: str
    port: int
    path: str

    @staticmethod
    def parse(url: str) -> Target:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return Target(parts.scheme, parts.hostname or "localhost", port, path or "/")

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class BadAnswerError(OSError):
    """The peer does not speak HTTP/1.1 as expected."""


class HttpTransport:
    """Posts OTLP to an endpoint; connects when first used, and again when the connection was lost."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._socket: socket.socket | None = None
        self._connected_to: tuple[str, str, int] | None = None
        self._received = b""

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        target = self._target(path)
        headers = {"content-type": "application/x-protobuf", **self._endpoint.headers}
        if self._is_compressed(target):
            body = _gzip(body)
            headers["content-encoding"] = "gzip"
        try:
            status, answered, content = self._request("POST", target, headers, body, timeout)
        except (OSError, ValueError) as error:
            self.close()
            return Answer("retry", reason=f"unreachable: {error}{_tls_hint(target, error)}")
        if 200 <= status < 300:
            return accepted(content, _count(answered.get("otel-ml-notices")))
        reason = f"HTTP {status}{_said(content)}"
        if status in RETRYABLE:
            return Answer("retry", reason=reason, retry_after=_retry_after(answered.get("retry-after")))
        return denied(reason) if status in DENIED else Answer("refused", reason=reason)

    def get(self, path: str, timeout: float) -> bytes | None:
        if not self._endpoint.url:
            return None
        try:
            target = self._target(path)
            status, _, content = self._request("GET", target, self._endpoint.headers, b"", timeout)
        except (OSError, ValueError):
            self.close()
            return None
        return content if status == 200 else None

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._received = b""

    def forget(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Closes our copy of the descriptor only: no TLS goodbye on the parent's connection.
                socket.close(self._socket.detach())
        self._socket = None
        self._received = b""

    def _target(self, path: str) -> Target:
        return Target.parse(self._endpoint.signals.get(path) or f"{self._endpoint.url.rstrip('/')}{path}")

    def _is_compressed(self, target: Target) -> bool:
        if self._endpoint.compression == "auto":
            return target.host not in LOOPBACK
        return self._endpoint.compression == "gzip"

    def _request(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + timeout
        lines = [f"{method} {target.path} HTTP/1.1", f"host: {target.authority}", f"content-length: {len(body)}"]
        lines += [f"{key}: {value}" for key, value in headers.items()]
        message = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        was_open = self._socket is not None and self._connected_to == (target.scheme, target.host, target.port)
        try:
            return self._exchange(target, message, deadline)
        except (ConnectionError, BadAnswerError):
            self.close()
            if not was_open:
                raise
            # A kept connection that the peer closed meanwhile. Sending again is safe: everything has an identity.
            return self._exchange(target, message, deadline)

    def _exchange(self, target: Target, message: bytes, deadline: float) -> tuple[int, Mapping[str, str], bytes]:
        connection = self._connect(target, deadline)
        connection.settimeout(_left(deadline))
        connection.sendall(message)
        while True:
            status, headers = _parse_head(self._read_until(connection, b"\r\n\r\n", deadline))
            if status >= 200:
                break
        content = self._read_content(connection, status, headers, deadline)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, headers, content

    def _connect(self, target: Target, deadline: float) -> socket.socket:
        key = (target.scheme, target.host, target.port)
        if self._socket is not None and self._connected_to == key and not self._has_spoken(self._socket):
            return self._socket
        self.close()
        connection = socket.create_connection((target.host, target.port), timeout=_left(deadline))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if target.scheme == "https":
            try:
                connection = self._tls().wrap_socket(connection, server_hostname=target.host)
            except BaseException:
                connection.close()
                raise
        self._socket, self._connected_to = connection, key
        return connection

    def _has_spoken(self, connection: socket.socket) -> bool:
        """Whether the peer closed an idle connection, or said something nobody asked for: proxies say 408 there."""
        waiting = select.poll()  # `select()` refuses descriptors from 1,024 on
        waiting.register(connection, select.POLLIN)
        return bool(self._received or waiting.poll(0))

    def _tls(self) -> ssl.SSLContext:
        import ssl

        context = ssl.create_default_context(cafile=self._endpoint.certificate or None)
        if self._endpoint.client_certificate:
            context.load_cert_chain(self._endpoint.client_certificate, self._endpoint.client_key or None)
        return context

    def _read_content(
        self, connection: socket.socket, status: int, headers: Mapping[str, str], deadline: float
    ) -> bytes:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks(connection, deadline)
        if "content-length" in headers:
            return self._read_exactly(connection, int(headers["content-length"]), deadline)
        content = self._received
        self._received = b""
        while len(content) <= MAX_ANSWER:
            connection.settimeout(_left(deadline))
            part = connection.recv(65536)
            if not part:
                break
            content += part
        self.close()
        return content

    def _read_chunks(self, connection: socket.socket, deadline: float) -> bytes:
        content = b""
        while True:
            length = int(self._read_until(connection, b"\r\n", deadline).split(b";")[0], 16)
            part = self._read_exactly(connection, length + 2, deadline)[:length] if length else b""
            if not length:
                while self._read_until(connection, b"\r\n", deadline) != b"\r\n":
                    pass  # trailers
                return content
            content += part
            if len(content) > MAX_ANSWER:
                raise BadAnswerError("The answer is larger than 4 MiB.")

    def _read_until(self, connection: socket.socket, end: bytes, deadline: float) -> bytes:
        while end not in self._received:
            if len(self._received) > 65536:
                raise BadAnswerError("The answer's head is larger than 64 KiB.")
            self._receive(connection, deadline)
        head, _, self._received = self._received.partition(end)
        return head + end

    def _read_exactly(self, connection: socket.socket, length: int, deadline: float) -> bytes:
        if length > MAX_ANSWER:
            raise BadAnswerError("The answer is larger than 4 MiB.")
        while len(self._received) < length:
            self._receive(connection, deadline)
        content, self._received = self._received[:length], self._received[length:]
        return content

    def _receive(self, connection: socket.socket, deadline: float) -> None:
        connection.settimeout(_left(deadline))
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError("The peer closed the connection.")
        self._received += part


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
        raise BadAnswerError(f"The peer does not speak HTTP/1.1: it said {lines[0][:60]!r}.")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(parts[1]), {key.strip().lower(): value.strip() for key, _, value in pairs}


def _gzip(body: bytes) -> bytes:
    # Level 1: measured 12 % larger than level 6, at a fraction of the time.
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    return compressor.compress(body) + compressor.flush()


def _tls_hint(target: Target, error: Exception) -> str:
    """Servers that speak TLS hang up on plain text without a word."""
    if target.scheme != "http" or not isinstance(error, ConnectionResetError):
        return ""
    return f" (if it speaks TLS, write https://{target.authority})"


def _said(content: bytes) -> str:
    shown = (_message_of(content) or content)[:200]
    text = "".join(char for char in shown.decode("utf-8", "ignore") if char.isprintable()).strip()
    return f": {text}" if text else ""


def _message_of(content: bytes) -> bytes | None:
    """Return the message (field 2) of a `google.rpc.Status`, with which OTLP has receivers answer; None of others."""
    try:
        return next((value for number, value in fields(content) if number == 2 and isinstance(value, bytes)), None)
    except WireError:
        return None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _retry_after(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
