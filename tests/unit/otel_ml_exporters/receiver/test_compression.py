from __future__ import annotations

import gzip
import zlib

import pytest

from otel_ml_exporters.receiver.compression import decompressed
from otel_ml_exporters.receiver.http_message import BadRequestError


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"hello", ""),
        (b"hello", "identity"),
        (gzip.compress(b"hello", mtime=0), "gzip"),
        (gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0), "GZIP"),
        (zlib.compress(b"hello"), "deflate"),
    ],
)
def test_known_encodings_are_unpacked(body: bytes, encoding: str) -> None:
    assert decompressed(body, encoding, 5) == b"hello"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(bytes(10**7), mtime=0), "gzip", 413),
        (gzip.compress(b"hello", mtime=0)[:-4], "gzip", 400),
        (b"not gzip", "gzip", 400),
        (b"hello", "br", 415),
    ],
)
def test_bombs_damage_and_unknown_encodings_are_refused(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        decompressed(body, encoding, 1000)

    assert caught.value.status == status
