"""HTTP/1.1 requests out of a byte stream, and answers into one; no socket here.

llhttp reads them, the parser of Node.js. What it takes and RFC 9112 calls ambiguous is refused on top (ADR 0029).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from http import HTTPStatus
from types import SimpleNamespace
from typing import TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import httptools

from otel_ml.variable import size_text

T = TypeVar("T")

__all__ = ["BadRequestError", "Head", "Parsers", "RequestParser", "Response"]

MAX_HEAD = 32 * 1024
"""Bytes of request line and headers, and of what is around a chunked body's chunks."""

_LEAST_CHUNK = 8
"""Of a body's bytes, one may go into its framing for every eight of content: chunks of 50 bytes, and larger ones."""

_FRAMING = ("content-length", "transfer-encoding")
"""Headers that say where a body ends."""

_ONCE = frozenset({"host", "authorization", "content-type", *_FRAMING})
"""Headers that mean one thing: of two, each program on the way may take another one."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s\[\]:/@?#]*)(:[0-9]*)?\Z")


class BadRequestError(Exception):
    """The request cannot be answered with anything but `status`; the connection is then closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Head:
    """Request line and headers; header names are lower case. What says how long a body is stays with the parser."""

    method: str
    target: str
    headers: Mapping[str, str]
    keep_alive: bool

    @cached_property
    def path(self) -> str:
        """The path, percent-decoded."""
        return unquote(_split(self.target).path)

    @cached_property
    def media_type(self) -> str:
        """The content-type without parameters, lower case; "" where the sender names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @cached_property
    def authorization(self) -> bytes:
        """Whom the sender claims to be, as sent; empty where it does not."""
        return self.headers.get("authorization", "").encode("latin-1")

    @cached_property
    def host(self) -> str:
        """The name or address the sender believes to talk to, without port and brackets; "" where it names none."""
        name = _split(self.target).netloc or self.headers.get("host", "")
        return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]

    @property
    def query(self) -> Mapping[str, str]:
        """The query's parameters; the last of equal names."""
        return {key: values[-1] for key, values in parse_qs(_split(self.target).query).items()}


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

    __slots__ = ("_error", "_reading")

    def __init__(self, max_body: int) -> None:
        self._reading = _Reading(max_body)
        self._error: BadRequestError | None = None

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        if self._error is not None:
            return
        try:
            self._reading.read(data)
        except BadRequestError as error:
            # A traceback refers to the frames, and so to the bytes that were read, for as long as the parser is there.
            self._error = error.with_traceback(None)
        except httptools.HttpParserCallbackError as error:
            # What a callback of ours raises comes inside of one of the parser's own.
            if not isinstance(error.__context__, BadRequestError):
                raise
            self._error = error.__context__.with_traceback(None)
        except httptools.HttpParserError as error:
            self._error = BadRequestError(400, f"Not an HTTP/1.1 request: {error}.")

    @property
    def buffered(self) -> int:
        """Bytes of bodies that are not handed out yet, and at least 1 where a request has begun."""
        reading = self._reading
        # At least 1 inside a head, which counts for no memory, and of which the time limit has to know.
        return sum(map(len, reading.bodies)) + reading.size or int(reading.is_open or bool(reading.heads))

    @property
    def is_at_a_beginning(self) -> bool:
        """Whether the next byte is the first one of a request, as it was for a new parser."""
        reading = self._reading
        return not (reading.fed or reading.is_open or reading.heads or reading.bodies or self._error)

    def head(self) -> Head | None:
        """Return the next request's head once it is complete.

        Raises:
            BadRequestError: malformed or too large.
        """
        return self._next(self._reading.heads)

    def body(self) -> bytes | None:
        """Return the body of the request whose head was returned last, once it is complete.

        Raises:
            BadRequestError: malformed or too large.
        """
        return self._next(self._reading.bodies)

    def _next(self, found: deque[T]) -> T | None:
        if found:
            return found.popleft()
        if self._error is not None:
            # A new one: what is raised refers to this parser, which would stay, with all that it has read.
            raise BadRequestError(self._error.status, str(self._error))
        return None


_SPARE = 64
"""Parsers that are kept for the next requests; more are needed only where many of them come in pieces."""


class Parsers:
    """Lends parsers: a connection has one while a request of it arrives, and none while it waits for the next.

    A parser takes 3 KiB, and most of a job's connections wait at any time.
    """

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._spare: list[RequestParser] = []

    def lend(self) -> RequestParser:
        """Return one that has read nothing."""
        return self._spare.pop() if self._spare else RequestParser(self._max_body)

    def take_back(self, parser: RequestParser) -> bool:
        """Keep one for the next request of any connection, unless it has read a part of one, or what is none."""
        if not parser.is_at_a_beginning:
            return False
        if len(self._spare) < _SPARE:
            self._spare.append(parser)
        return True


class _Reading:
    """What llhttp has found so far; it calls the methods `on_…`."""

    def __init__(self, max_body: int) -> None:
        self.heads: deque[Head] = deque()
        self.bodies: deque[bytes] = deque()
        self._body: list[bytes] = []
        self.size = 0
        """Bytes of the body that is being read."""
        self.is_open = False
        """Whether a request has begun and is not complete."""
        self._max_body = max_body
        self._llhttp = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._is_in_body = False
        self._parts = 0
        self.fed = 0
        """Bytes read since the parser last told of something."""

    def read(self, data: bytes) -> None:
        """Take bytes that arrived.

        Raises:
            BadRequestError: too large, or ambiguous.
            HttpParserError: not a request.
        """
        parts = self._parts
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay_with_http_1(data[upgrade.args[0] :])
            return
        # Of a header or a chunk's size line without an end llhttp tells nothing: it counts by what was fed.
        self.fed = self.fed + len(data) if parts == self._parts else 0
        if self._is_in_body and self.fed - self.size > MAX_HEAD + self.size // _LEAST_CHUNK:
            raise BadRequestError(400, "The body's chunks are too small, or its trailers too large.")
        if self.is_open and not self._is_in_body and self.fed > MAX_HEAD:
            raise _head_too_large()

    def on_message_begin(self) -> None:
        self.is_open, self._is_in_body = True, False
        self._target, self._headers, self._head_size = b"", {}, 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)  # with the colon, the space and the end of the line
        if self._is_in_body:
            return  # a trailer; none means anything to OTLP
        key, text = _lower(name), value.strip(b" \t").decode("latin-1")
        if key in self._headers:
            if key in _ONCE:
                raise BadRequestError(400, f"Two {key} headers: send one.")
            text = f"{self._headers[key]}, {text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        llhttp = self._llhttp
        version = llhttp.get_http_version()
        target = self._target.decode("latin-1")
        headers = self._headers
        problem = _ambiguity(target, version, headers.get("host"), headers.get("transfer-encoding"))
        if problem:
            raise BadRequestError(400, problem)
        if int(headers.get("content-length", 0)) > self._max_body:
            raise _too_large(self._max_body)
        # After an offer of another protocol llhttp reads no further request: see `_stay_with_http_1`.
        keep_alive = llhttp.should_keep_alive() and not llhttp.should_upgrade()
        # Without the length of the body, which alone is new with each request: `_head_of` remembers all else.
        said = tuple(header for header in headers.items() if header[0] not in _FRAMING)
        self.heads.append(_head_of(llhttp.get_method(), target, said, keep_alive))
        self._is_in_body = True
        self._parts += 1

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self.size += len(data)
        if self.size > self._max_body:
            raise _too_large(self._max_body)

    def on_message_complete(self) -> None:
        self._parts += 1
        if self._llhttp.should_upgrade():
            return  # the body comes after it, see below
        self.bodies.append(b"".join(self._body))
        self._body, self.size = [], 0
        self.is_open = self._is_in_body = False

    def _stay_with_http_1(self, rest: bytes) -> None:
        """Read the body of a request that offers another protocol: llhttp takes the offer, and stops before it.

        The connection is closed after it, so nothing but a body can follow.
        """
        framing = [f"{name}: {self._headers[name]}\r\n" for name in _FRAMING if name in self._headers]
        self._llhttp = httptools.HttpRequestParser(
            SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
        )
        self.read(f"POST / HTTP/1.1\r\nconnection: close\r\n{''.join(framing)}\r\n".encode("latin-1") + rest)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise _head_too_large()


@lru_cache(maxsize=64)
def _head_of(method: bytes, target: str, headers: tuple[tuple[str, str], ...], keep_alive: bool) -> Head:
    # Every request of every rank of a job has the same one: what is asked of it is found out once.
    return Head(method.decode("ascii"), target, dict(headers), keep_alive)


@lru_cache(maxsize=256)
def _ambiguity(target: str, version: str, host: str | None, encoding: str | None) -> str:
    """Return what llhttp takes and another program on the way may understand otherwise, or ""."""
    if version not in {"1.0", "1.1"}:
        return f"HTTP {version} is not spoken here, but HTTP/1.1."
    if encoding is not None and (encoding.lower() != "chunked" or version == "1.0"):
        return f"transfer-encoding {encoding[:80]!r} in HTTP/{version}; expected chunked in HTTP/1.1."
    if (host is None and version == "1.1") or not _HOST.match(host or ""):
        return f"The host header is {None if host is None else host[:80]!r}; expected a name or address, and a port."
    if "#" in target or not _is_url(target):
        return f"Not a request target: {target[:80]!r}."
    return ""


@lru_cache(maxsize=256)
def _lower(name: bytes) -> str:
    return name.decode("latin-1").lower()


def _is_url(target: str) -> bool:
    try:
        found = _split(target)
    except ValueError:  # brackets that are not an address
        return False
    if "://" not in target or target.startswith("/"):
        return True
    # Whose name it is would be told differently where a user stands before it, or no host at all (RFC 9110, 4.2).
    return found.scheme in {"http", "https"} and bool(found.netloc) and _HOST.match(found.netloc) is not None


@lru_cache(maxsize=256)
def _split(target: str) -> SplitResult:
    # `urlsplit` would take what is between the slashes of //name/path for a host.
    return urlsplit(f"/{target.lstrip('/')}" if target.startswith("/") else target)


def _head_too_large() -> BadRequestError:
    return BadRequestError(431, f"Request line and headers are larger than {size_text(MAX_HEAD)}.")


def _too_large(limit: int) -> BadRequestError:
    return BadRequestError(413, f"The request is larger than {size_text(limit)}. Send smaller ones.")
