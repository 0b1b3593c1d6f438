"""TLS and client certificates (mTLS) of both receivers, with certificates made by openssl."""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters import StepRecord
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.config import ServiceConfig, TlsFiles
from otel_ml_service.service import Service
from tests.integration.conftest import PROTOBUF, Bench
from tests.otlp import FakeWriter
from tests.unit.otel_ml_service.cli.program import otel_ml
from tests.waiting import eventually

EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path, name: str) -> Pair:
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
            "-subj", f"/CN={name}", "-keyout", made.key, "-out", made.certificate)  # fmt: skip
    return made


def issued(ca: Pair, name: str) -> Pair:
    folder = ca.certificate.parent
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", made.key, "-out", request)  # fmt: skip
    openssl("x509", "-req", "-in", request, "-CA", ca.certificate, "-CAkey", ca.key, "-CAcreateserial", "-days", 2,
            "-extfile", extensions, "-out", made.certificate)  # fmt: skip
    return made


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    ours, others = authority(folder, "ours"), authority(folder, "others")
    return {
        "ours": ours,
        "others": others,
        "server": issued(ours, "server"),
        "rank": issued(ours, "rank"),
        "stranger": issued(others, "stranger"),
    }


@pytest.fixture
def tls(pairs: dict[str, Pair]) -> TlsFiles:
    return TlsFiles(pairs["server"].certificate, pairs["server"].key)


@pytest.fixture
def mutual(pairs: dict[str, Pair]) -> TlsFiles:
    return TlsFiles(pairs["server"].certificate, pairs["server"].key, pairs["ours"].certificate)


def send_http(service: Service, ca: Pair, client: Pair | None, step: int) -> int:
    assert service.endpoint.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(ca.certificate))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int(service.endpoint.rpartition(":")[2]), context=context, timeout=10
    )
    try:
        body = FakeWriter().step(step, {"loss": 0.5}).SerializeToString()
        connection.request("POST", "/v1/metrics", body, {"content-type": PROTOBUF})
        return connection.getresponse().status
    finally:
        connection.close()


def send_grpc(service: Service, ca: Pair, client: Pair | None, step: int) -> None:
    assert service.grpc_address is not None
    credentials = grpc.ssl_channel_credentials(
        ca.certificate.read_bytes(),
        None if client is None else client.key.read_bytes(),
        None if client is None else client.certificate.read_bytes(),
    )
    with grpc.secure_channel("{}:{}".format(*service.grpc_address), credentials) as channel:
        body = FakeWriter(rank=1).step(step, {"loss": 0.5}).SerializeToString()
        channel.unary_unary(EXPORT)(body, timeout=10)


def arrived(recording: RecordingExporter) -> set[int]:
    return {record.step for record in recording.records if isinstance(record, StepRecord) and record.axis == "step"}


@pytest.mark.parametrize("client", [None, "rank"])
def test_both_receivers_serve_over_tls(
    bench: Bench, recording: RecordingExporter, tls: TlsFiles, pairs: dict[str, Pair], client: str | None
) -> None:
    service = bench.service({"recording": lambda: recording}, grpc=("127.0.0.1", 0), tls=tls)
    pair = pairs[client] if client else None

    assert send_http(service, pairs["ours"], pair, 1) == 200
    send_grpc(service, pairs["ours"], pair, 1)

    eventually(lambda: arrived(recording) == {1})


def test_doctor_knows_a_service_that_speaks_tls_alone_for_ours(
    bench: Bench, tls: TlsFiles, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    service = bench.service(grpc=("127.0.0.1", 0), tls=tls)
    assert service.grpc_address is not None
    addresses = {
        "OTEL_ML_LISTEN_HTTP": service.endpoint.removeprefix("https://"),
        "OTEL_ML_LISTEN_GRPC": "{}:{}".format(*service.grpc_address),
    }

    done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_CERTIFICATE=str(pairs["ours"].certificate), **addresses)

    for variable, address in addresses.items():
        assert f"an otel_ml service listens on {address} ({variable})" in done.stdout


def test_with_a_client_ca_ranks_with_its_certificates_are_served(
    bench: Bench, recording: RecordingExporter, mutual: TlsFiles, pairs: dict[str, Pair]
) -> None:
    service = bench.service({"recording": lambda: recording}, grpc=("127.0.0.1", 0), tls=mutual)

    assert send_http(service, pairs["ours"], pairs["rank"], 1) == 200
    send_grpc(service, pairs["ours"], pairs["rank"], 1)

    eventually(lambda: arrived(recording) == {1})


def test_an_authority_that_is_taken_out_of_the_file_of_client_ca_is_not_trusted_anymore(
    bench: Bench, pairs: dict[str, Pair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = tmp_path / "clients.pem"
    shutil.copy(pairs["ours"].certificate, trusted)
    files = TlsFiles(pairs["server"].certificate, pairs["server"].key, trusted)
    service = bench.service(grpc=("127.0.0.1", 0), tls=files)
    assert send_http(service, pairs["ours"], pairs["rank"], 1) == 200

    shutil.copy(pairs["others"].certificate, tmp_path / "new.pem")
    (tmp_path / "new.pem").replace(trusted)

    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        send_http(service, pairs["ours"], pairs["rank"], 2)
    assert send_http(service, pairs["ours"], pairs["stranger"], 2) == 200
    with pytest.raises(grpc.RpcError):
        send_grpc(service, pairs["ours"], pairs["rank"], 2)
    send_grpc(service, pairs["ours"], pairs["stranger"], 2)
    [refused] = [line for line in caplog.messages if "certificate is not taken" in line]
    assert "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" in refused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_with_a_client_ca_no_session_goes_on_without_the_certificate_being_looked_at(
    bench: Bench, mutual: TlsFiles, pairs: dict[str, Pair], version: ssl.TLSVersion
) -> None:
    service = bench.service(tls=mutual)
    context = ssl.create_default_context(cafile=str(pairs["ours"].certificate))
    context.load_cert_chain(pairs["rank"].certificate, pairs["rank"].key)
    context.maximum_version = version

    def answered(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        plain = socket.create_connection(("127.0.0.1", int(service.endpoint.rpartition(":")[2])), timeout=10)
        with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            return connection.session, connection.session_reused

    session, _ = answered(None)
    assert not answered(session)[1]


@pytest.mark.parametrize("client", [None, "stranger"])
def test_with_a_client_ca_nobody_else_is_served(
    bench: Bench, recording: RecordingExporter, mutual: TlsFiles, pairs: dict[str, Pair], client: str | None
) -> None:
    service = bench.service({"recording": lambda: recording}, grpc=("127.0.0.1", 0), tls=mutual)
    pair = pairs[client] if client else None

    # With TLS 1.3 the client learns it with its first read: as an alert, or as a closed connection.
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        send_http(service, pairs["ours"], pair, 1)
    with pytest.raises(grpc.RpcError) as caught:
        send_grpc(service, pairs["ours"], pair, 1)

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert service.runs() == []


def test_plain_requests_to_a_tls_service_are_not_taken(bench: Bench, tls: TlsFiles) -> None:
    service = bench.service(tls=tls)

    with pytest.raises((ConnectionError, http.client.HTTPException)):
        bench.sender(service).send("metrics", FakeWriter().step(1, {"loss": 1.0}))

    assert service.runs() == []


def test_a_client_that_trusts_another_authority_does_not_talk_to_us(
    bench: Bench, tls: TlsFiles, pairs: dict[str, Pair]
) -> None:
    service = bench.service(tls=tls)

    with pytest.raises(ssl.SSLCertVerificationError):
        send_http(service, pairs["stranger"], None, 1)


def test_files_that_are_no_certificates_are_said_with_their_names(tmp_path: Path, tls: TlsFiles) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")

    with pytest.raises(ConfigError, match=r"wrong.pem"):
        Service(ServiceConfig(dir=tmp_path, http=("127.0.0.1", 0), tls=TlsFiles(wrong, tls.key)))


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_an_address_that_others_reach_demands_a_token_or_client_certificates(
    address: str, tls: TlsFiles, mutual: TlsFiles
) -> None:
    for protected in ({"token": "a secret"}, {"tls": mutual}):
        ServiceConfig(http=(address, 4318), grpc=(address, 4317), **protected)  # type: ignore[arg-type]
    for open_to_all in ({}, {"tls": tls}):
        with pytest.raises(ConfigError) as caught:
            ServiceConfig(http=(address, 4318), grpc=(address, 4317), **open_to_all)  # type: ignore[arg-type]
        assert [problem.partition("=")[0] for problem in caught.value.problems] == [
            "OTEL_ML_LISTEN_HTTP",
            "OTEL_ML_LISTEN_GRPC",
        ]


def certificate_shown(address: tuple[str, int], ca: Pair) -> str:
    """Return the certificate that a new connection sees."""
    context = ssl.create_default_context(cafile=str(ca.certificate))
    with socket.create_connection(address, timeout=10) as plain:
        context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC hangs up on who does not speak it
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            found = tls.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found)


def replaced(pair: Pair, by: Pair) -> None:
    """Do what certbot and cert-manager do: each file at once, one after the other."""
    for old, new in ((pair.key, by.key), (pair.certificate, by.certificate)):
        fresh = old.with_name(f"{old.name}.new")
        shutil.copy(new, fresh)
        fresh.replace(old)


def test_a_renewed_certificate_is_shown_without_a_restart_and_one_without_its_key_is_not(
    bench: Bench, recording: RecordingExporter, pairs: dict[str, Pair], tmp_path: Path
) -> None:
    ours, next_one = Pair(tmp_path / "cert", tmp_path / "key"), issued(pairs["ours"], "renewed")
    shutil.copy(pairs["server"].certificate, ours.certificate)
    shutil.copy(pairs["server"].key, ours.key)
    files = TlsFiles(ours.certificate, ours.key)
    service = bench.service({"recording": lambda: recording}, grpc=("127.0.0.1", 0), tls=files)
    assert service.grpc_address is not None
    addresses = [("127.0.0.1", int(service.endpoint.rpartition(":")[2])), service.grpc_address]
    before = pairs["server"].certificate.read_text()

    ours.key.with_name("key.new").write_bytes(next_one.key.read_bytes())
    ours.key.with_name("key.new").replace(ours.key)
    for address in addresses:
        assert certificate_shown(address, pairs["ours"]) in before
    replaced(ours, next_one)

    for address in addresses:
        eventually(
            lambda address=address: certificate_shown(address, pairs["ours"]) in next_one.certificate.read_text()
        )
    assert send_http(service, pairs["ours"], None, 1) == 200
    send_grpc(service, pairs["ours"], None, 1)
    eventually(lambda: arrived(recording) == {1})
