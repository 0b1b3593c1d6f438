"""How much may be acknowledged and not decided: a request that could not be stored gives its bytes back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_service.receiver import admission as admission_module
from otel_ml_service.receiver.admission import Admission, OverloadedError, Stored
from otel_ml_service.receiver.decode import Decoded, Decoder
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter, third_party_request

LIMIT = 6_000


def failing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, OSError("disk full"))


def storing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, None)


def requests(count: int) -> list[bytes]:
    writer = FakeWriter()
    return [writer.step(step, {"loss": 1.0}).SerializeToString() for step in range(count)]


def size(body: bytes) -> int:
    return Decoder().protobuf("metrics", body).size


def take(store: Callable[[Decoded, Stored], None], bodies: list[bytes]) -> tuple[Admission, list[Exception | None]]:
    admission, answers = Admission(store, Telemetry(), LIMIT), []
    for body in bodies:
        admission.take("metrics", body, lambda _, error: answers.append(error))
    return admission, answers


def test_what_could_not_be_stored_is_not_counted_as_held_and_the_next_request_is_taken() -> None:
    bodies = requests(40)
    assert sum(map(size, bodies)) > 2 * LIMIT

    admission, answers = take(failing, bodies)

    assert [str(error) for error in answers] == ["disk full"] * 40
    assert admission.held == 0


def test_requests_are_refused_beyond_the_limit_until_some_are_decided() -> None:
    bodies = requests(40)
    decoder = Decoder()  # one: what it has met before is smaller
    sizes = [decoder.protobuf("metrics", body).size for body in bodies]
    fitting = next(count for count in range(40) if sum(sizes[:count]) + len(bodies[count]) > LIMIT)
    admission, answers = take(storing, bodies[:fitting])
    assert answers == [None] * fitting
    assert admission.held == sum(sizes[:fitting])

    with pytest.raises(OverloadedError):
        admission.take("metrics", bodies[fitting], lambda *_: None)
    admission.digested(sizes[0])
    admission.take("metrics", bodies[fitting], lambda *_: None)

    assert admission.held == sum(sizes[1 : fitting + 1])


def test_a_request_larger_than_the_limit_is_taken_when_it_is_alone() -> None:
    body = FakeWriter().step(0, {f"metric_{n}": 1.0 for n in range(200)}).SerializeToString()
    assert len(body) > LIMIT

    admission, answers = take(storing, [body])

    assert (answers, admission.held) == ([None], size(body))


@pytest.mark.parametrize(("store", "acknowledged"), [(storing, 1), (failing, 0)])
def test_a_request_counts_as_acknowledged_once_it_is_stored_and_not_where_it_is_not(
    store: Callable[[Decoded, Stored], None], acknowledged: int
) -> None:
    telemetry = Telemetry()

    Admission(store, telemetry, LIMIT).take("metrics", requests(1)[0], lambda *_: None)

    assert telemetry.value("requests", signal="metrics") == acknowledged


def request_of(*runs: str) -> bytes:
    """Return what a Collector makes of requests of several runs: one."""
    request = ExportMetricsServiceRequest()
    for run in runs:
        request.MergeFrom(FakeWriter(experiment=run).step(0, {"loss": 1.0}))
    return request.SerializeToString()


def test_a_run_that_is_not_taken_now_holds_up_no_other_one_and_nothing_is_stored_twice() -> None:
    behind, journal = {"newer"}, list[Decoded]()
    answers: list[Exception | None] = []

    def store(decoded: Decoded, stored: Stored) -> None:
        journal.append(decoded)
        stored(decoded, None)

    def held_back(experiments: Iterable[str]) -> str:
        return "Another version has stored it." if behind.intersection(experiments) else ""

    admission = Admission(store, Telemetry(), LIMIT, held_back=held_back)
    for _ in range(3):  # it comes again, as OTLP says
        admission_take(admission, request_of("one", "newer", "two"), answers)
    assert [str(answer) for answer in answers] == ["Another version has stored it."] * 3
    assert [set(decoded.observations) for decoded in journal] == [{"one", "two"}]

    behind.clear()
    admission_take(admission, request_of("one", "newer", "two"), answers)

    assert answers[3] is None
    assert [set(Decoder().protobuf("metrics", decoded.body).observations) for decoded in journal] == [
        {"one", "two"}, {"newer"},
    ]  # fmt: skip
    assert admission.held == sum(decoded.size for decoded in journal)


def test_runs_that_become_free_one_after_the_other_are_each_stored_once_and_rejections_are_told_with_the_last() -> None:
    behind, journal, told = {"b", "c"}, list[set[str]](), list[int]()

    def store(decoded: Decoded, stored: Stored) -> None:
        journal.append(set(decoded.observations))
        stored(decoded, None)

    def held_back(experiments: Iterable[str]) -> str:
        return "Another version has stored it." if behind.intersection(experiments) else ""

    admission = Admission(store, Telemetry(), LIMIT, held_back=held_back)
    request = ExportMetricsServiceRequest.FromString(request_of("a", "b", "c"))
    request.MergeFrom(
        third_party_request([{"name": "x", "value": 1.0, "ml.step": "no step"}], {"ml.experiment.id": "a"})
    )
    for free in ("b", "c", ""):
        with suppress(OverloadedError):
            admission.take(
                "metrics", request.SerializeToString(), lambda decoded, _: told.append(decoded.rejections.total)
            )
        behind.discard(free)

    assert journal == [{"a"}, {"b"}, {"c"}]
    assert told[-1] == 1


def test_requests_are_taken_up_to_the_limit_to_the_last_byte() -> None:
    first, second = requests(2)
    for limit, taken in ((size(first) + len(second), 2), (size(first) + len(second) - 1, 1)):
        admission = Admission(storing, Telemetry(), limit)
        answers: list[Exception | None] = []
        for body in (first, second):
            admission_take(admission, body, answers)

        assert answers.count(None) == taken


def admission_take(admission: Admission, body: bytes, answers: list[Exception | None]) -> None:
    try:
        admission.take("metrics", body, lambda _, error: answers.append(error))
    except OverloadedError as error:
        answers.append(error)


def test_what_of_a_request_could_not_be_stored_is_taken_when_it_comes_again() -> None:
    offered: list[Decoded] = []

    def store(decoded: Decoded, stored: Stored) -> None:
        offered.append(decoded)
        stored(decoded, OSError("disk full") if len(offered) == 1 else None)

    admission = Admission(store, Telemetry(), LIMIT, has_capacity=lambda experiments: "third" not in experiments)
    answers: list[Exception | None] = []
    for _ in range(2):
        admission_take(admission, request_of("one", "third"), answers)

    assert [str(answer)[:22] for answer in answers] == ["disk full", "The service has as man"]
    assert [set(decoded.observations) for decoded in offered] == [{"one"}, {"one"}]
    assert admission.held == offered[1].size, "what could not be stored is held no more"


def test_of_so_many_requests_it_is_remembered_what_is_stored_of_them_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission_module, "_IN_PART", 3)  # thousands take seconds
    journal: list[set[str]] = []

    def store(decoded: Decoded, stored: Stored) -> None:
        journal.append({*decoded.observations})
        stored(decoded, None)

    admission = Admission(store, Telemetry(), 10**6, has_capacity=lambda experiments: "third" not in experiments)
    bodies = [request_of(run, "third") for run in ("a", "b", "c", "d")]
    for body in (*bodies, *bodies[:0:-1], bodies[0]):
        admission_take(admission, body, [])

    assert journal == [{"a"}, {"b"}, {"c"}, {"d"}, {"a"}]


def test_once_such_a_request_is_stored_as_a_whole_no_other_one_costs_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[bytes] = []

    def noted(body: bytes) -> Any:
        digested.append(body)
        return sha256(body)

    monkeypatch.setattr(admission_module, "sha256", noted)  # that it is called is what it costs
    behind = {"third"}
    admission = Admission(storing, Telemetry(), 10**6, has_capacity=lambda experiments: behind.isdisjoint(experiments))
    admission_take(admission, request_of("one", "third"), [])
    behind.clear()
    admission_take(admission, request_of("one", "third"), [])
    digested.clear()

    for body in requests(3):
        admission_take(admission, body, [])

    assert digested == []


def test_while_a_run_is_not_taken_requests_of_other_runs_are() -> None:
    journal: list[Decoded] = []

    def store(decoded: Decoded, stored: Stored) -> None:
        journal.append(decoded)
        stored(decoded, None)

    admission = Admission(store, Telemetry(), LIMIT, has_capacity=lambda experiments: "third" not in experiments)
    answers: list[Exception | None] = []
    admission_take(admission, request_of("one", "third"), answers)
    for body in (request_of("one"), request_of("two", "four"), request_of("third")):
        admission_take(admission, body, answers)

    assert [answer is None for answer in answers] == [False, True, True, False]
    assert [set(decoded.observations) for decoded in journal] == [{"one"}, {"one"}, {"two", "four"}]


@pytest.mark.parametrize("runs", [("third",), ("one", "third")], ids=["alone", "beside one that is taken"])
def test_a_request_that_finds_no_room_is_counted_as_refused_once_with_its_reason(runs: tuple[str, ...]) -> None:
    telemetry = Telemetry()
    admission = Admission(storing, telemetry, LIMIT, has_capacity=lambda experiments: "third" not in experiments)

    admission_take(admission, request_of(*runs), [])

    assert telemetry.value("refused", reason="too many runs") == 1
    assert telemetry.value("refused", reason="run of another version") == 0


def test_runs_that_find_no_room_are_asked_about_last_so_that_it_is_they_that_are_remembered() -> None:
    asked: list[set[str]] = []

    def has_capacity(experiments: Iterable[str]) -> bool:
        asked.append(set(experiments))
        return "third" not in asked[-1]

    admission_take(
        Admission(storing, Telemetry(), LIMIT, has_capacity=has_capacity), request_of("one", "third", "two"), []
    )

    assert asked[-1] == {"third"}


@pytest.mark.parametrize(
    ("resource", "counter", "labels", "is_written"),
    [
        ({"service.name": "trainer"}, "rejected", {"reason": "the resource has no"}, True),
        ({"service.name": "otel-ml doctor"}, "probes", {}, False),
        ({"ml.experiment.id": "run-1", "ml.rank": "first"}, "rejected", {"reason": "the resource attribute"}, False),
    ],
    ids=["nobody's", "a probe", "a run's, which tells it itself"],
)
def test_what_is_rejected_is_counted_and_written_down_where_no_run_can_say_it(
    resource: dict[str, str],
    counter: str,
    labels: dict[str, str],
    is_written: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry = Telemetry()
    body = third_party_request([{"name": "a", "value": 1.0}] * 3, resource=resource).SerializeToString()

    with caplog.at_level(logging.WARNING):
        Admission(storing, telemetry, LIMIT, refusals=RefusalLog()).take("metrics", body, lambda *_: None)

    lines = [line for line in telemetry.prometheus([]).splitlines() if line.startswith(f"otel_ml_{counter}_total")]
    [line] = [line for line in lines if line.endswith(" 3")]
    assert all(value in line for value in labels.values())
    assert len([message for message in caplog.messages if "is rejected, and lost" in message]) == is_written


def test_what_is_rejected_counts_once_however_often_it_comes_until_there_is_room() -> None:
    telemetry, answers, room = Telemetry(), list[Exception | None](), iter([False, False, True])
    admission = Admission(lambda *sent: (storing if next(room) else failing)(*sent), telemetry, LIMIT)
    points = [{"name": "a", "value": 1.0}, {"name": "b", "value": 1.0, "ml.step": -1}]
    body = third_party_request(points).SerializeToString()

    for _ in range(3):
        admission.take("metrics", body, lambda _, error: answers.append(error))

    assert [error is None for error in answers] == [False, False, True]
    lines = [line for line in telemetry.prometheus([]).splitlines() if line.startswith("otel_ml_rejected_total")]
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["1"]


def test_what_a_predecessor_acknowledged_is_held_until_it_is_decided() -> None:
    admission, body = Admission(storing, Telemetry(), LIMIT), requests(1)[0]

    decoded = admission.again("metrics", body)

    assert (decoded.body, admission.held) == (body, size(body) + len(body)), "its bytes are in memory, too"
    admission.digested(decoded.size)
    assert admission.held == 0
