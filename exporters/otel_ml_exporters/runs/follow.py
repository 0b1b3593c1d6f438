"""Read `metrics.jsonl` while it grows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from otel_ml_exporters.records import Record, RunStatus, StepRecord, Summary, Params, Text

__all__ = ["Follower", "record_of"]


class Follower:
    """Hands out each record of a file once, in the order of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_records(self) -> list[Record]:
        """Return what was written since the last call; a line that is not complete yet comes the next time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        read = (record_of(json.loads(line)) for line in whole.splitlines() if line.strip())
        return [record for record in read if record is not None]
