"""Who may talk to a service: nobody from elsewhere without a token or a certificate, over TLS 1.2 or newer."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import warnings
from inspect import getsource
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_service.config import ServiceConfig, TlsFiles
from otel_ml_service.receiver import grpc as grpc_receiver
from otel_ml_service.receiver import http as http_receiver
from otel_ml_service.receiver import routes
from otel_ml_service.receiver.addresses import is_loopback
from otel_ml_service.receiver.tokens import Tokens
from tests.integration.conftest import Bench
from tests.integration.test_tls import Pair, pairs, tls
from tests.integration.worker_process import environment

__all__ = ["pairs", "tls"]

OPEN = ["0.0.0.0", "::", "192.0.2.1", "0", "0x0", "host-that-is-nowhere.invalid", "*", "::ffff:192.0.2.1", "fe80::1"]


@pytest.mark.parametrize("token", ["", " ", "\t"], ids=repr)
@pytest.mark.parametrize("host", OPEN)
@pytest.mark.parametrize("variable", ["OTEL_ML_LISTEN_HTTP", "OTEL_ML_LISTEN_GRPC"])
def test_an_address_that_others_reach_is_refused_without_a_token_whatever_it_is_written_like(
    variable: str, host: str, token: str
) -> None:
    address = f"[{host}]:4399" if ":" in host else f"{host}:4399"

    with pytest.raises(ConfigError, match=r"not a loopback address.*Set OTEL_ML_TOKEN") as caught:
        ServiceConfig.load(environ={variable: address, "OTEL_ML_TOKEN": token})
    assert variable in str(caught.value)

    ServiceConfig.load(environ={variable: address, "OTEL_ML_TOKEN": "a secret"})


@pytest.mark.parametrize("content", ["token: ''", "token:", "token: ' '", "tokens: []"])
def test_an_empty_token_in_the_file_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "otel-ml.yaml"
    file.write_text(f"{content}\nlisten: {{http: '0.0.0.0:4399'}}\n")

    with pytest.raises(ConfigError, match="not a loopback address"):
        ServiceConfig.load(file=file, environ={})


@pytest.mark.parametrize("tokens", ["['']", "[' ']", "[new, '']", "[true]", "['new', '${env:OLD}']"])
def test_a_list_with_a_blank_for_a_token_is_refused(tmp_path: Path, tokens: str) -> None:
    file = tmp_path / "otel-ml.yaml"
    file.write_text(f"tokens: {tokens}\nlisten: {{http: '0.0.0.0:4399'}}\n")

    with pytest.raises(ConfigError, match="tokens: expected"):
        ServiceConfig.load(file=file, environ={"OLD": ""})


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_serve_ends_at_once_and_says_why(tmp_path: Path, option: str) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "serve", "--to", "jsonl", option, "0.0.0.0:0"]

    done = subprocess.run(
        command, env=environment(tmp_path, {}), capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "0.0.0.0:0 is not a loopback address, so anybody could write to your runs" in done.stderr
    assert "Set OTEL_ML_TOKEN, or listen.tls with client_ca in otel-ml.yaml" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    ServiceConfig(http=(host, 0), grpc=(host, 0))


def test_a_name_is_loopback_only_if_all_it_stands_for_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*addresses: str) -> object:
        return lambda *_: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found("127.0.1.1"))
    assert is_loopback("this-host")
    monkeypatch.setattr(socket, "getaddrinfo", found("127.0.1.1", "192.0.2.1"))
    assert not is_loopback("localhost")


def test_by_default_a_service_listens_on_loopback_only(tmp_path: Path) -> None:
    config = ServiceConfig.load(environ={})

    assert is_loopback(config.http[0])
    assert config.grpc is not None
    assert is_loopback(config.grpc[0])
    embedded = ServiceConfig.load(rendezvous=tmp_path, environ={"OTEL_ML_EXPERIMENT_ID": "a"})
    assert embedded.http == ("127.0.0.1", 0)
    assert embedded.grpc is None


@pytest.mark.parametrize(
    "given",
    ["a secre", "a secret ", "A SECRET", "", "a secret\x00", "ä secret", "a secret, Bearer a secret"],
    ids=ascii,
)
def test_nothing_but_the_token_is_the_token(bench: Bench, given: str) -> None:
    sender = bench.sender(bench.service(token="a secret"), "")

    headers = {"authorization": f"Bearer {given}".encode().decode("latin-1")}
    status = sender.request("GET", "/healthz", headers=headers).status

    # A header with a NUL is none at all.
    assert status == (200 if given.strip() == "a secret" else 400 if "\x00" in given else 401)


def test_the_token_is_compared_in_constant_time() -> None:
    """A test cannot measure it; the one comparison there is must be the library's, and with all there are."""
    receivers = [Path(str(module.__file__)).read_text() for module in (grpc_receiver, routes)]

    assert [source.count("self._tokens.accept(") for source in receivers] == [1, 1]
    assert "sum(hmac.compare_digest(authorization, accepted) for accepted in self._accepted)" in getsource(
        Tokens.accept
    )


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("version", "is_taken"), [("TLSv1", False), ("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)]
)
def test_tls_older_than_1_2_is_refused(
    bench: Bench, tls: TlsFiles, pairs: dict[str, Pair], protocol: str, version: str, is_taken: bool
) -> None:
    service = bench.service(grpc=("127.0.0.1", 0), tls=tls)
    http_port = int(service.endpoint.rpartition(":")[2])
    port = http_port if protocol == "http" else (service.grpc_address or ("", 0))[1]
    context = ssl.create_default_context(cafile=str(pairs["ours"].certificate))
    context.set_alpn_protocols(["h2"] if protocol == "grpc" else ["http/1.1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    context.set_ciphers("ALL:@SECLEVEL=0")  # this client would speak the old versions

    assert spoken(port, context) == (version.replace("_", ".").replace("TLSv", "") if is_taken else None)


def spoken(port: int, context: ssl.SSLContext) -> str | None:
    """Return the version a handshake ends with, None where the server refuses."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            return str(connection.version()).removeprefix("TLSv")
    except (ssl.SSLError, ConnectionError):
        return None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_who_connects_and_does_not_finish_the_tls_handshake_is_dropped(
    bench: Bench, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(http_receiver, "HEAD_S", 0.3)  # as shipped: 10 s
    monkeypatch.setattr(grpc_receiver, "_HANDSHAKE_S", 0.3)  # ten seconds of a test
    service = bench.service(grpc=("127.0.0.1", 0), tls=tls)
    http_port = int(service.endpoint.rpartition(":")[2])
    port = http_port if protocol == "http" else (service.grpc_address or ("", 0))[1]

    with socket.create_connection(("127.0.0.1", port), timeout=5) as silent:
        silent.sendall(b"\x16\x03\x01")  # the beginning of a ClientHello

        assert is_closed(silent)


def is_closed(connection: socket.socket) -> bool:
    """Wait for the other side to close, for as long as the connection's time-out is."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
