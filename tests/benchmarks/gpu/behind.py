"""The code behind what was measured on a GPU: a figure of other code than there is now says so.

A GPU is at hand for a moment, and code changes every day.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.e2e.jobs import ROOT

__all__ = ["BEHIND", "behind", "commit", "digest", "parts_of"]

WORKER, DIAGNOSTICS = "worker", "diagnostics"
_WORKER = ("otel_ml/_internal", "native")

BEHIND: Mapping[str, Sequence[str]] = {WORKER: _WORKER, DIAGNOSTICS: (*_WORKER, "otel_ml/diagnostics")}
"""Part of the code → its folders."""

_OF_DIAGNOSTICS = ("gpu/operation", "gpu/norms", "gpu/everything", "gpu/inspector", "gpu/waits")
_SOURCES = frozenset({".py", ".c", ".h"})


def parts_of(figures: Iterable[str]) -> set[str]:
    """Return which parts of the code are behind figures of the part `gpu`."""
    return {DIAGNOSTICS if name.startswith(_OF_DIAGNOSTICS) else WORKER for name in figures}


def behind() -> dict[str, str]:
    """Return the digest of each part of the code as it is now."""
    return {name: digest(ROOT, folders) for name, folders in BEHIND.items()}


def digest(root: Path, folders: Sequence[str]) -> str:
    """Return the digest of the sources in folders."""
    found = hashlib.sha256()
    for path in _sources(root, folders):
        found.update(f"{path.relative_to(root).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def _sources(root: Path, folders: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in (root / folder).rglob("*") if path.suffix in _SOURCES)


def commit() -> str:
    """Return the commit of this checkout, as the variable COMMIT or else Git says; `-dirty` where files differ."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        said = "unknown"
    return os.environ.get("COMMIT") or said
