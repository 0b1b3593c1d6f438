"""Who is refused, and why, in the service's log: the sender is told too, and may be somebody else's machine."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable

from otel_ml_service.receiver.partial_success import Rejected

__all__ = ["WRONG_TOKEN", "RefusalLog"]

_log = logging.getLogger(__name__)

WRONG_TOKEN = "its bearer token is missing or wrong. Set OTEL_ML_TOKEN there to the service's."

_AGAIN_S = 60.0
"""Ranks come back every few seconds: one line a minute for each host and reason."""

_REJECTED_AGAIN_S = 3600.0
"""Who sends points that cannot be taken does so every few seconds, for as long as the program runs."""

_MOST = 1000
"""Senders that are remembered; beyond it the log may repeat itself."""

_LINES = 100
"""Lines in a minute: whoever calls itself something else each time fills no log."""


class RefusalLog:
    """Writes them down; any thread may.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards the others.
        self._lock = threading.Lock()
        self._told_at: dict[tuple[str, str], float] = {}
        self._minute = 0.0
        self._lines = 0

    def tell(self, sender: str, reason: str) -> None:
        """Write down that a sender was refused, unless that was just done.

        Args:
            sender: its host, or "a sender" where that is not known.
            reason: a sentence without its beginning.
        """
        self._write((sender, reason), f"Refused {sender}: {reason}", _AGAIN_S)

    def reject(self, rejected: Rejected) -> None:
        """Write down what of a sender's is rejected, once for each kind of reason, and again after an hour."""
        self._write(rejected.kind, rejected.sentence, _REJECTED_AGAIN_S)

    def _write(self, kind: tuple[str, str], sentence: str, again_s: float) -> None:
        with self._lock:
            lines = self._lines_due(kind, again_s)
        # Outside of the lock: a handler of the log may take its time.
        if lines == _LINES:
            sentence = "Further refusals of this minute are not written down; /metrics counts them all, by reason."
        if 0 < lines <= _LINES:
            _log.warning("%s", sentence)

    def _lines_due(self, kind: tuple[str, str], again_s: float) -> int:
        """Return the how manieth line of this minute it is; 0 where it was just written."""
        now = self._clock()
        before = self._told_at.get(kind)
        if before is not None and now - before < again_s:
            return 0
        if len(self._told_at) >= _MOST:
            self._told_at.clear()
        self._told_at[kind] = now
        if now - self._minute >= _AGAIN_S:
            self._minute, self._lines = now, 0
        self._lines += 1
        return self._lines

    def watch(self, tls: ssl.SSLContext) -> None:
        """Write down handshakes that fail: asyncio drops such a connection without a word."""
        refusals = self

        class Handshake(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # no failure: more of it has to arrive
                    raise
                except ssl.SSLError as error:
                    refusals.tell("a sender", _handshake(error))
                    raise

        # asyncio makes an object of this class for each connection.
        tls.sslobject_class = Handshake


def _handshake(error: ssl.SSLError) -> str:
    if error.reason in {"HTTP_REQUEST", "WRONG_VERSION_NUMBER"}:
        return "it does not speak TLS, and this port does. Its endpoint has to begin with https://."
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate, and the service asks for one (listen.tls.client_ca)."
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not taken ({error.verify_message}). Compare its OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE "
            "with the authorities of listen.tls.client_ca, and both dates."
        )
    return (
        f"the TLS handshake failed ({error.reason}). Compare its OTEL_EXPORTER_OTLP_CERTIFICATE with the authority of "
        "this service's certificate, and both dates."
    )
