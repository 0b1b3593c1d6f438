"""Images as they travel: PNG, with zlib alone. A worker needs no pillow, nor does the service."""

from __future__ import annotations

import struct
import zlib

__all__ = ["CHANNELS", "encode_png", "png_size"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}

CHANNELS = frozenset(_COLOR_TYPES)
"""How many a pixel may have: gray, gray + alpha, RGB, RGBA."""


def encode_png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    r"""Encode pixels of 8 bits a channel, from left to right and top to bottom.

    Examples:
        >>> encode_png(bytes(18), 3, 2, 3)[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    row = width * channels
    # Each row begins with its filter: 0, none.
    rows = b"".join(part for at in range(0, row * height, row) for part in (b"\0", pixels[at : at + row]))
    # 8 bits a channel; the usual compression and filters, and not interlaced: 0, 0, 0.
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 6)) + _chunk(b"IEND", b"")


def png_size(content: bytes) -> tuple[int, int]:
    """Return (width, height) of a PNG.

    Raises:
        ValueError: `content` is not a PNG.
    """
    if not content.startswith(_SIGNATURE) or len(content) < 24:
        raise ValueError(
            f"{len(content)} bytes that are not a PNG were given. Expected an array, a PNG, or a PIL image."
        )
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
