"""Small files in `state/` of a run, for commands that look at folders: name, notes, where its processes meet."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from otel_ml.wire.rendezvous import Rendezvous, is_private, rendezvous_of
from otel_ml_exporters.records import RunInfo

__all__ = ["NAME", "NOTES", "keep_meeting_place", "keep_name", "meeting_place", "write_whole"]


NAME, NOTES, _RENDEZVOUS = "name", "notes", "rendezvous"


def write_whole(path: Path, content: bytes) -> None:
    """Write the whole file, in place of the one that is there, or nothing: on a full disk an empty one says nothing."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)


def keep_name(run: RunInfo) -> None:
    """Write what people call a run, and its notes. A disk that takes no more is no reason not to go on with the run."""
    for file, text in ((NAME, run.name), (NOTES, run.notes)):
        with suppress(OSError):
            if text:
                write_whole(run.dir / "state" / file, text.encode(errors="replace"))


def keep_meeting_place(state: Path, rendezvous: Path) -> None:
    """Write to `state` of a run where its processes meet, for commands of another `XDG_RUNTIME_DIR`.

    A disk that takes no more is no reason not to serve the run.
    """
    with suppress(OSError):
        write_whole(state / _RENDEZVOUS, str(rendezvous.absolute()).encode("utf-8", "surrogateescape"))


def meeting_place(state: Path, run_id: str) -> Rendezvous:
    """Return where a run's processes meet, if that is there and this user's; else where they would meet here."""
    with suppress(OSError, ValueError):
        folder = Path((state / _RENDEZVOUS).read_text(encoding="utf-8", errors="surrogateescape"))
        # The file may come from anybody: it is believed only where this user alone could make the folder.
        if folder.is_absolute() and folder.is_dir() and is_private(folder.parent):
            return Rendezvous(folder)
    return rendezvous_of(run_id)
