"""OTLP over HTTP/1.1 on a plain keep-alive socket: no `requests`, no `http.client`, ssl only for https.

A worker pays for what it imports: this takes 16 ms and 1.4 MB, `requests` 72 ms and 12 MB, `httpx` 95 ms and 12 MB.
`http.client` takes as long as this and 2 MB more, and it lacks what most of the code here is for:

* A request goes on for as long as bytes of it are taken, however slow a link is; its answer has one deadline, whatever
  a receiver does (`idle_timeout.py`). Timeouts of others begin anew with each byte of the answer, and know none.
* An answer is bounded, so that a receiver cannot fill a trainer's memory, and one of HTTP/2 says that gRPC is meant.
* Nothing is global and nothing is pooled: a signal handler or a forked child finds no lock that is held, and the
  descriptor can be kept above the standard ones. It is ours alone: what a program opens under its number is left as
  it is (`own_socket.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.credentials import Credentials
from otel_ml._internal.transport.http_answer import HttpAnswer, answer_of
from otel_ml._internal.transport.idle_timeout import IdleTimeout
from otel_ml._internal.transport.own_socket import OwnSocket, connect
from otel_ml._internal.transport.proxy import FindProxy, Proxy, directly
from otel_ml._internal.transport.url import Target
from otel_ml.config import Endpoint
from otel_ml.endpoint import signal_url

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpTransport"]

MAX_ANSWER = 4 * 2**20
"""No otel_ml or OTLP answer is larger; a receiver must not fill a trainer's memory."""

GRPC_PORT = 4317
"""By convention."""


class BadAnswerError(OSError):
    """The peer does not speak HTTP/1.1 as expected."""


class OtherProtocolError(BadAnswerError):
    """The peer speaks HTTP/2, as gRPC servers do."""


class HttpTransport:
    """Posts OTLP to an endpoint; connects when first used, and again when the connection was lost.

    Args:
        find_proxy: returns the proxy through which a target is reached, if any.
    """

    def __init__(self, endpoint: Endpoint, find_proxy: FindProxy = directly) -> None:
        self._endpoint = endpoint
        self._credentials = Credentials(endpoint)
        self._find_proxy = find_proxy
        self._proxies: dict[str, Proxy | None] = {}
        self._socket: OwnSocket | None = None
        self._connected_to: tuple[str, str, int] | None = None
        self._received = b""

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        return self._credentials.again_where_denied(lambda: self._post(path, body, timeout))

    def _post(self, path: str, body: bytes, timeout: float) -> Answer:
        try:
            target = self._target(path)
            headers = {"content-type": "application/x-protobuf", **self._credentials.headers}
            if self._is_compressed(target):
                body = _gzip(body)
                headers["content-encoding"] = "gzip"
            return answer_of(self._request("POST", target, headers, body, timeout))
        # Only an exchange raises it: there is a `target` by then.
        except OtherProtocolError:
            self.close()
            return Answer("retry", reason=_speaks_grpc(target, "speaks gRPC"), obstacle="other-protocol")
        except (OSError, ValueError) as error:
            self.close()
            return _unreachable(self._url(path), error)

    def get(self, path: str, timeout: float) -> bytes | None:
        if not self._endpoint.url:
            return None
        try:
            answer = self._request("GET", self._target(path), self._credentials.headers, b"", timeout)
        except (OSError, ValueError):
            self.close()
            return None
        return answer.content if answer.status == 200 else None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._received = b""

    def forget(self) -> None:
        self.close()

    def _target(self, path: str) -> Target:
        return Target.parse(self._url(path))

    def _url(self, path: str) -> str:
        return self._endpoint.signals.get(path) or signal_url(self._endpoint.url, path)

    def _is_compressed(self, target: Target) -> bool:
        if self._endpoint.compression == "auto":
            return not target.is_loopback
        return self._endpoint.compression == "gzip"

    def _proxy_of(self, target: Target) -> Proxy | None:
        """Look once: what the program does to its environment later is for others."""
        key = f"{target.scheme}://{target.authority}"
        if key not in self._proxies:
            self._proxies[key] = self._find_proxy(target)
        return self._proxies[key]

    def _request(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> HttpAnswer:
        proxy = self._proxy_of(target)
        where = target.path
        if proxy is not None and target.scheme != "https":
            where = f"{target.scheme}://{target.authority}{target.path}"
            headers = {**headers, **proxy.headers}
        message = _head(f"{method} {where}", target, {"content-length": str(len(body)), **headers}) + body
        was_open = self._socket is not None and self._connected_to == (target.scheme, target.host, target.port)
        try:
            return self._exchange(target, proxy, message, IdleTimeout(timeout))
        except (ConnectionError, BadAnswerError):
            self.close()
            if not was_open:
                raise
            # A kept connection that the peer closed meanwhile. Sending again is safe: everything has an identity.
            return self._exchange(target, proxy, message, IdleTimeout(timeout))

    def _exchange(self, target: Target, proxy: Proxy | None, message: bytes, timeout: IdleTimeout) -> HttpAnswer:
        connection = self._connect(target, proxy, timeout)
        connection.send(message, timeout)
        status, headers = self._read_head(connection, timeout)
        content = self._read_content(connection, status, headers, timeout)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return HttpAnswer(status, headers, _decoded(content, headers.get("content-encoding", "")))

    def _read_head(self, connection: OwnSocket, timeout: IdleTimeout) -> tuple[int, dict[str, str]]:
        while True:
            # Below 200 it is not the answer yet (100 Continue).
            status, headers = _parse_head(self._read_until(connection, b"\r\n\r\n", timeout, begin=b"HTTP/1."))
            if status >= 200:
                return status, headers

    def _connect(self, target: Target, proxy: Proxy | None, timeout: IdleTimeout) -> OwnSocket:
        key = (target.scheme, target.host, target.port)
        if self._socket is not None and self._connected_to == key and self._is_idle(self._socket):
            return self._socket
        self.close()
        first = target if proxy is None else proxy.target
        connection = connect(first.host, first.port, timeout)
        try:
            if proxy is not None:
                self._through(proxy, target, connection, timeout)
            if target.scheme == "https":
                connection.secure(self._tls(), target.host, timeout)
        except BaseException:
            connection.close()
            raise
        # Only now: a connection whose proxy or TLS has failed is not kept.
        self._socket, self._connected_to = connection, key
        return connection

    def _through(self, proxy: Proxy, target: Target, connection: OwnSocket, timeout: IdleTimeout) -> None:
        """Make it a connection to the proxy, or, where the target speaks TLS, through it."""
        # Without TLS nothing is to be agreed on before: the request has the whole URL (`_request()`).
        if target.scheme != "https":
            if proxy.target.scheme == "https":
                connection.secure(self._tls(), proxy.target.host, timeout)
            return
        if proxy.target.scheme == "https":
            raise OSError(f"the proxy {proxy.shown} is to be spoken to in TLS, which is not supported for https")
        connection.send(_head(f"CONNECT {target.authority}", target, proxy.headers), timeout)
        status, _ = self._read_head(connection, timeout)
        if status != 200:
            raise OSError(f"the proxy {proxy.shown} answered HTTP {status} to CONNECT {target.authority}")

    def _is_idle(self, connection: OwnSocket) -> bool:
        """Whether it can be used: the peer has neither closed it nor said what nobody asked for (proxies say 408)."""
        return connection.is_ours() and not self._received and not connection.is_readable()

    def _tls(self) -> ssl.SSLContext:
        import ssl

        context = ssl.create_default_context(cafile=self._endpoint.certificate or None)
        if self._endpoint.client_certificate:
            context.load_cert_chain(self._endpoint.client_certificate, self._endpoint.client_key or None)
        return context

    def _read_content(
        self, connection: OwnSocket, status: int, headers: Mapping[str, str], timeout: IdleTimeout
    ) -> bytes:
        if status in {204, 304}:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks(connection, timeout)
        if "content-length" in headers:
            return self._read_exactly(connection, _length(headers["content-length"]), timeout)
        # Neither a length nor chunks: it ends with the connection.
        content = self._received
        self._received = b""
        while len(content) <= MAX_ANSWER:
            part = connection.receive(timeout)
            if not part:
                break
            content += part
        self.close()
        return content

    def _read_chunks(self, connection: OwnSocket, timeout: IdleTimeout) -> bytes:
        content = b""
        while True:
            length = int(self._read_until(connection, b"\r\n", timeout).split(b";")[0], 16)
            # Behind each chunk stands a CRLF, which does not count for its length.
            part = self._read_exactly(connection, length + 2, timeout)[:length] if length else b""
            if not length:
                while self._read_until(connection, b"\r\n", timeout) != b"\r\n":
                    pass  # trailers
                return content
            content += part
            if len(content) > MAX_ANSWER:
                raise BadAnswerError("The answer is larger than 4 MiB.")

    def _read_until(self, connection: OwnSocket, end: bytes, timeout: IdleTimeout, *, begin: bytes = b"") -> bytes:
        while end not in self._received:
            _check_begin(self._received, begin)
            if len(self._received) > 65536:
                raise BadAnswerError("The answer's head is larger than 64 KiB.")
            self._receive(connection, timeout)
        head, _, self._received = self._received.partition(end)
        return head + end

    def _read_exactly(self, connection: OwnSocket, length: int, timeout: IdleTimeout) -> bytes:
        if length > MAX_ANSWER:
            raise BadAnswerError("The answer is larger than 4 MiB.")
        while len(self._received) < length:
            self._receive(connection, timeout)
        content, self._received = self._received[:length], self._received[length:]
        return content

    def _receive(self, connection: OwnSocket, timeout: IdleTimeout) -> None:
        part = connection.receive(timeout)
        if not part:
            raise ConnectionResetError("The peer closed the connection.")
        self._received += part


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    # In Latin-1 every byte is a character: no peer makes this fail.
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
        raise BadAnswerError(f"The peer does not speak HTTP/1.1: it said {lines[0][:60]!r}.")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(parts[1]), {key.strip().lower(): value.strip() for key, _, value in pairs}


def _gzip(body: bytes) -> bytes:
    # Level 1: measured 12 % larger than level 6, at a fraction of the time.
    # 31: with the head of a gzip file.
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    return compressor.compress(body) + compressor.flush()


def _head(first: str, target: Target, headers: Mapping[str, str]) -> bytes:
    lines = [f"{first} HTTP/1.1", f"host: {target.authority}", *(f"{key}: {value}" for key, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadAnswerError(f"The peer does not speak HTTP/1.1: it said content-length: {text[:60]!r}.")
    return int(text)


def _check_begin(received: bytes, begin: bytes) -> None:
    """Do not wait for the rest of what is not an answer of HTTP/1.

    Raises:
        OtherProtocolError: it begins with HTTP/2's SETTINGS or GOAWAY (RFC 9113, §4.1).
        BadAnswerError: it begins otherwise.
    """
    if begin.startswith(received[: len(begin)]):
        return
    if received[:2] == b"\0\0" and received[3:4] in {b"", b"\4", b"\7"}:
        raise OtherProtocolError("The peer speaks HTTP/2.")
    raise BadAnswerError(f"The peer does not speak HTTP/1.1: it said {received[:60]!r}.")


def _decoded(content: bytes, encoding: str) -> bytes:
    """Return content that a proxy has compressed, though nobody asked for it, as it was."""
    if encoding.lower() not in {"gzip", "x-gzip", "deflate"}:
        return content
    # 47: gzip or zlib, whichever it is.
    unpacking = zlib.decompressobj(47)
    try:
        plain = unpacking.decompress(content, MAX_ANSWER)
    except zlib.error as error:
        raise BadAnswerError(f"The answer is not {encoding}: {error}.") from None
    if not unpacking.eof:
        raise BadAnswerError(f"The answer ends inside its {encoding}, or is larger than 4 MiB.")
    return plain


def _speaks_grpc(target: Target, why: str) -> str:
    return f"{target.authority} {why}. Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use the port for HTTP, usually 4318"


def _unreachable(url: str, error: Exception) -> Answer:
    """Return why nothing was answered; servers that speak TLS, and some that speak gRPC, hang up without a word."""
    reason = f"unreachable: {error}"
    if isinstance(error, ConnectionResetError) and (target := Target.parse(url)).scheme == "http":
        if target.port == GRPC_PORT:
            said = _speaks_grpc(target, "hangs up, and is usually gRPC's port")
            return Answer("retry", reason=said, obstacle="other-protocol")
        reason += f" (if it speaks TLS, write https://{target.authority})"
    return Answer("retry", reason=reason, timed_out=isinstance(error, TimeoutError))
