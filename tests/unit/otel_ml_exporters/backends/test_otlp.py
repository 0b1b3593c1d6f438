"""What the `otlp` exporter does when the receiver does not simply take everything."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp import OtlpExporter
from otel_ml_exporters.backends.otlp.destination import destination
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from tests.certificates import certificates
from tests.contract.stream import run_info, step
from tests.otlp_server import OtlpServer, Reply, attributes_of


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    server = OtlpServer()
    yield server
    server.close()


def started(url: str, **options: object) -> OtlpExporter:
    exporter = OtlpExporter(endpoint=url, **options)
    exporter.start(run_info(Path("unused"), "run"))
    return exporter


def test_a_point_says_its_step_and_its_resource_the_run(server: OtlpServer) -> None:
    started(server.url, headers={"api-key": "k"}).export([step(7, 3, {"loss": 0.5}, attempt=1, amendment=True)])

    [(path, headers, message)] = server.requests
    [resource] = message.resource_metrics
    [point] = resource.scope_metrics[0].metrics[0].gauge.data_points
    assert path == "/v1/metrics"
    assert {name.lower(): text for name, text in headers.items()}["api-key"] == "k"
    assert attributes_of(resource.resource.attributes) == {
        "service.name": "trainer", "service.instance.id": "run",
        "ml.run.id": "run", "ml.run.name": "run", "ml.experiment.name": "digits",
    }  # fmt: skip
    assert attributes_of(point.attributes) == {
        "ml.step": 3, "ml.step.axis": "step", "ml.attempt": 1, "ml.seq": 7, "ml.amendment": True,
    }  # fmt: skip
    assert (point.as_double, point.time_unix_nano) == (0.5, 1_700_000_007_000_000_000)


def test_two_runs_are_two_series_where_only_job_and_instance_become_labels(server: OtlpServer) -> None:
    for run in ("first", "second"):
        exporter = OtlpExporter(endpoint=server.url)
        exporter.start(run_info(Path("unused"), run))
        exporter.export([step(1, 0, {"loss": 0.5})])

    resources = [attributes_of(message.resource_metrics[0].resource.attributes) for _, _, message in server.requests]
    labels = [(resource["service.name"], resource["service.instance.id"]) for resource in resources]
    assert labels == [("trainer", "first"), ("trainer", "second")]


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429, 502, 503, 504])
def test_an_answer_that_passes_is_worth_another_try(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status, {"retry-after": "7"}, b"busy"))

    with pytest.raises(RetryableExportError, match=f"answered {status} .*busy") as caught:
        started(server.url).export([step(1, 1, {"loss": 0.5})])

    assert caught.value.retry_after == 7.0


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "text/html"}, b"<html>Please log in</html>"),
        Reply(200, {"content-type": "application/x-protobuf"}, b"<html>"),
        Reply(301, {"location": "http://127.0.0.1:9/v1/metrics"}),
        Reply(404, {"content-type": "text/html; charset=utf-8"}, b"<html>no such host here</html>"),
        Reply(500, {"content-type": "text/html"}, b"<html>something went wrong</html>"),
        Reply(521, {"content-type": "text/html"}, b"<html>the web server is down</html>"),
    ],
)
def test_a_page_of_something_in_between_delivers_nothing(server: OtlpServer, reply: Reply) -> None:
    server.replies.append(reply)

    with pytest.raises(RetryableExportError, match=str(reply.status)):
        started(server.url).export([step(1, 1, {"loss": 0.5})])


@pytest.mark.parametrize("status", [400, 404, 500])
def test_another_answer_is_final(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status))

    with pytest.raises(PermanentExportError, match=f"answered {status}"):
        started(server.url).export([step(1, 1, {"loss": 0.5})])


@pytest.mark.parametrize("status", [400, 413])
def test_a_page_that_says_the_request_itself_is_at_fault_is_final(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status, {"content-type": "text/html"}, b"<html>Request Entity Too Large</html>"))

    with pytest.raises(PermanentExportError, match=f"answered {status}"):
        started(server.url).export([step(1, 1, {"loss": 0.5})])


def test_points_that_were_refused_are_counted_and_not_sent_again(server: OtlpServer) -> None:
    partial = ExportMetricsServiceResponse()
    partial.partial_success.rejected_data_points = 2
    partial.partial_success.error_message = "too many series"
    server.replies.append(Reply(200, {}, partial.SerializeToString()))

    with pytest.raises(PermanentExportError, match="refused 2 points: too many series"):
        started(server.url).export([step(1, 1, {"loss": 0.5, "acc": 1.0})])


def test_this_host_is_not_reached_through_a_proxy(server: OtlpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)

    started(server.url).export([step(1, 1, {"loss": 0.5})])

    assert len(server.requests) == 1


def test_nobody_there_is_worth_another_try() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        exporter = started(f"http://127.0.0.1:{unused.getsockname()[1]}")

        with pytest.raises(RetryableExportError, match="cannot be reached"):
            exporter.export([step(1, 1, {"loss": 0.5})])


def test_mutual_tls_with_files_of_ones_own(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.authority))
    context.load_cert_chain(files.server, files.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    server = OtlpServer(tls=context)
    options = {"certificate": files.authority, "client_certificate": files.client, "client_key": files.client_key}

    try:
        started(server.url, **options).export([step(1, 1, {"loss": 0.5})])
        with pytest.raises(RetryableExportError, match="cannot be reached"):
            started(server.url).export([step(1, 1, {"loss": 0.5})])
    finally:
        server.close()

    assert len(server.requests) == 1


def test_a_variable_for_metrics_wins_over_the_common_one_and_an_option_over_both() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://common:4318/base/",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=two%20words",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "c=3",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }

    common = destination({}, environ)
    given = destination({"endpoint": "https://own", "timeout": 1}, environ)

    assert (common.url, common.timeout, common.gzip) == ("http://common:4318/base/v1/metrics", 2.5, False)
    assert common.headers == {"c": "3"}
    assert (given.url, given.timeout) == ("https://own/v1/metrics", 1.0)


def test_everything_that_is_wrong_is_said_at_once_and_without_credentials() -> None:
    with pytest.raises(ConfigError) as caught:
        OtlpExporter(
            endpoint="ftp://user:secret@host", headers={"a\n": "b"}, certificate="none.pem", compression="br",
            timeout=0, every=0,
        )  # fmt: skip

    assert len(caught.value.problems) == 6
    assert "secret" not in str(caught.value)
