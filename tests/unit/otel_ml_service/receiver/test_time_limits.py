"""The limits of many against what they say: each is over once, at the time that was set last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.receiver.event_loop import TURN_S, TimeLimits


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
        for _ in range(3):  # what is due is made ready in one turn, and told in a later one
            self.call_soon(self.stop)
            self.run_forever()


class Waiting:
    """Something with a limit, which notes when that was over."""

    def __init__(self, loop: SteppedLoop) -> None:
        self.due = 0.0
        self.turn: int | None = None
        self.over: list[float] = []
        self._loop = loop

    def timed_out(self) -> None:
        self.over.append(self._loop.now)


MOVES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2), st.one_of(st.none(), st.integers(1, 9))), min_size=1, max_size=40
)
"""Seconds that pass, whose limit is set then, and to how many seconds; None: it is taken back."""


@given(MOVES)
def test_each_of_several_has_its_limit_once_when_it_was_set_to_last(
    moves: list[tuple[int, int, int | None]],
) -> None:
    loop = SteppedLoop()
    limits, several = TimeLimits(loop), [Waiting(loop) for _ in range(3)]
    expected, due = [list[float]() for _ in several], [float("inf")] * len(several)
    for wait, who, limit in [*moves, (10, 0, None), (10, 1, None)]:
        for _ in range(wait):
            loop.step_to(loop.now + 1)
            for each, at in enumerate(due):
                if loop.now >= at:
                    expected[each].append(loop.now)
                    due[each] = float("inf")
        if limit is None:
            limits.cancel(several[who])
            due[who] = float("inf")
        else:
            limits.set(several[who], limit)
            due[who] = loop.now + limit
    loop.close()

    assert [each.over for each in several] == expected


def test_a_limit_is_not_over_before_its_time_and_at_most_a_turn_later() -> None:
    loop = SteppedLoop()
    limits, one = TimeLimits(loop), Waiting(loop)
    loop.step_to(0.1)
    limits.set(one, 1.0)

    loop.step_to(1.09)
    assert one.over == []

    loop.step_to(1.1 + TURN_S)
    assert one.over == [loop.now]
    loop.close()


def test_limits_of_thousands_that_grow_and_shrink_with_each_request_share_a_timer() -> None:
    loop = SteppedLoop()
    limits, many = TimeLimits(loop), [Waiting(loop) for _ in range(1000)]

    for request in range(10):
        loop.step_to(request / 100)
        for one in many:
            for limit in (10, 60, 300):
                limits.set(one, limit)
    loop.close()

    assert loop.timers == 1


def test_who_is_given_more_time_when_its_limit_is_over_is_not_told_so() -> None:
    loop = SteppedLoop()
    limits, one = TimeLimits(loop), Waiting(loop)
    limits.set(one, 1.0)

    loop.now = 1.0
    loop.call_soon(loop.call_soon, limits.set, one, 5.0)  # between the ring and the call
    loop.step_to(1.0)
    assert one.over == []

    loop.step_to(6.0)
    assert one.over == [6.0]
    loop.close()
