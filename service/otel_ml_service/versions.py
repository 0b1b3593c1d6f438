"""Versions of what the service stores: each goes up whenever its form changes (ADR 0030, `tests/upgrade`).

1 of `run.db` is whatever was written before versions were: the forms of three days.
"""

from __future__ import annotations

__all__ = ["JOURNAL", "RUN", "SERVED"]

JOURNAL = 2
"""Of `journal.db`, its tables, and of the files beside it (`storage/journal_frames.py`). What they hold is OTLP."""

RUN = 14
"""Of `run.db`: tables, records (`storage/record_codec.py`), the engine's state (`aggregation/snapshot.py`),
and rows of both that are packed (`storage/packed_rows.py`)."""

SERVED = 1
"""Of `served.json` (`live_runs/served_settings.py`)."""
