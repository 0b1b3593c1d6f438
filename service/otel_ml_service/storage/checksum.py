"""A checksum before each entry of the engine's state: SQLite does not notice when a disk changes bytes of a value."""

from __future__ import annotations

import zlib

__all__ = ["ONE_BY_ONE", "inverted", "is_whole", "sealed", "unsealed"]

_SIZE = 4

ONE_BY_ONE = "disk/"
"""What the keys of entries begin with that the engine asks for when it needs them: there may be millions."""


def sealed(value: bytes) -> bytes:
    """Return `value` behind its CRC-32.

    Examples:
        >>> unsealed(sealed(b"state"))
        b'state'
        >>> unsealed(sealed(b"state")[:-1] + b"x") is None
        True
    """
    return zlib.crc32(value).to_bytes(_SIZE, "big") + value


def unsealed(stored: bytes) -> bytes | None:
    """Return the value; None where it is not the one that was sealed."""
    value = stored[_SIZE:]
    return value if sealed(value) == stored else None


def inverted(stored: bytes) -> bytes:
    """Return an entry with all bits of its checksum turned: what is behind it is not the value itself, but packed."""
    return bytes(byte ^ 0xFF for byte in stored[:_SIZE]) + stored[_SIZE:]


def is_whole(stored: object) -> bool:
    """Whether an entry is as it was written, packed or not."""
    # One bit in the head of a row makes a text of it, which SQLite hands out as one.
    return isinstance(stored, bytes) and (unsealed(stored) is not None or unsealed(inverted(stored)) is not None)
