"""What a receiver refuses, or what is too large for it: cut, counted, and said."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ScopeMetrics

from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.send import MAX_BYTES, TOO_LARGE, Sender
from otel_ml.wire.protobuf import field
from otel_ml.wire.spool_format import Frame
from tests.unit.otel_ml.send.receiver import Clock, Receiver, event_of


def test_what_is_refused_is_counted_by_reason_and_the_rest_goes_on(
    sender: Sender, receiver: Receiver, said: list[str]
) -> None:
    sender.spool.append(Frame("M", b"m", 4))
    receiver.answers = [Answer("refused", reason="HTTP 400: no ml.experiment.id")]

    assert sender.send(200.0)

    assert sender.refused == {"HTTP 400: no ml.experiment.id": 4}
    assert "HTTP 400: no ml.experiment.id" in said[0]


def test_a_partial_success_is_counted_and_said(sender: Sender, receiver: Receiver, said: list[str]) -> None:
    sender.spool.append(Frame("M", b"m", 4))
    receiver.answers = [Answer("ok", rejected=1, message="metric 'x' has two reductions")]

    assert sender.send(200.0)

    assert (sender.delivered, sender.refused) == (3, {"rejected": 1})
    assert "metric 'x' has two reductions" in said[0]


class Limited(Receiver):
    """Takes no request of more than so many bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.sizes: list[int] = []

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        self.sizes.append(len(body))
        return Answer("too_large", reason="HTTP 413") if len(body) > self.limit else super().post(path, body, timeout)


def scope_of(step: int, points: int) -> bytes:
    """A frame as the recorder makes it: one ScopeMetrics."""
    metrics = [
        Metric(name=f"layer.{i}/norm", gauge=Gauge(data_points=[NumberDataPoint(as_double=i)])) for i in range(points)
    ]
    number = KeyValue(key="ml.seq", value=AnyValue(int_value=step))
    scope = InstrumentationScope(name="otel_ml", attributes=[number])
    return field(2, ScopeMetrics(scope=scope, metrics=metrics).SerializeToString())


@pytest.mark.parametrize("limit", [100_000, 400_000, 4 * 2**20])
def test_a_step_of_many_series_is_cut_to_what_the_receiver_takes(sender: Sender, limit: int) -> None:
    sender.transport, sender.resource = Limited(limit), b""
    receiver = sender.transport
    for step in range(3):
        sender.spool.append(Frame("M", scope_of(step, 20_000), 20_000))

    assert sender.send(1e9)

    messages = [ExportMetricsServiceRequest.FromString(body) for _, body in receiver.got]
    scopes = [scope for message in messages for one in message.resource_metrics for scope in one.scope_metrics]
    got = [(scope.scope.attributes[0].value.int_value, metric.name) for scope in scopes for metric in scope.metrics]
    assert sorted(got) == sorted((step, f"layer.{i}/norm") for step in range(3) for i in range(20_000))
    assert (sender.delivered, sender.refused) == (60_000, {})
    assert sum(size > limit for size in receiver.sizes) <= 4  # what was learned is kept


def test_what_cannot_be_cut_is_lost_and_said_and_the_rest_goes_on(sender: Sender, said: list[str]) -> None:
    sender.transport = receiver = Limited(2 * MAX_BYTES)
    sender.spool.append(Frame("L", event_of("notes", 3_000_000)))
    sender.spool.append(Frame("M", scope_of(1, 3), 3))
    sender.spool.append(Frame("L", event_of("short", 10)))

    assert sender.send(1e9)

    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/logs"]
    assert (sender.delivered, sender.refused, sender.refused_records) == (3, {}, {TOO_LARGE: 1})
    assert len(said) == 1
    assert "ml.text 'notes'" in said[0]
    assert "no request of 3 MB" in said[0]
    assert not sender.spool.pending


def test_a_receiver_that_takes_nothing_loses_all_of_it_by_count(sender: Sender) -> None:
    sender.transport = Limited(0)
    sender.spool.append(Frame("M", scope_of(1, 5_000), 5_000))

    assert sender.send(1e9)

    assert (sender.delivered, sender.refused) == (0, {TOO_LARGE: 5_000})


def test_parts_of_a_frame_that_were_taken_are_not_sent_again_after_a_failure(sender: Sender, clock: Clock) -> None:
    sender.transport = receiver = Limited(10 * MAX_BYTES)
    sender.spool.append(Frame("M", scope_of(1, 100_000), 100_000))
    receiver.answers = [Answer("ok"), Answer("retry", reason="HTTP 503")]

    assert not sender.send(1e9)
    clock.now += 10
    assert sender.send(1e9)

    assert len({body for _, body in receiver.got}) == len(receiver.got) > 2
    assert sender.delivered == 100_000


def test_more_rejected_than_was_sent_is_no_more_than_was_sent(sender: Sender, receiver: Receiver) -> None:
    sender.spool.append(Frame("M", scope_of(1, 4), 4))
    receiver.answers = [Answer("ok", rejected=2**62)]

    assert sender.send(200.0)

    assert (sender.delivered, sender.refused) == (0, {"rejected": 4})


def test_a_warning_of_a_receiver_that_took_everything_is_no_loss(
    sender: Sender, receiver: Receiver, said: list[str]
) -> None:
    sender.spool.append(Frame("M", scope_of(1, 4), 4))
    receiver.answers = [Answer("ok", message="use a newer schema")]

    assert sender.send(200.0)

    assert (sender.delivered, sender.refused) == (4, {})
    assert said == ["The receiver took /v1/metrics, and warns: use a newer schema"]


def test_an_obstacle_is_said_once_and_nothing_is_given_up(
    sender: Sender, receiver: Receiver, clock: Clock, said: list[str]
) -> None:
    sender.spool.append(Frame("M", scope_of(1, 4), 4))
    receiver.answers = [
        Answer("retry", reason=f"HTTP 200 text/html: Please log in, session {number}", obstacle="not-otlp")
        for number in range(2)
    ]

    for _ in range(2):
        assert not sender.send(1e9)
        clock.now += 10
    assert len(said) == 1
    assert "Please log in, session 0" in said[0]
    assert sender.send(1e9)
    assert sender.delivered == 4


def test_reasons_that_are_new_each_time_do_not_add_up(sender: Sender, receiver: Receiver, said: list[str]) -> None:
    receiver.answers = [Answer("refused", reason=f"HTTP 400: request {number}") for number in range(100)]
    for _ in range(100):
        sender.spool.append(Frame("M", bytes(MAX_BYTES // 2 + 1), 2))

    assert sender.send(1e9)

    assert sum(sender.refused.values()) == 200
    assert len(sender.refused) < 20
    assert len(said) < 20
