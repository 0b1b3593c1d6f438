"""What `otel-ml doctor` says of an endpoint, by what answers there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from otel_ml.config import Endpoint
from otel_ml_service.cli.checks import Check, endpoint_checks
from otel_ml_service.cli.checks.endpoint import _remedy, _token
from otel_ml_service.cli.checks.probe import Answer, probe, probes_so_far, service_version
from tests.ports import free_port

START = "start the service there (otel-ml serve), or unset the variable to have one started on this host"
BY_NAME = "(OTEL_EXPORTER_OTLP_ENDPOINT) over http/protobuf"
OURS = ExportMetricsServiceResponse()
OURS.partial_success.rejected_data_points = 1
OURS.partial_success.error_message = "no ml.experiment.id"

Checked = Callable[..., Check]


class Answers:
    """What is answered: to a probe, and to a question for a page."""

    def __init__(self, status: int = 200, body: bytes = b"", **pages: str) -> None:
        self.status, self.body, self.pages = status, body, pages
        self.probes = 0


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answers.probes += 1
            self._say(answers.status, answers.body)

        def do_GET(self) -> None:
            page = answers.pages.get(self.path.strip("/"))
            said = "" if page is None else page.replace("PROBES", str(answers.probes))
            self._say(404 if page is None else 200, said.encode())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    for name in [name for name in os.environ if name.startswith("OTEL_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def check(url: str = "", service: str | None = None) -> Check:
        if url:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        [found] = endpoint_checks(service)
        return found

    return check


def test_without_an_endpoint_each_job_has_a_service_of_its_own(checked: Checked, tmp_path: Path) -> None:
    assert checked() == Check(
        "ok", "no endpoint is set: each job starts a service of its own on this host (embedded mode)"
    )
    assert not list(tmp_path.rglob("*otel-ml-doctor*"))


def test_remote_mode_wants_an_endpoint(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_MODE", "remote")

    found = checked()

    assert found == Check("wrong", "OTEL_ML_MODE is remote, and no endpoint is set", "set OTEL_EXPORTER_OTLP_ENDPOINT")


def test_a_service_is_known_by_what_it_says_of_the_probe(checked: Checked) -> None:
    with answering(Answers(body=OURS.SerializeToString())) as url:
        found = checked(url)

    assert (found.state, found.do) == ("ok", "")
    assert found.found == f"an otel_ml service answers at {url} {BY_NAME}"


def test_another_receiver_is_not_accused(checked: Checked) -> None:
    with answering(Answers()) as url:
        found = checked(url)

    assert found.state == "note"
    assert found.found.startswith(f"{url} {BY_NAME} takes OTLP, but not as an otel_ml service does; ")
    assert found.do == "name the service behind it, and it is tried: otel-ml doctor --service http://HOST:4318"


def test_where_nobody_answers_a_service_is_to_be_started(checked: Checked) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    found = checked(url)

    assert (found.state, found.do) == ("wrong", START)
    assert found.found.startswith(f"{url} {BY_NAME} does not answer as OTLP does: ")


def test_credentials_that_are_not_taken_are_to_be_put_right(checked: Checked) -> None:
    with answering(Answers(status=401)) as url:
        found = checked(url)

    assert found.state == "wrong"
    assert "does not take the credentials of this process: HTTP 401" in found.found
    assert found.do == _token(Endpoint())


def test_what_a_collector_takes_arrives_at_the_service_that_is_named(checked: Checked) -> None:
    collector = Answers(
        healthz='{"service": "otel_ml", "version": "1.2.3"}', metrics="# HELP x\notel_ml_probes_total PROBES\n"
    )
    with answering(collector) as url:
        found = checked(url, url)

    assert found == Check("ok", f"what {url} {BY_NAME} takes arrives at otel_ml 1.2.3, {url}")
    assert collector.probes == 1


@pytest.mark.parametrize("page", ['{"service": "another", "version": "1"}', "[1]", "text", None])
def test_who_is_no_service_is_not_one_behind_a_collector(checked: Checked, page: str | None) -> None:
    with answering(Answers(**({} if page is None else {"healthz": page}))) as url:
        found = checked(url, url)

    assert found == Check("wrong", f"no otel_ml service answers at {url}", START)


def test_a_service_counts_its_probes_and_an_older_one_what_it_rejects() -> None:
    metrics = (
        'otel_ml_probes_total 2\notel_ml_rejected_total{reason="a"} 3.0\notel_ml_received_total 9\n otel_ml_probes 5'
    )
    with answering(Answers(metrics=metrics)) as url:
        assert probes_so_far(f"{url}/", Endpoint()) == 5.0
        assert service_version(url, Endpoint()) is None
    with answering(Answers()) as url:
        assert probes_so_far(url, Endpoint()) == 0.0


def test_an_answer_says_whether_it_is_ours() -> None:
    with answering(Answers(body=OURS.SerializeToString())) as url:
        assert probe(Endpoint(url=url)) == Answer(accepted=True, is_ours=True, detail="no ml.experiment.id")
    with answering(Answers()) as url:
        assert probe(Endpoint(url=url)) == Answer(accepted=True, is_ours=False, detail="")
    with answering(Answers(status=400)) as url:
        answer = probe(Endpoint(url=url))
        assert (answer.accepted, answer.is_ours) == (False, False)
        assert "400" in answer.detail


@pytest.mark.parametrize(
    ("detail", "obstacle", "do"),
    [
        ("anything", "other-protocol", "use that port, or set that variable"),
        ("SSL: certificate verify failed", "", "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of the authority"),
        ("the port speaks TLS", "", f"begin the endpoint with https:// if the service has listen.tls; else {START}"),
        ("SSL: wrong version number", "", "begin the endpoint with http://, unless what answers there shall speak TLS"),
        ("connection refused", "", START),
    ],
)
def test_what_to_do_follows_from_what_is_in_the_way(detail: str, obstacle: str, do: str) -> None:
    assert _remedy(Answer(accepted=False, is_ours=False, detail=detail, obstacle=obstacle)).startswith(do)


def test_the_token_is_put_right_where_it_is() -> None:
    assert _token(Endpoint(token_file="/x/t")) == "put the token of the service into /x/t (OTEL_ML_TOKEN_FILE)"
    assert _token(Endpoint()) == (
        "set OTEL_ML_TOKEN to the token of the service, or OTEL_ML_TOKEN_FILE to a file that has it"
    )
