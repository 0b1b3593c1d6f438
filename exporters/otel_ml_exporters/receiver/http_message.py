"""HTTP/1.1 requests out of a byte stream, and answers into one; no socket here.

Small on purpose: what OTLP senders, browsers and curl use. Everything ambiguous is refused (RFC 9112 §6.3, §11.2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["BadRequestError", "Head", "RequestParser", "Response"]

MAX_HEAD = 32 * 1024
"""Bytes of request line and headers."""

_MAX_CHUNK_LINE = 256

_FRAMING = frozenset({"content-length", "transfer-encoding"})
"""Headers that say where a body ends."""

_LENGTH = re.compile(rb"(?<=[^\r\n])\r\ncontent-length:[ \t]*([0-9]{1,19})[ \t]*(?=\r\n|\Z)", re.IGNORECASE)
"""A whole line, behind the request line: what is before that is empty lines only (RFC 9112 §2.2)."""

_KNOWN_SIZE = 2048
"""Bytes of a head that is remembered; a worker's has some 200, a proxy adds its own."""


class BadRequestError(Exception):
    """The request cannot be answered with anything but `status`; the connection is then closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Head:
    """Request line and headers; header names are lower case. Requests that say the same may have the same object."""

    method: str
    target: str
    headers: Mapping[str, str]
    keep_alive: bool

    @cached_property
    def path(self) -> str:
        """The path, percent-decoded."""
        return unquote(urlsplit(self.target).path)

    @cached_property
    def media_type(self) -> str:
        """The content-type without parameters, lower case; "" where it is not said."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @cached_property
    def host(self) -> str:
        """The name or address the sender believes to talk to, without port and brackets; "" where it does not say."""
        name = self.headers.get("host", "")
        return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters; the last of equal names."""
        return {key: values[-1] for key, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass(frozen=True)
class Response:
    """An answer."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, keep_alive: bool) -> bytes:
        """Return the bytes to send."""
        connection = b"connection: keep-alive" if keep_alive else b"connection: close"
        return self._before_connection + connection + b"\r\n\r\n" + self.body

    @cached_property
    def _before_connection(self) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"content-type: {self.content_type}",
            f"content-length: {len(self.body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


class RequestParser:
    """Reads one request after the other: feed bytes, then ask for the head, then for the body.

    Args:
        max_body: most bytes of a body as sent.
    """

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._buffer = bytearray()
        self._length: int | None = None
        self._chunks: bytearray | None = None
        self._chunk_left = 0
        self._in_trailer = False

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._buffer += data

    @property
    def buffered(self) -> int:
        """Bytes that are not handed out yet."""
        return len(self._buffer) + len(self._chunks or b"")

    @property
    def expected(self) -> int:
        """Bytes of the body whose head was returned last, as far as the head tells."""
        return self._length or 0

    @property
    def held(self) -> int:
        """Bytes of a request that is not complete."""
        return len(self._buffer) + len(self._chunks or b"")

    def head(self) -> Head | None:
        """Return the next request's head once it is complete.

        Raises:
            BadRequestError: malformed or too large.
        """
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequestError(431, f"Request line and headers are larger than {MAX_HEAD} bytes.")
            return None
        encoded = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        length = _LENGTH.search(encoded)
        if length is not None and end <= _KNOWN_SIZE:
            # A sender's heads differ by this line alone: the others are read once.
            head = _known_head(encoded[: length.start()] + encoded[length.end() :])
            if head.headers.keys().isdisjoint(_FRAMING):
                self._expect_body({"content-length": length[1].decode("ascii")})
                return head
        head = _head(encoded)
        self._expect_body(head.headers)
        return head

    def body(self) -> bytes | None:
        """Return the body of the request whose head was returned last, once it is complete.

        Raises:
            BadRequestError: malformed or too large.
        """
        if self._chunks is not None:
            return self._chunked(self._chunks)
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        with memoryview(self._buffer) as buffered:  # a slice of the buffer itself would be one more copy
            found = bytes(buffered[:length])
        del self._buffer[:length]
        return found

    def _expect_body(self, headers: Mapping[str, str]) -> None:
        encoding, length = headers.get("transfer-encoding"), headers.get("content-length")
        self._chunks, self._length = None, 0
        if encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise BadRequestError(400, f"transfer-encoding {encoding!r} with content-length {length!r}: send one.")
            self._chunks, self._chunk_left, self._in_trailer = bytearray(), 0, False
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 20):
                raise BadRequestError(400, f"content-length {length!r} is no number.")
            self._length = int(length)
            if self._length > self._max_body:
                raise _too_large(self._max_body)

    def _chunked(self, body: bytearray) -> bytes | None:
        while True:
            if self._in_trailer:
                return self._after_trailer(body)
            if self._chunk_left:
                part = self._buffer[: self._chunk_left]
                body += part
                del self._buffer[: len(part)]
                self._chunk_left -= len(part)
                if self._chunk_left:
                    return None
            size = self._chunk_size(is_first=not body)
            if size is None:
                return None
            if len(body) + size > self._max_body:
                raise _too_large(self._max_body)
            self._chunk_left, self._in_trailer = size, size == 0

    def _chunk_size(self, *, is_first: bool) -> int | None:
        start = 0 if is_first else 2  # the CRLF that ends the chunk before
        end = self._buffer.find(b"\r\n", start)
        if end < 0:
            if len(self._buffer) > _MAX_CHUNK_LINE:
                raise BadRequestError(400, "A chunk's size line is too long.")
            return None
        digits = bytes(self._buffer[start:end]).split(b";")[0].strip()
        if bytes(self._buffer[:start]) not in {b"", b"\r\n"} or not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise BadRequestError(400, "The chunked body is malformed.")
        del self._buffer[: end + 2]
        return int(digits, 16)

    def _after_trailer(self, body: bytearray) -> bytes | None:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            del self._buffer[: end + 2]
            if end == 0:
                return bytes(body)
        if len(self._buffer) > MAX_HEAD:
            raise BadRequestError(431, f"Trailers are larger than {MAX_HEAD} bytes.")
        return None


def _head(encoded: bytes) -> Head:
    request_line, *lines = encoded.decode("latin-1").lstrip("\r\n").split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[0].isalpha() or not _is_url(parts[1]) or parts[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        raise BadRequestError(400, f"Not an HTTP/1.1 request: {request_line[:80]!r}.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, f"Malformed header line {line[:80]!r}.")
        name = name.lower()
        if name in {"content-length", "transfer-encoding"} and headers.get(name, value.strip()) != value.strip():
            raise BadRequestError(400, f"Two different {name} headers.")
        headers[name] = value.strip()
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection and (parts[2] == "HTTP/1.1" or "keep-alive" in connection)
    return Head(parts[0], parts[1], headers, keep_alive)


_known_head = lru_cache(maxsize=1024)(_head)


def _is_url(text: str) -> bool:
    try:
        urlsplit(text)
    except ValueError:  # brackets that are no address
        return False
    return True


def _too_large(limit: int) -> BadRequestError:
    return BadRequestError(413, f"The request is larger than {limit // 2**20} MiB ({limit} bytes). Send smaller ones.")
