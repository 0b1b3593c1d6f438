"""What a service noted of the processes of a run, as each said it of itself."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

from otel_ml.exceptions import VersionError
from otel_ml_service.aggregation.state_entries import WRITER_FIELDS
from otel_ml_service.storage.database import StorageError, opened_to_read, require_known
from otel_ml_service.storage.packed_rows import value_of
from otel_ml_service.storage.run_form import FORM
from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there

__all__ = ["noted_writers"]

_PLACES = {name: WRITER_FIELDS.index(name) + 1 for name in ("experiment", "role", "rank", "topology", "host")}
"""In a writer's entry, behind what it pools with, of what its resource says. Entries of older services end sooner."""


def noted_writers(run: RunFolder) -> list[Mapping[str, Any]]:
    """Return what processes said of themselves, in the order in which they were heard first.

    Nothing while a service has the run open, or where that cannot be read.
    """
    if not is_there(run.database) or is_live(run):
        return []
    try:
        require_known(run.database, FORM)
        with opened_to_read(run.database) as connection:
            rows = connection.execute("SELECT value FROM engine WHERE key LIKE 'who/%' ORDER BY key").fetchall()
            # Entries of this kind are packed without a dictionary (`shrink.py`).
            entries = [json.loads(value_of(value, b"") or b"[]") for (value,) in rows]
    except (sqlite3.DatabaseError, zlib.error, StorageError, VersionError, ValueError):
        return []
    return [{name: entry[place] for name, place in _PLACES.items()} for entry in entries if entry]
