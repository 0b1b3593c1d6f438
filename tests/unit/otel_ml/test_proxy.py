from __future__ import annotations

import base64
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.link import where_of
from otel_ml._internal.transport.proxy import proxy_for
from otel_ml._internal.transport.url import Target
from otel_ml.config import Endpoint
from otel_ml.wire.spool_format import request_body
from tests.certificates import certificates
from tests.otlp_server import OtlpServer, otlp_server

BODY = request_body(b"", [])
FAR = Target.parse("http://collector.cluster.invalid:4318/v1/metrics")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


def relay(client: socket.socket, port: int, refusal: bytes) -> str:
    """Do one connection's work as a proxy; return the head of its first request."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(65536)
    with client, socket.create_connection(("127.0.0.1", port)) as there:
        back = threading.Thread(target=pump, args=(there, client))
        url = head.split(b" ")[1]
        if refusal:
            client.sendall(refusal)
        elif head.startswith(b"CONNECT "):
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there.sendall(head.replace(url, b"/" + url.split(b"/", 3)[3], 1))
        if not refusal:
            back.start()
            pump(client, there)
            back.join()
    return head.partition(b"\r\n\r\n")[0].decode()


@contextmanager
def proxy_to(server: OtlpServer, refusal: bytes = b"") -> Iterator[tuple[str, list[str]]]:
    """A proxy that reaches `server` under any name, by CONNECT too; with `refusal`, answers that.

    Yields its address, and the heads of the connections that are over.
    """
    heads: list[str] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heads.append(relay(self.request, server.port, refusal))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{proxy.server_address[1]}", heads
        proxy.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_an_endpoint_elsewhere_is_reached_through_the_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_server() as server, proxy_to(server) as (proxy, seen):
        monkeypatch.setenv(name, f"http://{proxy}")
        transport = HttpTransport(Endpoint(url="http://collector.cluster.invalid:4318"), proxy_for)

        answers = [transport.post("/v1/metrics", BODY, 5).outcome for _ in range(2)]
        transport.close()

    assert answers == ["ok", "ok"]
    assert seen[0].startswith("POST http://collector.cluster.invalid:4318/v1/metrics HTTP/1.1\r\n")
    assert "host: collector.cluster.invalid:4318" in seen[0]
    assert len(server.requests) == 2


def test_with_tls_the_proxy_only_connects_and_learns_no_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    with otlp_server(tls=context) as server, proxy_to(server) as (proxy, seen):
        monkeypatch.setenv("https_proxy", f"http://us%40er:pass%3Aword@{proxy}")
        endpoint = Endpoint(
            url="https://collector.example:4318",
            certificate=str(files.authority),
            headers={"authorization": "Bearer secret"},
        )
        transport = HttpTransport(endpoint, proxy_for)

        answer = transport.post("/v1/metrics", BODY, 5)
        transport.close()

    assert answer.outcome == "ok", answer
    assert seen[0].startswith("CONNECT collector.example:4318 HTTP/1.1\r\n")
    assert f"proxy-authorization: Basic {base64.b64encode(b'us@er:pass:word').decode()}" in seen[0]
    assert "secret" not in seen[0]
    assert server.requests[0][1]["authorization"] == "Bearer secret"
    assert "proxy-authorization" not in server.requests[0][1]


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "403 Forbidden", "503 Unavailable"])
def test_a_proxy_that_refuses_is_named_and_nothing_is_given_up(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
    with otlp_server() as server, proxy_to(server, refusal) as (proxy, _):
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://{proxy}")
        plain = HttpTransport(Endpoint(url="http://collector.invalid:4318"), proxy_for).post("/v1/metrics", BODY, 5)
        tls = HttpTransport(Endpoint(url="https://collector.invalid:4318"), proxy_for).post("/v1/metrics", BODY, 5)

    assert (plain.outcome, tls.outcome) == ("retry", "retry")
    assert f"the proxy http://{proxy} answered HTTP {status[:3]}" in tls.reason


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "127.1.2.3", "0.0.0.0", "[::1]", "[::]"])
def test_this_host_is_never_reached_through_a_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")

    assert proxy_for(Target.parse(f"http://{host}:4318")) is None


@pytest.mark.parametrize(
    ("no_proxy", "is_used"),
    [
        ("*", False),
        ("cluster.invalid", False),
        (".cluster.invalid", False),
        ("other.invalid, collector.cluster.invalid:4318", False),
        ("collector.cluster.invalid:9999", True),
        ("other.invalid", True),
        ("", True),
    ],
)
def test_no_proxy_names_who_is_reached_directly(no_proxy: str, is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", no_proxy)

    assert (proxy_for(FAR) is not None) == is_used


def test_an_empty_variable_unsets_the_one_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("http_proxy", "")

    assert proxy_for(FAR) is None


@pytest.mark.parametrize("url", ["http://proxy:port", "http://[::1", "http://proxy:99999"])
def test_a_proxy_that_is_no_url_is_said_and_nothing_raised(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", url)
    endpoint = Endpoint(url="http://collector.invalid:4318", source="OTEL_EXPORTER_OTLP_ENDPOINT")

    answer = HttpTransport(endpoint, proxy_for).post("/v1/metrics", BODY, 5)

    assert answer.outcome == "retry"
    assert "the proxy that the environment names is not a URL" in answer.reason
    assert where_of(endpoint) == "http://collector.invalid:4318 (OTEL_EXPORTER_OTLP_ENDPOINT)"


def test_the_proxy_is_shown_without_who_we_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:s3cret@proxy.invalid:3128")
    endpoint = Endpoint(url="http://collector.invalid:4318", source="OTEL_EXPORTER_OTLP_ENDPOINT")

    where = where_of(endpoint)

    assert where.endswith("(OTEL_EXPORTER_OTLP_ENDPOINT, through the proxy http://proxy.invalid:3128)")
    assert "s3cret" not in where
    assert "s3cret" not in repr(proxy_for(FAR))
