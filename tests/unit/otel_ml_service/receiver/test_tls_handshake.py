"""A TLS handshake that fails is written down with what its sender has to change; asyncio alone says nothing of it."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.tls import ServerCertificate
from tests.certificates import Certificates, certificates


def plain_text(made: Certificates, stranger: Certificates) -> bytes:
    return b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"


def no_certificate(made: Certificates, stranger: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(made.authority))


def unknown_authority(made: Certificates, stranger: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(stranger.authority))


def certificate(made: Certificates, stranger: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.authority))
    context.load_cert_chain(made.client, made.client_key)
    return context


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (plain_text, "it does not speak TLS, and this port does. Its endpoint has to begin with https://."),
        (no_certificate, "it showed no certificate, and the service asks for one (listen.tls.client_ca)."),
        (unknown_authority, "the TLS handshake failed ("),
        (certificate, ""),
    ],
)
def test_why_a_handshake_fails_is_written_down(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    client: Callable[[Certificates, Certificates], bytes | ssl.SSLContext],
    said: str,
) -> None:
    for name in ("made", "stranger"):
        (tmp_path / name).mkdir()
    made, stranger = certificates(tmp_path / "made"), certificates(tmp_path / "stranger")
    tls = ServerCertificate(made.server, made.server_key, made.authority).context
    RefusalLog().watch(tls)

    with caplog.at_level(logging.WARNING):
        is_agreed = _shake_hands(tls, client(made, stranger))

    assert is_agreed == (not said)
    assert [message.startswith(f"Refused a sender: {said}") for message in caplog.messages] == [True] * bool(said)


def _shake_hands(server_tls: ssl.SSLContext, sent: bytes | ssl.SSLContext) -> bool:
    """Return whether the server has agreed to what a client sends, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_tls.wrap_bio(to_server, to_client, server_side=True)
    client = None
    if isinstance(sent, bytes):
        to_server.write(sent)
    else:
        client = sent.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(5):
        if client is not None:
            with contextlib.suppress(ssl.SSLError):  # its own complaint is not what is asked
                client.do_handshake()
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
        return True
    return False


def test_a_certificate_that_cannot_be_used_is_said_once_for_each_reason_and_the_one_before_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates(tmp_path)
    tls = ServerCertificate(made.server, made.server_key, None)
    shown, key = tls.current(), made.server_key.read_bytes()

    with caplog.at_level(logging.INFO):
        for text in (b"no key", b"not a key either", key):
            made.server_key.write_bytes(text)
            for _ in range(3):
                assert tls.current() == shown
        made.server_key.unlink()
        for _ in range(3):
            assert tls.current() == shown

    said = [message.split(" and ")[0].split(" was ")[-1] for message in caplog.messages]
    assert [message.partition(" (")[0] for message in said] == [
        f"{made.server} has changed",
        "renewed: connections from now on have it.",
        f"{made.server} has changed",
    ]
