"""`state/rendezvous`: where the processes of a job meet their service, for commands of another `XDG_RUNTIME_DIR`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from otel_ml.wire.rendezvous import Rendezvous, is_private, rendezvous_of
from otel_ml_service.live_runs.whole_file import write_whole

__all__ = ["keep_meeting_place", "meeting_place"]

_FILE = "rendezvous"


def keep_meeting_place(state: Path, rendezvous: Path) -> None:
    """Write it to a run's folder `state`. A disk that takes no more is no reason not to serve the run."""
    with suppress(OSError):
        write_whole(state / _FILE, str(rendezvous.absolute()).encode("utf-8", "surrogateescape"))


def meeting_place(state: Path, run_id: str) -> Rendezvous:
    """Return where a run's processes meet, if that is there and this user's; else where they would meet here."""
    with suppress(OSError, ValueError):
        folder = Path((state / _FILE).read_text(encoding="utf-8", errors="surrogateescape"))
        if folder.is_absolute() and folder.is_dir() and is_private(folder.parent):
            return Rendezvous(folder)
    return rendezvous_of(run_id)
