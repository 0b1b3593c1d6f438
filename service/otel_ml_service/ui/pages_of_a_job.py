"""The page of a run from the job's own service: nothing is loaded for it until somebody opens it."""

from __future__ import annotations

import secrets
import select
import socket
import threading
from pathlib import Path

__all__ = ["PagesOfAJob", "pages_of"]

_HOST = "127.0.0.1"


class PagesOfAJob:
    """Bound to a free port of loopback. The token is not that of the service: whoever has it reads, and writes nothing.

    Attributes:
        address: of the list of runs.
    """

    def __init__(self, base: Path, listener: socket.socket) -> None:
        self._base = base
        self._listener = listener
        self._token = secrets.token_urlsafe(32)
        self.address = f"http://{_HOST}:{listener.getsockname()[1]}/{self._token}/"

    def serve_when_asked(self) -> None:
        """Answer from now on, on a thread that ends with the program."""
        threading.Thread(target=self._serve, name="otel-ml-page", daemon=True).start()

    def _serve(self) -> None:
        # Whoever connects waits in the socket's queue until the server below takes it.
        select.select([self._listener], [], [])
        # Here, and not above: what draws pages takes a moment to load, and most jobs are over before anybody looks.
        from otel_ml_service.ui.known_runs import KnownRuns
        from otel_ml_service.ui.server import server_at

        server_at(KnownRuns(self._base), self._token, self._listener).serve_forever()


def pages_of(base: Path) -> PagesOfAJob | None:
    """Return the pages of the runs in a folder; None where no port can be had: the run goes on without."""
    try:
        return PagesOfAJob(base, socket.create_server((_HOST, 0)))
    except OSError:
        return None
