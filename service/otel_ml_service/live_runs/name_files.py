"""`state/name` and `state/notes`: what people call a run and wrote about it, for commands that look at folders."""

from __future__ import annotations

from contextlib import suppress

from otel_ml_exporters.records import RunInfo
from otel_ml_service.live_runs.whole_file import write_whole

__all__ = ["NAME", "NOTES", "keep_name"]

NAME, NOTES = "name", "notes"


def keep_name(run: RunInfo) -> None:
    """Write them. A disk that takes no more is no reason not to go on with the run."""
    for file, text in ((NAME, run.name), (NOTES, run.notes)):
        with suppress(OSError):
            if text:
                write_whole(run.dir / "state" / file, text.encode(errors="replace"))
