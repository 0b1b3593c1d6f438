"""The mutants that no test can kill, with the reason: `survivors.toml`."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Change", "change_of", "equivalent"]

Change = tuple[str, str, str]
"""A file, its lines as they are, and as they would be: what a mutant is when the lines above it have moved."""


def equivalent() -> dict[Change, str]:
    """Return why each mutant of the list is not a mistake."""
    listed = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text()).get("survivor", [])
    return {(entry["file"], entry["was"], entry["becomes"]): entry["why"] for entry in listed}


def change_of(file: str, source: bytes, mutated: bytes) -> Change:
    """Return the lines that a mutant changes, without what surrounds them."""
    was, becomes = source.decode().splitlines(), mutated.decode().splitlines()
    same = next(at for at, (one, other) in enumerate(zip(was, becomes, strict=False)) if one != other)
    tail = next(at for at, (one, other) in enumerate(zip(was[::-1], becomes[::-1], strict=False)) if one != other)
    tail = min(tail, len(was) - same - 1, len(becomes) - same - 1)
    return file, _joined(was[same : len(was) - tail]), _joined(becomes[same : len(becomes) - tail])


def _joined(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines)
