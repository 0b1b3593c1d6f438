from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.receiver.http_message import BadRequestError, Head, RequestParser, Response

POST = b"POST /v1/metrics?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /v1/logs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"


def read(pieces: list[bytes], max_body: int = 1000) -> list[tuple[Head, bytes]]:
    parser = RequestParser(max_body)
    found: list[tuple[Head, bytes]] = []
    head: Head | None = None
    for piece in pieces:
        parser.feed(piece)
        while True:
            head = head or parser.head()
            body = parser.body() if head else None
            if head is None or body is None:
                break
            found.append((head, body))
            head = None
    return found


@given(st.lists(st.integers(0, len(POST + CHUNKED + GET)), max_size=12))
def test_requests_are_the_same_wherever_the_network_cuts_them(cuts: list[int]) -> None:
    stream = POST + CHUNKED + GET
    edges = [0, *sorted(cuts), len(stream)]

    found = read([stream[start:end] for start, end in pairwise(edges)])

    assert [(head.method, head.path, body) for head, body in found] == [
        ("POST", "/v1/metrics", b"hello"),
        ("POST", "/v1/logs", b"hello"),
        ("GET", "/healthz", b""),
    ]
    assert [head.keep_alive for head, _ in found] == [True, True, False]
    assert found[0][0].query == {"x": "1"}


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"\x16\x03\x01 TLS hello\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 1000, 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, 431),
    ],
)
def test_what_is_ambiguous_or_too_large_is_refused(stream: bytes, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        read([stream])

    assert caught.value.status == status


def test_the_limit_is_named_where_a_body_is_too_large() -> None:
    with pytest.raises(BadRequestError, match="larger than 2 MiB"):
        read([b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n"], max_body=2 * 2**20)


def test_an_answer_says_its_length_and_what_becomes_of_the_connection() -> None:
    encoded = Response(503, b"later", headers={"retry-after": "1"}).encode(keep_alive=True)

    assert encoded.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\ncontent-length: 5\r\nretry-after: 1\r\nconnection: keep-alive\r\n\r\nlater" in encoded
