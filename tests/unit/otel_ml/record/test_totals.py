"""What a writer says it has sent is what a receiver counts of it (ADR 0031)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_ml._internal.messages.recorder import Batch, recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.series.buffer import RECORDS
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml._internal.steps.axes import current_step
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.timing import timed
from otel_ml.wire.protobuf import field, key_values
from otel_ml.wire.spool_format import request_body
from otel_ml_service.aggregation.observation import Fragment
from otel_ml_service.aggregation.piece import values_in
from otel_ml_service.receiver.decode import Decoder
from tests.unit.otel_ml.record.decoded import every_point, plain

RESOURCE = key_values(1, {"ml.experiment.id": "one", "service.instance.id": "writer"})
REDUCTIONS: list[Any] = [
    None,
    "sum",
    "last",
    "first",
    ("mean", "last"),
    ("last", "first"),
    "p90",
    ("p50", "last"),
    "std",
]


def received(decoder: Decoder, batch: Batch) -> tuple[int, int]:
    """Return points and values that a receiver finds in what was collected."""
    body = request_body(RESOURCE, [field(2, scope) for scope in batch.scope_metrics])
    found = decoder.protobuf("metrics", body).observations.get("one", [])
    fragments = [observation for observation in found if isinstance(observation, Fragment)]
    return (
        sum(len(fragment.partials.series) for fragment in fragments),
        sum(values_in(fragment.partials, fragment.reduction) for fragment in fragments),
    )


calls = st.lists(
    st.tuples(st.sampled_from(range(len(REDUCTIONS))), st.integers(1, 4), st.sampled_from([None, 0.5])), max_size=12
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(steps=st.lists(calls, min_size=1, max_size=6))
def test_the_values_of_any_program_are_counted_alike_by_writer_and_receiver(recorded, steps):
    recorder.forget()
    decoder = Decoder()
    points = values = 0
    for _ in range(3):  # at the third time the receiver knows every form
        for number, step in enumerate(steps):
            set_step(recorder.current_steps().get("step", 0) + number + 1)
            log({"a": 1.0, "b": 2.0})
            with timed("block"):
                pass
            for kind, repeats, weight in step:
                for value in range(repeats):
                    reduce = REDUCTIONS[kind]
                    weighted = {"weight": weight} if reduce is None and weight else {}
                    record(f"m{kind}", float(value), reduce=reduce, **weighted)
            more = received(decoder, recorded.collect())
            points, values = points + more[0], values + more[1]

            assert (recorder.sent.points, recorder.sent.values) == (points, values)


def test_the_heartbeat_says_the_totals_every_five_seconds_and_at_the_end(recorded):
    set_step(0)
    log({"a": 1.0, "b": 2.0})
    said = [totals(recorded.collect(after_s=after_s)) for after_s in (0, 1, 2, 4, 5.5)]
    log({"a": 1.0})
    said.append(totals(recorded.collect(after_s=6, final=True)))

    assert said == [(2, 2, 2), None, None, None, (2, 2, 2), (3, 3, 3)]


def totals(batch: Batch) -> tuple[int, int, int] | None:
    [beat] = [point for point in every_point(batch) if point.name == "otel_ml.position"]
    said = plain(beat.raw.attributes)
    keys = ("otel_ml.recorded", "otel_ml.points", "otel_ml.values")
    return tuple(said[key] for key in keys) if keys[0] in said else None


def test_of_records_that_travel_one_by_one_all_are_counted_where_they_cannot_be_encoded(recorded):
    set_step(0)
    RECORDS.extend((DEFINITIONS.series("a"), current_step(), 1.0, -1))  # by a clock before 1970
    for value in range(6):
        log({"a": float(value)})
    batch = recorded.collect(final=True)

    assert received(Decoder(), batch) == (0, 0) == (recorder.sent.points, recorder.sent.values)
    assert (recorder.recorded, recorder.dropped) == (7, {"not_encoded": 7})


def test_what_cannot_be_encoded_is_counted_and_takes_no_other_step_with_it(recorded):
    decoder = Decoder()
    for step in range(3):
        set_step(step)
        if step == 1:
            for name in ("a", "b", "c"):
                RECORDS.extend((DEFINITIONS.series(name), current_step(), 1.0, -1))  # by a clock before 1970
        else:
            log({"a": 1.0, "b": 2.0})
    batch = recorded.collect(final=True)

    assert received(decoder, batch) == (4, 4) == (recorder.sent.points, recorder.sent.values)
    assert recorder.recorded == 7
    assert recorder.dropped == {"not_encoded": 3}
