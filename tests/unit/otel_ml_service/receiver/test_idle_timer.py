"""The alarm against what it says: it rings once, at the time that was set last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.receiver.event_loop import IdleTimer


class SteppedLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers = 0
        super().__init__()

    def time(self) -> float:
        return self.now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, **kwargs: object
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args)

    def step_to(self, now: float) -> None:
        self.now = now
        for _ in range(2):  # what is due is made ready in one turn and called in it
            self.call_soon(self.stop)
            self.run_forever()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=20))
def test_it_rings_once_for_each_limit_that_was_reached(moves: list[tuple[int, int]]) -> None:
    loop, rung, expected, due = SteppedLoop(), list[float](), list[float](), float("inf")
    alarm = IdleTimer(loop, lambda: rung.append(loop.now))
    for wait, limit in [*moves, (10, 1)]:
        for _ in range(wait):
            loop.step_to(loop.now + 1)
            if loop.now >= due:
                expected.append(loop.now)
                due = float("inf")
        alarm.set(limit)
        due = loop.now + limit
    loop.close()

    assert rung == expected


def test_limits_that_grow_and_shrink_with_each_request_share_a_timer() -> None:
    loop = SteppedLoop()
    alarm = IdleTimer(loop, lambda: None)

    for request in range(1000):
        loop.step_to(request / 1000)
        for limit in (10, 60, 300):
            alarm.set(limit)
    loop.close()

    assert loop.timers == 1


def test_a_cancelled_alarm_does_not_ring() -> None:
    loop, rung = SteppedLoop(), list[float]()
    alarm = IdleTimer(loop, lambda: rung.append(loop.now))
    alarm.set(1)

    alarm.cancel()
    loop.step_to(2)
    loop.close()

    assert rung == []
