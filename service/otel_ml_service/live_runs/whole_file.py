"""A small file of a run that is there as a whole or not at all: on a full disk an empty one would say nothing."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write the whole file, in place of the one that is there, or nothing."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
