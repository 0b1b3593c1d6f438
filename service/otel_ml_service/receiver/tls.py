"""The certificate that the service shows: it is read again when its files have changed, for the connections then."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml.explanation import explained

__all__ = ["PemFiles", "ServerCertificate"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PemFiles:
    """What the files hold.

    Attributes:
        client_ca: demands a certificate of every client (mTLS).
    """

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class ServerCertificate:
    """A certificate and its key. Safe to use from several threads.

    Args:
        certificate: PEM file.
        key: PEM file.
        client_ca: PEM file of who signed the clients' certificates, which are then demanded.

    Raises:
        ConfigError: a file cannot be used.

    Attributes:
        context: for OTLP/HTTP. It looks again at the beginning of each handshake, which has what is new.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._files = certificate, key, *([client_ca] if client_ca is not None else [])
        self._lock = threading.Lock()
        self._complaint = ""
        try:
            self._seen = self._stamps()
            self.context = self._newest = self._loaded()
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The TLS files {str(certificate)!r}, {str(key)!r} cannot be used: {error}.", slug="tls-files"
            ) from error
        # Called in each handshake, also in one that names no server.
        self.context.sni_callback = lambda connection, *_: self._show_newest(connection)

    def current(self) -> PemFiles:
        """Return what the files hold, or held when they could last be used."""
        self._look_again()
        with self._lock:
            return self._usable

    def _show_newest(self, connection: ssl.SSLObject) -> None:
        """Another context, not the same one loaded again: that would go on trusting an authority that is taken away."""
        self._look_again()
        connection.context = self._newest

    def _look_again(self) -> None:
        with self._lock:
            try:
                stamps = self._stamps()
                if stamps == self._seen:
                    return
                self._newest = self._loaded()
                self._seen, self._complaint = stamps, ""
                _log.info("The TLS certificate %s was renewed: connections from now on have it.", self._files[0])
            # `_seen` stays as it was: files that are just being written are read again at the next look.
            except (OSError, ssl.SSLError) as error:
                self._complain(f"{error}")

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            sentence = (
                f"{self._files[0]} has changed and cannot be used ({complaint}); the certificate it had is shown."
            )
            _log.warning("%s", explained(sentence, "tls-files"))

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever the system's configuration of OpenSSL allows
        _load(context, *self._files)
        self._usable = PemFiles(*(path.read_bytes() for path in self._files))
        return context

    def _stamps(self) -> list[tuple[int, int, int]]:
        return [(found.st_ino, found.st_mtime_ns, found.st_size) for found in (path.stat() for path in self._files)]


def _load(context: ssl.SSLContext, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        # With a ticket of an earlier connection nobody's certificate would be looked at: of TLS 1.3, and of 1.2.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
