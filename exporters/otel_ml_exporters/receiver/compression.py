"""Content encodings of request bodies, with a bound on what comes out."""

from __future__ import annotations

import zlib

from otel_ml_exporters.receiver.http_message import BadRequestError

__all__ = ["decompressed"]

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return `body` without its content encoding, never producing more than `limit` bytes.

    Raises:
        BadRequestError: unknown encoding, damaged or truncated data, or larger than `limit` when unpacked.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        return body
    if encoding not in _WINDOW_BITS:
        raise BadRequestError(415, f"content-encoding {encoding!r} is not supported; use gzip.")
    unpacked = bytearray()
    while body:  # gzip allows several members one after the other
        member = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            unpacked += member.decompress(body, limit + 1 - len(unpacked))
        except zlib.error as error:
            raise BadRequestError(400, f"The {encoding} body is damaged: {error}.") from error
        if len(unpacked) > limit:
            raise BadRequestError(413, f"The request is larger than {limit // 2**20} MiB when unpacked.")
        if not member.eof:
            raise BadRequestError(400, f"The {encoding} body is truncated.")
        body = member.unused_data
    return bytes(unpacked)
