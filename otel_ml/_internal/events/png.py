"""Arrays to PNG with nothing but zlib and numpy: a worker needs no pillow."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["SIGNATURE", "encode_png", "image_array", "png_size"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # channels → grey, grey + alpha, RGB, RGBA


def image_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array` as uint8 of shape (height, width, channels).

    Accepted: (h, w), (h, w, c), (c, h, w) with 1–4 channels; integers 0–255, floats 0–1, booleans.

    Raises:
        ValueError: saying which shape was given and which are expected.
    """
    import numpy as np

    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim == 3 and array.shape[2] not in _COLOUR_TYPES and array.shape[0] in _COLOUR_TYPES:
        array = np.moveaxis(array, 0, 2)
    if array.ndim != 3 or array.shape[2] not in _COLOUR_TYPES or 0 in array.shape:
        raise ValueError(
            f"an image of shape {array.shape} was given. "
            "Expected (height, width), (height, width, channels) or (channels, height, width), 1 to 4 channels."
        )
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif np.issubdtype(array.dtype, np.floating):
        array = np.rint(np.clip(np.nan_to_num(array), 0.0, 1.0) * 255)
    elif not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"an image of type {array.dtype} was given. Expected integers 0–255, floats 0–1 or booleans.")
    return np.ascontiguousarray(np.clip(array, 0, 255).astype(np.uint8))


def encode_png(array: np.ndarray[Any, Any]) -> bytes:
    """Encode a uint8 array of shape (height, width, channels)."""
    import numpy as np

    height, width, channels = array.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = array.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + _chunk(b"IEND", b"")


def png_size(content: bytes) -> tuple[int, int]:
    """Return (width, height) of a PNG.

    Raises:
        ValueError: `content` is no PNG.
    """
    if not content.startswith(SIGNATURE) or len(content) < 24:
        raise ValueError(f"{len(content)} bytes that are no PNG were given. Expected an array, a PNG, or a PIL image.")
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
