"""RGB pixels as a PNG, with zlib alone: the service shares no encoder with the workers."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

__all__ = ["rgb_png"]


def rgb_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    r"""Return the PNG of pixels [height, width, 3].

    Examples:
        >>> rgb_png(np.zeros((2, 3, 3), dtype=np.uint8))[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
