"""`otel-ml doctor` and `env`: what they say of a service, an endpoint and settings."""

from __future__ import annotations

import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import grpc
import pytest

from tests.otlp_server import Reply, otlp_server
from tests.plugin_package import install
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import otel_ml
from tests.unit.otel_ml_service.cli.served import served

pytestmark = pytest.mark.long


@contextmanager
def stranger() -> Iterator[str]:
    """Serve OTLP as a Collector does: everything is accepted, nothing is said."""

    class Accepting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Accepting)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_doctor_is_content_where_a_service_answers(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url)

    assert done.returncode == 0, done.stdout
    assert f"an otel_ml service answers at {url}" in done.stdout
    assert list(tmp_path.glob("*/*/metrics.jsonl")) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise SystemExit(3)", "it cannot be loaded: SystemExit: 3"),
        ("def (", "it cannot be loaded: SyntaxError"),
        ("class Store: pass", "it has no start, export, force_flush, shutdown"),
        ("", "it cannot be loaded: AttributeError"),
    ],
)
def test_an_exporter_of_somebody_else_that_is_broken_is_said_and_the_other_checks_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    package = install(tmp_path / "site", {"acme": source}, "store = acme:Store")
    monkeypatch.syspath_prepend(str(package))

    done = otel_ml(tmp_path, "doctor", OTEL_ML_EXPORTERS="store")

    assert done.returncode == 1
    assert "OTEL_ML_EXPORTERS names 'store'" in done.stdout
    assert said in done.stdout
    assert "telemetry" in done.stdout
    assert "Traceback" not in done.stderr


def test_doctor_leaves_nothing_behind_that_an_alert_or_the_log_of_the_service_would_tell_of(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url)
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            metrics = answer.read().decode()

    assert done.returncode == 0, done.stdout
    assert "otel_ml_probes_total 1" in metrics
    assert "otel_ml_rejected_total{" not in metrics


@pytest.mark.parametrize("variable", ["", "OTEL_ML_TOKEN", "OTEL_ML_TOKEN_FILE"])
def test_doctor_knows_the_service_that_has_the_address_of_serve(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o600)
    settings = {variable: "secret" if variable == "OTEL_ML_TOKEN" else str(file)} if variable else {}
    with served(tmp_path, **settings) as url:
        address = url.removeprefix("http://")
        done = otel_ml(tmp_path, "doctor", OTEL_ML_LISTEN_HTTP=address, OTEL_ML_LISTEN_GRPC="127.0.0.1:0", **settings)

    assert f"an otel_ml service listens on {address}" in done.stdout


@pytest.mark.parametrize("variable", ["OTEL_ML_TOKEN", "OTEL_ML_TOKEN_FILE"])
def test_doctor_says_where_the_token_is_that_a_service_does_not_take(tmp_path: Path, variable: str) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    with served(tmp_path, OTEL_ML_TOKEN="new") as url:
        shown = {variable: "old" if variable == "OTEL_ML_TOKEN" else str(file)}
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url, **shown)

    found, do = done.stdout.splitlines()[-2:]
    assert done.returncode == 1
    assert "does not take the credentials of this process: HTTP 401" in found
    assert variable in do
    assert "otel-ml serve" not in do


def test_doctor_says_which_folder_no_disk_can_have_and_the_other_checks_follow(tmp_path: Path) -> None:
    found = otel_ml(tmp_path, "doctor", "--dir", str(tmp_path / ("n" * 300)))

    assert found.returncode == 1
    assert "cannot be used: File name too long" in found.stdout
    assert "no endpoint is set" in found.stdout


@pytest.mark.parametrize(("count", "said"), [(1, "1 run takes "), (2, "2 runs take ")])
def test_doctor_says_how_much_runs_take(tmp_path: Path, count: int, said: str) -> None:
    for number in range(count):
        write_run(tmp_path, f"0{number}abc", digits_records(steps=2))

    assert said in otel_ml(tmp_path, "doctor").stdout


def test_doctor_accuses_no_collector_and_says_what_it_cannot_tell_and_how_it_could(tmp_path: Path) -> None:
    with stranger() as url:
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url)

    found, do = done.stdout.splitlines()[-2:]
    assert done.returncode == 0
    assert found.startswith("· telemetry")
    assert "takes OTLP, but not as an otel_ml service does" in found
    assert "otel-ml doctor --service" in do


def test_doctor_fails_where_a_named_service_is_not_behind_a_collector(tmp_path: Path) -> None:
    with stranger() as url:
        done = otel_ml(tmp_path, "doctor", "--service", url, OTEL_EXPORTER_OTLP_ENDPOINT=url)

    assert done.returncode == 1
    assert f"no otel_ml service answers at {url}" in done.stdout


def test_doctor_says_which_variable_has_the_authority_where_a_certificate_is_not_trusted(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
         "-subj", "/CN=service", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "own.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}"
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url)
        plain = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=url.replace("https", "http"))
        server.shutdown()

    assert "begin the endpoint with https://" in plain.stdout.splitlines()[-1]
    do = done.stdout.splitlines()[-1]
    assert done.returncode == 1
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in do
    assert "otel-ml serve" not in do


def test_doctor_takes_no_web_page_for_a_receiver(tmp_path: Path) -> None:
    with otlp_server() as server:
        server.replies.append(Reply(200, {"content-type": "text/html"}, b"<html>Please log in</html>"))
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)

    assert done.returncode == 1
    assert "does not answer as OTLP does: HTTP 200 text/html: <html>Please log in</html>" in done.stdout


def test_doctor_tells_a_port_for_grpc_from_one_for_http(tmp_path: Path) -> None:
    listening = grpc.server(ThreadPoolExecutor(1))
    port = listening.add_insecure_port("127.0.0.1:0")
    listening.start()
    with otlp_server() as server:
        over_http = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
        over_grpc = otel_ml(
            tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=server.url, OTEL_EXPORTER_OTLP_PROTOCOL="grpc"
        )
    listening.stop(0).wait()

    assert (over_http.returncode, over_grpc.returncode) == (1, 1)
    assert f"127.0.0.1:{port} speaks gRPC. Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in over_http.stdout
    assert f"127.0.0.1:{server.port} speaks HTTP/1.1, not gRPC" in over_grpc.stdout


def test_doctor_says_that_an_endpoint_without_tls_begins_otherwise(tmp_path: Path) -> None:
    with otlp_server() as server:
        done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT=server.url.replace("http", "https"))

    assert done.returncode == 1
    assert "begin the endpoint with http://" in done.stdout.splitlines()[-1]


def test_doctor_fails_where_nobody_listens(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "doctor", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")

    assert done.returncode == 1
    assert "otel-ml serve" in done.stdout


def test_doctor_fails_on_a_setting_that_cannot_be_read(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "doctor", OTEL_ML_FLUSH_INTERVAL="5s")

    assert done.returncode == 1
    assert "OTEL_ML_FLUSH_INTERVAL" in done.stdout
    assert "'5s'" in done.stdout


def test_doctor_fails_on_a_misspelled_setting_and_names_the_right_one(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "doctor", OTEL_ML_EXPORTER="jsonl")

    assert done.returncode == 1
    assert "OTEL_ML_EXPORTER is not a setting" in done.stdout
    assert "set OTEL_ML_EXPORTERS, if that is meant" in done.stdout


def test_doctor_lets_a_plug_in_have_variables_of_its_own_and_a_collector_those_it_reads(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "doctor", OTEL_ML_ACME_URL="http://acme.example", OTEL_ML_SERVICE="service:4317")

    assert done.returncode == 0, done.stdout
    assert "OTEL_ML_ACME_URL is not a setting of otel_ml: a plug-in may read it" in done.stdout
    assert "OTEL_ML_SERVICE" not in done.stdout


def test_env_says_where_each_value_comes_from_and_masks_secrets(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "env", OTEL_ML_TOKEN="hush", OTEL_ML_EXPORTERS="jsonl,wandb")

    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.startswith("OTEL")}
    assert done.returncode == 0, done.stderr
    assert rows["OTEL_ML_TOKEN"] == ["***", "environment"]
    assert rows["OTEL_ML_EXPORTERS"] == ["jsonl,wandb", "environment"]
    assert rows["OTEL_ML_FLUSH_INTERVAL"] == ["1000", "ms", "default"]
    assert "hush" not in done.stdout + done.stderr


def test_env_fails_on_a_misspelled_setting_and_names_the_right_one(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "env", OTEL_ML_EXPORTER="jsonl")

    assert done.returncode == 1
    assert "OTEL_ML_EXPORTER: there is no such setting. Did you mean OTEL_ML_EXPORTERS?" in done.stderr
