"""Requests that were acknowledged and that no run can take: kept as files, up to a limit, for the next start."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from otel_ml.variable import size_text
from otel_ml_service.telemetry import Telemetry

__all__ = ["Kept", "UnreadableRequests"]

_log = logging.getLogger(__name__)

_MOST_BYTES = 2**30
"""Of all that is kept: chosen, so that a run that stays unusable takes a disk no more than this."""


class Kept(NamedTuple):
    """A request, and the file in which it is."""

    path: Path
    signal: str
    body: bytes


class UnreadableRequests:
    """Keeps requests aside; owned by the engine's thread, and before that by the one that recovers.

    Args:
        folder: made when the first one comes.
        telemetry: counts those for which there is no room.
    """

    def __init__(self, folder: Path, telemetry: Telemetry) -> None:
        self._folder = folder
        self._telemetry = telemetry
        self._bytes: int | None = None

    def keep(self, number: int, signal: str, body: bytes, experiment: str = "") -> None:
        """Write a request, or what it has of one run, to a file of its own; count it as dropped where there is no room.

        The same again is the same file.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Counted once; what is added since is added below.
        if self._bytes is None:
            self._bytes = sum(path.stat().st_size for path in self._folder.iterdir())
        if self._bytes + len(body) > _MOST_BYTES:
            self._telemetry.count("dropped", reason="its run's files cannot be used")
            _log.error("Request %d is dropped: %s holds %s already.", number, self._folder, size_text(_MOST_BYTES))
            return
        of_run = f"-{sha256(experiment.encode()).hexdigest()[:16]}" if experiment else ""
        path = self._folder / f"{number}-{signal}{of_run}.otlp"
        # Under another name until it is whole: the next start takes every `.otlp` that is there.
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        self._bytes += len(body)

    def kept(self) -> Iterator[Kept]:
        """Yield what is there, in the order in which it came; whoever has stored it removes the file."""
        for path in sorted(self._folder.glob("*.otlp"), key=_number):
            yield Kept(path, path.stem.split("-")[1], path.read_bytes())


def _number(path: Path) -> int:
    number = path.stem.partition("-")[0]
    return int(number) if number.isdecimal() else 0
