"""Who is refused, and why, in the service's log: the sender is told too, and may be somebody else's machine."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable

__all__ = ["WRONG_TOKEN", "Refusals"]

_log = logging.getLogger(__name__)

WRONG_TOKEN = "its bearer token is missing or wrong. Set OTEL_ML_TOKEN there to the service's."

_AGAIN_S = 60.0
"""Ranks come back every few seconds: one line a minute for each host and reason."""

_MOST = 1000
"""Senders that are remembered; beyond it the log may repeat itself."""


class Refusals:
    """Writes them down; any thread may.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[tuple[str, str], float] = {}

    def tell(self, sender: str, reason: str) -> None:
        """Write down that a sender was refused, unless that was just done.

        Args:
            sender: its host, or "a sender" where that is not known.
            reason: a sentence without its beginning.
        """
        now = self._clock()
        with self._lock:
            before = self._told_at.get((sender, reason))
            if before is not None and now - before < _AGAIN_S:
                return
            if len(self._told_at) >= _MOST:
                self._told_at.clear()
            self._told_at[sender, reason] = now
        _log.warning("Refused %s: %s", sender, reason)

    def watch(self, tls: ssl.SSLContext) -> None:
        """Write down handshakes that fail: asyncio drops such a connection without a word."""
        refusals = self

        class Handshake(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    refusals.tell("a sender", _handshake(error))
                    raise

        tls.sslobject_class = Handshake


def _handshake(error: ssl.SSLError) -> str:
    if error.reason in {"HTTP_REQUEST", "WRONG_VERSION_NUMBER"}:
        return "it does not speak TLS, and this port does. Its endpoint has to begin with https://."
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate, and the service asks for one (listen.tls.client_ca)."
    return (
        f"the TLS handshake failed ({error.reason}). Compare its OTEL_EXPORTER_OTLP_CERTIFICATE with the authority of "
        "this service's certificate, and both dates."
    )
