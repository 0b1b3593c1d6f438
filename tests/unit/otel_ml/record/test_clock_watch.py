"""How far a host's clock is from the service's is published with its bound, and not asked where it cannot be known."""

from __future__ import annotations

import json
import time

import pytest

import otel_ml
from otel_ml._internal.lifecycle.clock_watch import ClockWatch
from otel_ml._internal.transport.answer import Answer
from otel_ml.testing import Capture, capture
from otel_ml.wire.boot_clock import seconds_since_boot
from otel_ml.wire.rendezvous import boot_id


class Machine:
    """A service on a machine of its own, whose clock is set otherwise and which was started at another time."""

    def __init__(self, ahead_s: float = 0.0, boot: str = "another", answers: bytes | None = b"") -> None:
        self.ahead_s = ahead_s
        self.boot = boot
        self.answers = answers
        self.asked = 0

    def get(self, path: str, timeout: float) -> bytes | None:
        self.asked += 1
        if self.answers != b"":
            return self.answers
        said = {"boot": self.boot, "boot_time": seconds_since_boot() - 5000.0, "time": time.time() + self.ahead_s}
        return json.dumps(said).encode()

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        return Answer("ok")

    def close(self) -> None:
        """Nothing is open."""

    def forget(self) -> None:
        """Nothing is shared."""


def published(run: Capture) -> dict[str, tuple[float, float]]:
    return {point.name: (point.min, point.max) for point in run.points if point.name.startswith("otel_ml/clock")}


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0, 0.25])
def test_an_hour_of_skew_is_published_with_its_bound(ahead_s: float) -> None:
    with capture() as run:
        otel_ml.set_step(1)
        ClockWatch(0, now=0.0).look(Machine(ahead_s), now=3.0)
        found = published(run)

    offset, bound = found["otel_ml/clock/offset"][0], found["otel_ml/clock/bound"][0]
    assert 0.0 <= bound < 1.0
    assert abs(offset - ahead_s) <= bound + 1e-3  # between two looks at one's own clocks


def test_a_clock_that_is_set_meanwhile_is_followed_at_once() -> None:
    machine, watch = Machine(0.0), ClockWatch(0, now=0.0)
    with capture() as run:
        otel_ml.set_step(1)
        watch.look(machine, now=3.0)
        machine.ahead_s = 3600.0
        watch.look(machine, now=14.0)
        low, high = published(run)["otel_ml/clock/offset"]

    assert (round(low), round(high)) == (0, 3600)


def test_it_is_asked_for_once_in_ten_seconds_and_by_one_process_of_a_host() -> None:
    machine, watch, other = Machine(), ClockWatch(0, now=0.0), ClockWatch(1, now=0.0)
    with capture():
        for now in range(13):
            watch.look(machine, float(now))
            other.look(machine, float(now))

    assert machine.asked == 2


@pytest.mark.parametrize(
    "answers",
    [
        None,
        b"{}",
        b"404",
        b"<html>",
        b'{"boot": "b", "boot_time": "x", "time": 1}',
        b'{"boot": "b", "boot_time": 1%s, "time": 1}' % (b"0" * 400),
    ],
)
def test_where_nobody_tells_the_time_nothing_is_known_and_nobody_is_asked_again(answers: bytes | None) -> None:
    machine, watch = Machine(answers=answers), ClockWatch(0, now=0.0)
    with capture() as run:
        watch.look(machine, now=3.0)
        watch.look(machine, now=100.0)
        assert published(run) == {}

    assert machine.asked == 1


def test_on_the_services_own_machine_there_is_one_clock() -> None:
    machine, watch = Machine(boot=boot_id()), ClockWatch(0, now=0.0)
    with capture() as run:
        watch.look(machine, now=3.0)
        assert published(run) == {}
