"""`state/delivery.json`: how far each backend is with a run that has ended, as long as its service delivers.

`run.db` is locked meanwhile, and who looks at the run may not reach its service: another terminal, user or container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from otel_ml_service.delivery.exporter_progress import PipelineStatus
from otel_ml_service.live_runs.state_files import write_whole

__all__ = ["DeliveryFile", "kept_delivery"]

_FILE = "delivery.json"


class DeliveryFile:
    """Written by who has the run open, and by nobody else; what a service that was killed left is removed.

    Args:
        state: the folder of the run's own files.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / _FILE
        # Not None, which stands for no file: a predecessor may have left one.
        self._kept: str | None = ""
        self.remove()

    def keep(self, last_seq: int, exporters: Mapping[str, PipelineStatus]) -> None:
        """Write it, if it says something new. A disk that takes no more is no reason not to go on with the run."""
        content = json.dumps(
            {
                "last_seq": last_seq,
                "exporters": {
                    name: {
                        "pending": max(0, last_seq - found.delivered),
                        "state": found.state,
                        "problem": found.problem,
                        "lost": dict(found.lost),
                    }
                    for name, found in exporters.items()
                },
            }
        )
        # It is called often, and nearly always says the same.
        if content == self._kept:
            return
        with suppress(OSError):
            write_whole(self._path, content.encode())
            self._kept = content

    def remove(self) -> None:
        """Take it away: the run goes on, or `run.db` can be read."""
        if self._kept is None:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._kept = None


def kept_delivery(state: Path) -> Mapping[str, Any] | None:
    """Return what is kept in a run's folder `state`, in the form of the service's account; None where nothing is."""
    try:
        found = json.loads((state / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
