"""Parsers go from one connection to another between requests: each connection reads what one of its own reads."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml_service.receiver.http_message import BadRequestError, Head, Parsers, RequestParser

Read = list[object]
"""What a connection has read: heads, bodies, and the error that ended it."""

LARGEST = 1000

WHOLE = [
    b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST /v1/metrics HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    b"POST /v1/logs HTTP/1.1\r\nhost: b\r\nauthorization: B x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    b"0\r\n\r\n",
    b"POST /v1/logs HTTP/1.1\r\nhost: b\r\ncontent-length: 3\r\nconnection: close\r\n\r\nend",
    b"POST /v1/logs HTTP/1.1\r\nhost: b\r\ncontent-length: 3\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nend",
]
PARTS = st.one_of(
    st.sampled_from(WHOLE),
    st.sampled_from([b"\r\n", b"\r", b"GET", b"no request", b"\x16\x03\x01", b"x" * 40_000, b"\r\n" * 20_000]),
    st.builds(lambda whole, end: whole[:end], st.sampled_from(WHOLE), st.integers(1, 60)),
    st.builds(lambda whole, begin: whole[begin:], st.sampled_from(WHOLE), st.integers(1, 60)),
)
TURNS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(PARTS, max_size=3).map(b"".join), st.booleans()), min_size=2, max_size=20
)
"""Which connection has received what, and whether it reads that at once, or is still answering."""


class Connection:
    """Reads as the receiver does: a head, its body, and on to the next; it ends with an error, or as a head says."""

    def __init__(self, lend: Callable[[], RequestParser], take_back: Callable[[RequestParser], bool]) -> None:
        self._lend, self._take_back = lend, take_back
        self._parser: RequestParser | None = None
        self._keep_alive = True
        self._head: Head | None = None
        self.read: Read = []

    def receive(self, data: bytes, *, reads: bool) -> None:
        if not self._keep_alive:
            return
        self._parser = self._parser or self._lend()
        self._parser.feed(data)
        if not reads:
            return
        try:
            while self._keep_alive and self._parser is not None and self._next(self._parser):
                pass
        except BadRequestError as error:
            self.read.append((error.status, str(error)))
            self._keep_alive, self._parser = False, None

    def _next(self, parser: RequestParser) -> bool:
        if self._head is None:
            self._head = parser.head()
            self.read += [] if self._head is None else [self._head]
            return self._head is not None
        body = parser.body()
        if body is None:
            return False
        self.read.append(body)
        self._keep_alive, self._head = self._head.keep_alive, None
        if self._keep_alive and self._take_back(parser):
            self._parser = None
        return True


@given(TURNS)
@example([(0, WHOLE[1] * 2, False), (0, b"\r\n" * 20_000, True), (1, b"GET / HT", True)])
def test_each_connection_reads_with_parsers_of_all_what_it_reads_with_its_own(
    turns: list[tuple[int, bytes, bool]],
) -> None:
    parsers = Parsers(LARGEST)
    shared = [Connection(parsers.lend, parsers.take_back) for _ in range(3)]
    alone = [Connection(lambda: RequestParser(LARGEST), lambda parser: False) for _ in range(3)]

    for number, data, reads in turns:
        shared[number].receive(data, reads=reads)
        alone[number].receive(data, reads=reads)

    assert [each.read for each in shared] == [each.read for each in alone]
