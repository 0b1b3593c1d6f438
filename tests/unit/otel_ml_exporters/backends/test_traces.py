"""The `traces` exporter: what it sends of a span, and to whom."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1 import trace_pb2

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp import TracesExporter
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.records import Span, SpanBatch
from otel_ml_exporters.registry import exporter_class
from otel_ml_exporters.span_lines import SpanLines
from tests.contract.stream import run_info, step
from tests.otlp_server import OtlpServer, Reply, attributes_of


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    server = OtlpServer()
    yield server
    server.close()


def started(url: str, **options: object) -> TracesExporter:
    exporter = TracesExporter(endpoint=url, **options)
    exporter.start(run_info(Path("unused"), "run"))
    return exporter


def span(number: int, **given: Any) -> Span:
    about: dict[str, Any] = {"parent_id": None, "name": "step", "role": "trainer", "rank": 0, "axis": "step", "step": 3}
    times = {"start_ns": 1_700_000_000_000_000_001, "end_ns": 1_700_000_000_000_000_123}
    return Span(trace_id=f"{1:032x}", span_id=f"{number:016x}", **{**about, **times, **given})


def sent(server: OtlpServer) -> list[tuple[dict[str, Any], trace_pb2.Span]]:
    return [
        (attributes_of(resource.resource.attributes), one)
        for _, _, message in server.requests
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for one in scope.spans
    ]


def test_the_name_traces_is_this_exporter() -> None:
    assert exporter_class("traces") is TracesExporter


def test_a_span_is_sent_with_all_that_is_known_of_it(server: OtlpServer) -> None:
    attributes = {"batch": 7, "ratio": math.inf, "ok": True, "tags": ["a", 1], "who": "ü"}
    one = span(5, parent_id=f"{4:016x}", name="forward", attributes=attributes, status="error")

    started(server.url, headers={"api-key": "k"}).export([SpanBatch(1, (one,))])

    [(path, headers, _)] = server.requests
    [(resource, found)] = sent(server)
    assert path == "/v1/traces"
    assert {name.lower(): text for name, text in headers.items()}["api-key"] == "k"
    assert resource == {
        "service.name": "trainer", "service.instance.id": "run/0", "ml.rank": 0,
        "ml.run.id": "run", "ml.run.name": "run", "ml.experiment.name": "digits",
    }  # fmt: skip
    assert (found.trace_id.hex(), found.span_id.hex(), found.parent_span_id.hex()) == (
        one.trace_id, one.span_id, one.parent_id,
    )  # fmt: skip
    assert (found.name, found.start_time_unix_nano, found.end_time_unix_nano) == ("forward", one.start_ns, one.end_ns)
    assert attributes_of(found.attributes) == {**attributes, "ml.step": 3, "ml.step.axis": "step"}
    assert found.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert found.kind == trace_pb2.Span.SPAN_KIND_INTERNAL


def test_links_are_sent(server: OtlpServer) -> None:
    link = {"trace_id": f"{8:032x}", "span_id": f"{9:016x}", "attributes": {"version": 390}}
    line = json.loads(SpanLines.of([span(5)]).lines[0]) | {"links": [link]}

    started(server.url).export([SpanBatch(1, SpanLines([json.dumps(line)]))])

    [(_, found)] = sent(server)
    [there] = found.links
    assert (there.trace_id.hex(), there.span_id.hex()) == (link["trace_id"], link["span_id"])
    assert attributes_of(there.attributes) == {"version": 390}


def test_each_rank_of_each_role_is_a_resource_and_requests_are_small(server: OtlpServer) -> None:
    spans = [span(n + 1, rank=n % 3, role=("trainer", "generator")[n % 2]) for n in range(2500)]

    started(server.url).export([SpanBatch(1, tuple(spans[:2000])), SpanBatch(2, tuple(spans[2000:]))])

    assert sorted(
        (resource["service.name"], resource["ml.rank"], one.span_id.hex()) for resource, one in sent(server)
    ) == sorted((one.role, one.rank, one.span_id) for one in spans)
    assert len(server.requests) == 3
    assert all(len(message.resource_spans) == 6 for _, _, message in server.requests)


def test_what_is_no_span_is_not_sent(server: OtlpServer) -> None:
    started(server.url).export([step(1, 1, {"loss": 0.5})])

    assert server.requests == []


def test_every_leaves_out_spans_of_other_steps(server: OtlpServer) -> None:
    spans = [*(span(n + 1, step=n) for n in range(10)), span(99, axis=None, step=None)]

    started(server.url, every=5).export([SpanBatch(1, tuple(spans))])

    assert [attributes_of(one.attributes).get("ml.step") for _, one in sent(server)] == [0, 5, None]


def test_spans_that_were_refused_are_counted_and_not_sent_again(server: OtlpServer) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 2
    server.replies.append(Reply(200, {}, partial.SerializeToString()))

    with pytest.raises(PermanentExportError, match="refused 2 spans"):
        started(server.url).export([SpanBatch(1, (span(1), span(2)))])


@pytest.mark.parametrize(("status", "first"), [(200, 0), (400, 1000)])
def test_where_some_spans_of_a_batch_are_refused_others_are_sent(server: OtlpServer, status: int, first: int) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.rejected_spans = 2
    server.replies.append(Reply(status, {}, partial.SerializeToString() if status == 200 else b"too large"))
    spans = tuple(span(number + 1) for number in range(2500))  # of all ranks of a job, between two commits

    with pytest.raises(PermanentExportError, match=r"refused 2 spans|answered 400"):
        started(server.url).export([SpanBatch(1, spans)])

    assert [one.span_id.hex() for _, one in sent(server)] == [one.span_id for one in spans[first:]]


def test_a_receiver_that_is_busy_is_worth_another_try(server: OtlpServer) -> None:
    server.replies.append(Reply(503, {}, b"busy"))

    with pytest.raises(RetryableExportError, match="answered 503"):
        started(server.url).export([SpanBatch(1, (span(1),))])


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"OTEL_ML_TRACES_ENDPOINT": "http://jaeger:4318"}, "http://jaeger:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://tempo:4318/own"}, "http://tempo:4318/own"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://gateway:4318/"}, "http://gateway:4318/v1/traces"),
        (
            {"OTEL_ML_TRACES_ENDPOINT": "http://jaeger:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://ranks:1/x"},
            "http://jaeger:4318/v1/traces",
        ),
    ],
)
def test_the_environment_says_where_to(variables: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert TracesExporter().place == url


def test_a_token_of_mlflow_that_no_header_can_have_is_said_at_the_start_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "very-secret\n")

    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_TOKEN") as caught:
        TracesExporter(endpoint="http://mlflow:5000", mlflow=True)

    assert "very-secret" not in str(caught.value)
    assert TracesExporter(endpoint="http://jaeger:4318").place == "http://jaeger:4318/v1/traces"


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TracesExporter(endpoint="gateway", every=0, mlflow="yes", timeout=-1.0)  # type: ignore[arg-type]

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "traces.every", "traces.mlflow", "traces.endpoint", "traces.timeout",
    ]  # fmt: skip
