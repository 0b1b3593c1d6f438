"""What is sent, in which requests, and again after a failure."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Literal

import pytest

from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.send import MAX_BYTES, MAX_POINTS, Sender
from otel_ml._internal.transport.spool import Lost, Spool
from otel_ml.wire.protobuf import field
from otel_ml.wire.spool_format import Frame, request_body
from tests.unit.otel_ml.send.receiver import Clock, Receiver, event_of


@pytest.mark.feature("I22", "better", "batched by time, and spooled to disk meanwhile")
def test_pending_batches_merge_into_one_request_with_the_resource_once(sender: Sender, receiver: Receiver) -> None:
    scopes = [field(2, b"a"), field(2, b"b"), field(2, b"c")]
    for scope in scopes:
        sender.spool.append(Frame("M", scope, 1))

    assert sender.send(200.0)

    assert receiver.got == [("/v1/metrics", request_body(b"resource", scopes))]
    assert sender.delivered == 3


def test_kinds_go_to_their_own_paths(sender: Sender, receiver: Receiver) -> None:
    for kind in ("M", "L", "S"):
        sender.spool.append(Frame(kind, b"x"))  # type: ignore[arg-type]

    assert sender.send(200.0)

    assert {path for path, _ in receiver.got} == {"/v1/metrics", "/v1/logs", "/v1/traces"}


def test_requests_are_bounded_in_points(sender: Sender, receiver: Receiver) -> None:
    for _ in range(10):
        sender.spool.append(Frame("M", bytes(100), MAX_POINTS // 4))

    assert sender.send(200.0)

    assert [len(body) // 100 for _, body in receiver.got] == [4, 4, 2]


def test_requests_are_bounded_in_bytes(sender: Sender, receiver: Receiver) -> None:
    for _ in range(10):
        sender.spool.append(Frame("M", bytes(MAX_BYTES // 3), 1))

    assert sender.send(200.0)

    assert len(receiver.got) == 4
    assert max(len(body) for _, body in receiver.got) < MAX_BYTES + 100


def test_a_frame_larger_than_a_request_still_goes(sender: Sender, receiver: Receiver) -> None:
    sender.spool.append(Frame("L", bytes(3 * MAX_BYTES)))

    assert sender.send(200.0)
    assert len(receiver.got) == 1


def test_after_a_failure_the_same_request_comes_again_and_nothing_twice(
    sender: Sender, receiver: Receiver, clock: Clock
) -> None:
    sender.spool.append(Frame("M", b"m"))
    sender.spool.append(Frame("L", b"l"))
    receiver.answers = [Answer("ok"), Answer("retry", reason="HTTP 503")]

    assert not sender.send(200.0)
    assert sender.is_waiting
    clock.now += 10
    sender.spool.append(Frame("M", b"later"))
    assert sender.send(200.0)

    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/logs", "/v1/metrics"]


def test_a_receiver_that_takes_nothing_for_half_a_minute_is_told_once_while_the_program_runs(
    sender: Sender, receiver: Receiver, clock: Clock, said: list[str]
) -> None:
    sender.spool.append(Frame("M", b"m"))

    def fail_until(end: float) -> None:
        while clock.now < end:
            receiver.answers = [Answer("retry", reason="HTTP 503: Not stored")]
            sender.send(1e9)
            clock.now += 5

    begun = clock.now
    fail_until(begun + 30)
    clock.now += 60
    assert sender.send(1e9)  # it is back: what follows is another outage
    sender.spool.append(Frame("M", b"n"))
    fail_until(clock.now + 30)
    assert said == []
    fail_until(clock.now + 300)

    assert len(said) == 1
    assert (
        "no receiver has taken what is recorded: HTTP 503: Not stored. What is recorded is kept on this host" in said[0]
    )


@pytest.mark.parametrize("is_in_the_way", [True, False], ids=["in memory", "in a file that was deleted"])
def test_a_request_that_comes_again_holds_what_its_frames_had_wherever_they_lie_by_then(
    tmp_path: Path, receiver: Receiver, clock: Clock, is_in_the_way: bool
) -> None:
    folder = tmp_path / "spool"
    if is_in_the_way:
        folder.write_text("no folder")
    spool = Spool(folder, "w", b"resource", limit=2**26, say=lambda _slug, _sentence: None)
    sender = Sender(spool, b"resource", say=lambda _slug, _sentence: None, clock=clock)
    sender.transport = receiver
    scopes = [field(2, b"a"), field(2, b"b"), field(2, b"c")]
    spool.append(Frame("M", scopes[0], 1))
    spool.append(Frame("M", scopes[1], 1))
    receiver.answers = [Answer("retry")]
    sender.send(200.0)

    for path in [folder] if is_in_the_way else list(folder.iterdir()):
        path.unlink()
    spool.secure()  # writes them anew
    spool.append(Frame("M", scopes[2], 1))
    clock.now += 60
    assert sender.send(200.0)

    assert len(list(folder.glob("*.spool"))) == 1
    assert b"".join(body for _, body in receiver.got).count(b"resource") == len(receiver.got)
    assert [scope for _, body in receiver.got for scope in scopes if scope in body] == scopes


def test_pauses_grow_to_five_seconds_and_follow_the_receivers_wish(
    sender: Sender, receiver: Receiver, clock: Clock
) -> None:
    sender.spool.append(Frame("M", b"m"))
    receiver.answers = [Answer("retry") for _ in range(50)]
    pauses = []
    for _ in range(50):
        sender.send(1e9)
        begun = clock.now
        while sender.is_waiting:
            clock.now += 0.01
        pauses.append(clock.now - begun)
    assert pauses[0] <= 0.11
    assert 2.5 <= max(pauses) <= 5.01

    receiver.answers = [Answer("retry", retry_after=30.0)]
    sender.send(1e9)
    clock.now += 29.0
    assert sender.is_waiting
    clock.now += 1.1
    assert sender.send(1e9)


def test_frames_that_the_spool_drops_from_a_request_under_way_do_not_take_others_with_them(
    tmp_path: Path, receiver: Receiver, clock: Clock, said: list[str]
) -> None:
    spool = Spool(tmp_path, "w", b"resource", limit=40_000, say=lambda _slug, sentence: said.append(sentence))
    sender = Sender(spool, b"resource", say=lambda _slug, sentence: said.append(sentence), clock=clock)
    sender.transport = receiver
    spool.on_lost = lambda lost: sender.abandon_batch()
    receiver.answers.append(Answer("retry", reason="busy"))
    for number in range(8):
        spool.append(Frame("M", field(2, bytes([number]) * 4000), 1))
    assert not sender.send(200.0)
    for number in range(8, 16):
        spool.append(Frame("M", field(2, bytes([number]) * 4000), 1))
    kept = [frame.payload() for frame in spool.pending]
    assert len(kept) < 16

    clock.now += 10
    assert sender.send(200.0)

    sent = b"".join(body for _, body in receiver.got)
    assert [payload for payload in kept if payload not in sent] == []


@pytest.fixture
def patient(sender: Sender, receiver: Receiver, clock: Clock) -> Sender:
    """A rank of a large job, which has just sent its spans."""
    patient = Sender(sender.spool, b"resource", say=lambda _slug, sentence: None, spans_interval=3.0, clock=clock)
    patient.transport = receiver
    patient.spool.append(Frame("S", b"earlier"))
    assert patient.send(1e9)
    receiver.got.clear()
    return patient


def test_spans_wait_for_a_request_that_is_worth_it_and_nothing_waits_with_them(
    patient: Sender, receiver: Receiver, clock: Clock
) -> None:
    sent = []
    for second in range(5):
        for kind in ("M", "S", "L"):
            patient.spool.append(Frame(kind, f"{kind}{second} ".encode(), 1 if kind == "M" else 0))  # type: ignore[arg-type]
        assert patient.send(1e9, everything=False)
        sent.append([(path.rpartition("/")[2], body[-3:].decode()) for path, body in receiver.got])
        receiver.got.clear()
        clock.now += 1.0

    each = [[("metrics", f"M{second} "), ("logs", f"L{second} ")] for second in range(5)]
    assert [[one for one in round_ if one[0] != "traces"] for round_ in sent] == each
    assert [[one for one in round_ if one[0] == "traces"] for round_ in sent] == [[], [], [], [("traces", "S3 ")], []]
    assert [frame.payload() for frame in patient.spool.pending] == [b"S4 "]
    assert patient.delivered == 5


def test_all_spans_that_waited_go_in_one_request_in_their_order(
    patient: Sender, receiver: Receiver, clock: Clock
) -> None:
    scopes = [field(2, bytes([number])) for number in range(4)]
    for scope in scopes:
        patient.spool.append(Frame("S", scope))
        patient.spool.append(Frame("M", b"", 1))
        patient.send(1e9, everything=False)
        clock.now += 1.0

    assert [body for path, body in receiver.got if path == "/v1/traces"] == [request_body(b"resource", scopes)]
    assert not patient.spool.pending


def test_whoever_asks_for_everything_gets_spans_sent_too_also_those_behind_a_request_that_failed(
    patient: Sender, receiver: Receiver, clock: Clock
) -> None:
    patient.spool.append(Frame("S", b"span"))
    patient.spool.append(Frame("M", b"m", 1))
    receiver.answers = [Answer("retry", reason="HTTP 503")]
    assert not patient.send(1e9, everything=False)
    clock.now += 10.0

    assert patient.send(1e9)

    assert [path for path, _ in receiver.got] == ["/v1/metrics", "/v1/traces"]
    assert not patient.spool.pending


def test_many_spans_do_not_wait(patient: Sender, receiver: Receiver) -> None:
    patient.spool.append(Frame("S", bytes(MAX_BYTES // 2)))

    assert patient.send(1e9, everything=False)

    assert [path for path, _ in receiver.got] == ["/v1/traces"]


class Dropping(Receiver):
    """Refuses a first request, during which the spool has to drop what is in it."""

    def __init__(self, spool: Spool, answer: Answer) -> None:
        super().__init__()
        self.spool = spool
        self.answers = [answer]

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        if self.answers:
            for number in range(8, 24):
                self.spool.append(Frame("L", event_of(f"e{number}", 4000)))
        return super().post(path, body, timeout)


@pytest.mark.parametrize("outcome", ["refused", "too_large"])
def test_an_answer_to_what_the_spool_has_dropped_meanwhile_is_no_answer_to_what_is_left(
    tmp_path: Path, clock: Clock, outcome: Literal["refused", "too_large"]
) -> None:
    spool = Spool(tmp_path, "w", b"resource", limit=40_000, say=lambda _slug, _sentence: None)
    sender = Sender(spool, b"", say=lambda _slug, _sentence: None, clock=clock)
    sender.transport = receiver = Dropping(spool, Answer(outcome, reason="no"))
    spool.on_lost = lambda lost: sender.abandon_batch()
    for number in range(8):
        spool.append(Frame("L", event_of(f"e{number}", 4000)))

    assert sender.send(1e9)

    assert (sender.refused, sender.refused_records) == ({}, {})
    assert b"e23" in b"".join(body for _, body in receiver.got)


def test_sending_draws_nothing_from_the_programs_random_numbers(
    sender: Sender, receiver: Receiver, clock: Clock
) -> None:
    sender.spool.append(Frame("M", b"m"))
    receiver.answers = [Answer("retry"), Answer("retry")]
    before = random.getstate()

    for _ in range(3):
        sender.send(1e9)
        clock.now += 10

    assert random.getstate() == before


def test_what_cannot_be_read_back_is_given_up_and_the_rest_is_sent(
    sender: Sender, receiver: Receiver, tmp_path: Path
) -> None:
    scopes = [field(2, b"whole"), field(2, b"cut"), field(2, b"next")]
    sender.spool.append(Frame("M", scopes[0], 1))
    [path] = tmp_path.glob("*.spool")
    whole = path.stat().st_size
    sender.spool.append(Frame("M", scopes[1], 1))
    os.truncate(path, whole)

    assert sender.send(200.0)
    sender.spool.append(Frame("M", scopes[2], 1))
    assert sender.send(200.0)

    assert receiver.got == [("/v1/metrics", request_body(b"resource", [scope])) for scope in (scopes[0], scopes[2])]


def test_what_has_to_be_cut_and_cannot_be_read_is_lost_alone(
    sender: Sender, receiver: Receiver, tmp_path: Path
) -> None:
    sender.spool.append(Frame("M", field(2, b"kept"), 1))
    sender.spool.append(Frame("L", event_of("large", 2 * MAX_BYTES)))
    lost: list[Lost] = []
    sender.spool.on_lost = lost.append
    [path] = tmp_path.glob("*.spool")
    os.truncate(path, path.stat().st_size - MAX_BYTES)

    assert sender.send(200.0)

    assert receiver.got == [("/v1/metrics", request_body(b"resource", [field(2, b"kept")]))]
    assert [(one.reason, one.frames) for one in lost] == [("spool_unreadable", {"L": 1})]


def test_what_a_receiver_has_refused_and_cannot_be_read_again_is_lost(
    sender: Sender, receiver: Receiver, tmp_path: Path
) -> None:
    sender.spool.append(Frame("L", event_of("refused", 100)))
    lost: list[Lost] = []
    sender.spool.on_lost = lost.append
    [path] = tmp_path.glob("*.spool")

    def refuse(path_of_kind: str, body: bytes, timeout: float) -> Answer:
        del path_of_kind, body, timeout
        os.truncate(path, path.stat().st_size - 50)  # between the request and its answer
        return Answer("refused", reason="HTTP 400")

    receiver.post = refuse  # type: ignore[method-assign] # a receiver of the test's own

    assert sender.send(200.0)

    assert [(one.reason, one.frames) for one in lost] == [("spool_unreadable", {"L": 1})]


def test_an_attempt_that_ran_out_of_time_does_not_hide_why_those_before_it_failed(
    sender: Sender, receiver: Receiver, clock: Clock
) -> None:
    untrusted = Answer("retry", reason="unreachable: certificate verify failed")
    silent = Answer("retry", reason="unreachable: timed out", timed_out=True)
    sender.spool.append(Frame("M", b"m"))

    def why(answer: Answer) -> str:
        clock.now += 10
        receiver.answers = [answer]
        assert not sender.send(clock.now + 1)
        return sender.last_error

    assert why(silent) == "unreachable: timed out"
    assert why(untrusted) == "unreachable: certificate verify failed"
    for _ in range(2):
        assert why(silent) == "unreachable: certificate verify failed; then unreachable: timed out"
    assert why(Answer("retry", reason="HTTP 503")) == "HTTP 503"
    clock.now += 10
    assert sender.send(clock.now + 1)
    sender.spool.append(Frame("M", b"m"))
    assert why(silent) == "unreachable: timed out"
