"""What lies in a spool's folder, and who takes it."""

from __future__ import annotations

from pathlib import Path

from otel_ml._internal.transport.answer import Answer
from otel_ml.wire.spool_format import read_spool


class Taking:
    """A receiver that takes everything."""

    def __init__(self) -> None:
        self.taken = b""

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        del path, timeout
        self.taken += body
        return Answer("ok")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def on_disk(folder: Path) -> list[bytes]:
    return [frame.payload for path in files(folder) for frame in read_spool(path).frames]
