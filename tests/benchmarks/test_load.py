"""What the harness sends is what a worker sends: the service reduces it exactly, and loses nothing."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_ml_service.aggregation.observation import ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder
from tests.benchmarks.sources import Foreign, Own, Spans
from tests.benchmarks.under_load import Load, ready, sent_by, served, service, settled

LOADS: list[tuple[str, dict[str, Any]]] = [
    ("own", {"metrics": 5, "per_request": 3}),
    ("own", {"metrics": 5, "timers": 2, "behind": 4}),
    ("own", {"metrics": 5, "late": 50}),
    ("own", {"metrics": 5, "reduction": "p99", "attributes": 2}),
    ("foreign", {"metrics": 5, "attributes": 2}),
    ("spans", {"spans": 5, "per_request": 2}),
]


@pytest.mark.parametrize(("kind", "options"), LOADS, ids=lambda value: "-".join(value) if value else None)
def test_a_load_arrives_whole_and_is_reduced_exactly(kind: str, options: dict[str, Any]) -> None:
    with service() as one:
        outcome = served(Load(kind, 4, 0.3, options, connections=2), one)

    assert outcome.items > 0
    assert outcome.lost == 0
    assert outcome.exact


def test_of_ranks_that_send_more_than_the_engine_takes_all_are_kept_waiting_alike_and_none_is_sent_away() -> None:
    """Ranks of which some get in and others do not come apart: each step between them stays open."""
    load = Load("own", 16, 3.0, {"metrics": 100, "per_request": 20}, connections=8)
    with service(OTEL_ML_QUEUE_MAX="64MiB") as one, ready(load, one.endpoint) as sending:
        sent = sent_by(sending)
        account = settled(one, load, sum(each["items"] for each in sent))

    assert [each["turned_away"] for each in sent] == [0, 0]
    assert account["lost"] == {}


def test_points_of_other_sdks_take_the_path_on_which_those_of_a_row_come_together() -> None:
    source = Foreign("run", 2, range(2), metrics=10, attributes=2, per_request=3)
    [(_, body)] = source.requests(0, 1)

    [observations] = Decoder().protobuf("metrics", body).observations.values()

    assert [type(one) for one in observations] == [ThirdPartyPoints] * 3
    assert sum(len(one.starts) for one in observations if isinstance(one, ThirdPartyPoints)) == source.items(1) == 30


def test_running_numbers_ascend_without_gaps_in_the_order_sent() -> None:
    source = Own("run", 4, range(4), metrics=2, late=100, per_request=2)
    seqs = [seq for number in range(60) for seq in sequence_numbers(source, number)]

    assert seqs == list(range(1, len(seqs) + 1))


def test_steps_that_ended_meanwhile_go_together_as_they_would_have_gone_one_by_one() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    source = Own("run", 4, range(4), metrics=2, timers=1)
    one_by_one = MetricsData()
    for number in range(3):
        [(path, body)] = source.requests(number, 1)
        one_by_one.resource_metrics.extend(MetricsData.FromString(body).resource_metrics)
    together, body = source.together(range(3), 1)

    assert together == path
    [resource] = MetricsData.FromString(body).resource_metrics
    assert [*resource.scope_metrics] == [scope for one in one_by_one.resource_metrics for scope in one.scope_metrics]


def sequence_numbers(source: Own, number: int) -> list[int]:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    found = []
    for _, body in source.requests(number, 0):
        for resource in MetricsData.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                found += [pair.value.int_value for pair in scope.scope.attributes if pair.key == "ml.seq"]
    return found


def test_every_span_of_a_load_has_an_id_and_a_trace_of_its_own() -> None:
    source = Spans("run", 2, range(2), spans=3, per_request=2)
    bodies = [body for number in range(2) for rank in range(2) for _, body in source.requests(number, rank)]
    spans = [
        span
        for body in bodies
        for resource in TracesData.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]

    assert len(spans) == 2 * 2 * 3 * 2
    assert len({span.span_id for span in spans}) == len(spans)
    assert len({span.trace_id for span in spans}) == len(spans)
    assert {span.name for span in spans} == {"phase_0", "phase_1", "phase_2"}
