"""What is rejected is said where its owner looks: the service's log, and the run where it is known."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_ml_exporters.records import StepRecord, Summary, Text
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.receiver.partial_success import Rejected
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.service import Service
from tests.integration.conftest import Bench, Sender
from tests.otlp import FakeWriter, third_party_request
from tests.waiting import eventually

RUN = {"ml.experiment.id": "run-1", "service.name": "trainer", "service.instance.id": "i-1", "host.name": "node-7"}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "otel_ml_service"):
        yield caplog


def send(sender: Sender, attributes: Mapping[str, Any], *, resource: Mapping[str, Any] = RUN) -> None:
    message = third_party_request([{"name": "loss", "value": 1.0, **attributes}], resource=resource)
    body = json_format.MessageToJson(message, use_integers_for_enums=True).encode()
    assert sender.request("POST", "/v1/metrics", body, {"content-type": "application/json"}).status == 200


def record_with_the_sdk(service: Service) -> None:
    """Record metrics and spans with an SDK that nobody told of a run."""
    resource = Resource({"service.name": "my-trainer", "host.name": "node-7"})
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{service.endpoint}/v1/metrics"), 1e9)
    meters = MeterProvider([reader], resource=resource)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{service.endpoint}/v1/traces")))
    tokens = meters.get_meter("m").create_counter("tokens")
    for step in range(5):
        with tracers.get_tracer("t").start_as_current_span("step"):
            tokens.add(1, {"ml.step": step})
        assert meters.force_flush()
    meters.shutdown()
    tracers.shutdown()


def test_an_sdk_that_nobody_told_of_a_run_is_named_in_the_services_log_once(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    service = bench.service()

    record_with_the_sdk(service)

    (line,) = [message for message in log.messages if "my-trainer" in message]
    assert line.startswith("What my-trainer (host node-7) sends is rejected, and lost: the resource has no attribute")
    assert "OTEL_RESOURCE_ATTRIBUTES=ml.experiment.id=my-run" in line


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"ml.step": "3"}, "ml.step='3' is not a step"),
        ({"ml.step": 3.5}, "ml.step=3.5 is not a step"),
        ({"ml.step": -1}, "ml.step=-1 is not a step"),
        ({"ml.step": 3, "ml.reduction": "avg"}, "Unknown reduction 'avg'"),
    ],
)
def test_the_run_says_whose_points_are_rejected_and_why_also_those_from_before_it_began(
    bench: Bench,
    recording: RecordingExporter,
    log: pytest.LogCaptureFixture,
    attributes: Mapping[str, Any],
    reason: str,
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))

    send(sender, attributes)
    eventually(lambda: any(reason in message for message in log.messages))  # there is no run yet
    send(sender, {"ml.step": 1})
    said = eventually(lambda: [notice for notice in (sender.run() or {"notices": []})["notices"] if reason in notice])
    for _ in range(3):
        send(sender, attributes)
    send(sender, {"ml.step": 2})
    eventually(lambda: b'otel_ml_received_total{run="run-1"} 2' in sender.request("GET", "/metrics").body)

    assert said[0].startswith(f"What trainer (instance i-1, host node-7) sends is rejected, and lost: {reason}")
    assert [notice for notice in sender.run()["notices"] if reason in notice] == said
    assert f"{reason.replace(chr(34), '')}".encode() in sender.request("GET", "/metrics").body


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"name": "otel_ml/lost", "ml.step": 1}, "otel_ml/lost"),
        ({"name": "otel_ml:writers_missing"}, "otel_ml/writers_missing"),
        ({"name": "gateway/otel_ml/superseded", "ml.step": 1}, "gateway/otel_ml/superseded"),
        ({"name": "load", "otel_ml": "lag", "ml.step": 1}, "load/otel_ml/lag"),
    ],
)
def test_what_another_program_calls_as_otel_ml_calls_its_own_account_is_not_taken_for_it(
    bench: Bench, recording: RecordingExporter, attributes: Mapping[str, Any], name: str
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}, end_silence_s=0.5))

    for step in range(3):  # the second and third are of a form that is known
        send(sender, attributes)
        send(sender, {"ml.step": step})

    eventually(lambda: (sender.run() or {"status": ""})["status"] == "finished")
    run = eventually(lambda: (found := sender.run()) and not found["pending"] and found)
    [said] = [notice for notice in run["notices"] if "rejected" in notice]
    assert f"the name {name!r} is one of otel_ml's own account" in said
    rows = [record for record in recording.records if isinstance(record, StepRecord)]
    assert [row.values["loss"] for row in rows if "loss" in row.values] == [1.0] * 3
    assert not any(name in row.values for row in rows)
    assert b"otel_ml_rejected_total" in sender.request("GET", "/metrics").body


@pytest.mark.parametrize(
    ("event", "attributes", "body"),
    [
        ("ml.summary", {}, {"otel_ml/dropped/too_late": 7.0, "accuracy": 0.5}),
        ("ml.text", {"ml.name": "otel_ml/failure"}, "All is well."),
    ],
)
def test_an_event_of_another_program_does_not_speak_for_the_account(
    bench: Bench, recording: RecordingExporter, event: str, attributes: Mapping[str, Any], body: Any
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}, end_silence_s=0.5))
    message = FakeWriter().event(event, body, attributes)
    scope = message.resource_logs[0].scope_logs[0]
    scope.scope.name = "my.library"
    del scope.log_records[0].attributes[0]  # the running number

    sender.send("logs", message)
    send(sender, {"ml.step": 1})

    run = eventually(lambda: (found := sender.run()) and found["status"] == "finished" and found)
    assert "is one of otel_ml's own account" in next(notice for notice in run["notices"] if "rejected" in notice)
    assert not [record for record in recording.records if isinstance(record, Text)]
    finals = [dict(record.values) for record in recording.records if isinstance(record, Summary)]
    assert not any("otel_ml/dropped/too_late" in values for values in finals)


def test_each_kind_of_reason_is_said_once_however_many_values_are_wrong(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    send(sender, {"ml.step": 1})
    for number in range(30):
        send(sender, {"ml.step": f"step {number}"})
        send(sender, {"ml.step": number + 0.5})
    send(sender, {"ml.step": 2})
    eventually(lambda: b'otel_ml_received_total{run="run-1"} 2' in sender.request("GET", "/metrics").body)

    said = eventually(lambda: [notice for notice in sender.run()["notices"] if "is not a step" in notice])

    assert [notice.partition("lost: ")[2][:20] for notice in said] == ["ml.step='step 0' is ", "ml.step=0.5 is not a"]


def test_a_sender_that_calls_itself_something_else_each_time_fills_neither_the_log_nor_the_run(
    bench: Bench, log: pytest.LogCaptureFixture
) -> None:
    sender = bench.sender(bench.service())
    send(sender, {"ml.step": 1})
    for number in range(150):
        send(sender, {"ml.step": "x"}, resource={**RUN, "service.instance.id": f"i-{number}"})
        send(sender, {"ml.step": 1}, resource={"service.name": f"job-{number}"})
    send(sender, {"ml.step": 2})
    eventually(lambda: b'otel_ml_received_total{run="run-1"} 2' in sender.request("GET", "/metrics").body)

    assert len([notice for notice in sender.run()["notices"] if "rejected" in notice]) == 21
    lines = [message for message in log.messages if "job-" in message or "Further refusals" in message]
    assert len(lines) == 100
    assert "are not written down" in lines[-1]


def test_what_goes_on_to_be_rejected_is_written_down_again_after_an_hour(log: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(iter([0.0, 61.0, 3599.0, 3601.0]).__next__)

    for step in "1234":
        refusals.reject(Rejected("", "trainer", f"ml.step={step!r} is not a step.", "rejected-points"))

    assert [message.partition("ml.step=")[2][:3] for message in log.messages] == ["'1'", "'4'"]


def test_a_run_without_steps_is_written_when_its_sender_has_been_silent_for_as_long_as_is_documented(
    bench: Bench, recording: RecordingExporter
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}, end_silence_s=0.5))

    send(sender, {})
    eventually(lambda: (sender.run() or {"status": ""})["status"] == "finished")
    eventually(lambda: sender.run()["pending"] == 0)

    (row,) = [record for record in recording.records if isinstance(record, StepRecord)]
    assert (row.axis, row.values) == ("time", {"loss": 1.0})
