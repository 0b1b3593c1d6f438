"""The TLS context of OTLP/HTTP."""

from __future__ import annotations

import ssl
from pathlib import Path

from otel_ml.exceptions import ConfigError

__all__ = ["server_context"]


def server_context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """Return a context that serves `certificate`, and with `client_ca` demands one of every client.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever the system's configuration of OpenSSL allows
    try:
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The TLS files {str(certificate)!r}, {str(key)!r} cannot be used: {error}.", slug="tls-files"
        ) from error
    return context
