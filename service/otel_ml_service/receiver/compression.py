"""Content encodings of request bodies, with a bound on what comes out."""

from __future__ import annotations

import zlib

from otel_ml.variable import size_text
from otel_ml_service.receiver.http_message import BadRequestError

__all__ = ["decompressed"]

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}

_PIECE = 16 * 1024
"""Bytes given to zlib at a time: of what follows a member's end it makes a copy."""

_MEMBERS = 1000
"""Of one body, one after the other; senders make one. Each costs time, however little is in it."""


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return `body` without its content encoding, never producing more than `limit` bytes.

    Raises:
        BadRequestError: unknown encoding, damaged or truncated data, or larger than `limit` when unpacked (413).
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return body
    if encoding not in _WINDOW_BITS:
        raise BadRequestError(415, f"content-encoding {encoding!r} is not supported; use gzip.")
    unpacked = bytearray()
    at = members = 0
    while at < len(body):  # gzip allows several members one after the other
        members += 1
        if members > _MEMBERS:
            raise BadRequestError(400, f"The {encoding} body has more than {_MEMBERS} members. Compress it as one.")
        at = _unpack(body, at, encoding, limit, unpacked)
    return bytes(unpacked)


def _unpack(body: bytes, at: int, encoding: str, limit: int, unpacked: bytearray) -> int:
    """Add a member's content to `unpacked`, and return where the next one begins."""
    member = zlib.decompressobj(_WINDOW_BITS[encoding])
    with memoryview(body) as view:
        while not member.eof:
            piece = member.unconsumed_tail or view[at : at + _PIECE]
            if not piece:
                raise BadRequestError(400, f"The {encoding} body is truncated.")
            if not member.unconsumed_tail:
                at += len(piece)
            try:
                # One byte more than may be: otherwise it could not be seen that there is more.
                unpacked += member.decompress(piece, limit + 1 - len(unpacked))
            except zlib.error as error:
                raise BadRequestError(400, f"The {encoding} body is damaged: {error}.") from error
            if len(unpacked) > limit:
                raise BadRequestError(413, f"The request is larger than {size_text(limit)} when unpacked.")
    # Of the last piece, what lies behind the member's end belongs to the next one.
    return at - len(member.unused_data)
