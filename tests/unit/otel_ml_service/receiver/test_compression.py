from __future__ import annotations

import gzip
import random
import zlib

import pytest

from otel_ml_service.receiver.compression import decompressed
from otel_ml_service.receiver.http_message import BadRequestError


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"hello", ""),
        (b"hello", "identity"),
        (gzip.compress(b"hello", mtime=0), "gzip"),
        (gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0), "GZIP"),
        (zlib.compress(b"hello"), "deflate"),
        (gzip.compress(b"", mtime=0) * 999 + gzip.compress(b"hello", mtime=0), "gzip"),
    ],
)
def test_known_encodings_are_unpacked(body: bytes, encoding: str) -> None:
    assert decompressed(body, encoding, 5) == b"hello"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(bytes(10**7), mtime=0), "gzip", 413),
        (gzip.compress(b"hello", mtime=0)[:-4], "gzip", 400),
        (gzip.compress(b"hello", mtime=0) + b"rest", "gzip", 400),
        (gzip.compress(b"", mtime=0) * 1001, "gzip", 400),
        (b"not gzip", "gzip", 400),
        (b"hello", "br", 415),
    ],
)
def test_bombs_damage_and_unknown_encodings_are_refused(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        decompressed(body, encoding, 1000)

    assert caught.value.status == status


def test_a_member_costs_no_copy_of_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, bits: int) -> None:
            self._member = make(bits)

        def decompress(self, piece: bytes, most: int) -> bytes:
            nonlocal given
            given += len(piece)
            return self._member.decompress(piece, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    rest = random.Random(1).randbytes(10**7)
    body = gzip.compress(b"", mtime=0) * 900 + gzip.compress(rest, 0, mtime=0)

    assert decompressed(body, "gzip", 2 * 10**7) == rest
    assert given < 3 * len(body)
