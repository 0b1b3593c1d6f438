"""`state/name` and `state/notes`: what people call a run and wrote about it, for commands that look at folders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from otel_ml_exporters.records import RunInfo

__all__ = ["NAME", "NOTES", "keep_name"]

NAME, NOTES = "name", "notes"


def keep_name(run: RunInfo) -> None:
    """Write them. A disk that takes no more is no reason not to go on with the run."""
    for file, text in ((NAME, run.name), (NOTES, run.notes)):
        with suppress(OSError):
            if text:
                _write(run.dir / "state" / file, text)


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8", errors="replace")
    fresh.replace(path)
