"""What a rank was in when nothing more was heard of it."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Span
from otel_ml_service.findings.unfinished import Unfinished, unfinished


def span(name: str, start: int, end: int, step: int | None = 6, parent: str | None = None, axis: str = "step") -> Span:
    return Span("t", f"{name}-{step}", parent, name, start, end, "trainer", 3, axis if step is not None else None, step)


BEFORE = [span("data", 0, 2), span("forward", 3, 9), span("backward", 9, 15), span("step", 0, 16)]


def test_the_timer_that_comes_next_began_as_long_after_the_one_before_as_usual() -> None:
    assert unfinished([*BEFORE, span("data", 20, 25, 7)], 99) == Unfinished("step", 7, "forward", 26)
    assert unfinished([*BEFORE, span("data", 20, 25, 7), span("forward", 26, 40, 7)], 99) == Unfinished(
        "step", 7, "backward", 40
    )


@pytest.mark.parametrize(("alive", "phase"), [(26, "forward"), (25, "")])
def test_a_rank_that_was_gone_before_it_would_have_begun_was_in_none(alive: int, phase: str) -> None:
    found = unfinished([*BEFORE, span("data", 20, 25, 7)], alive)

    assert found == Unfinished("step", 7, phase, 26 if phase else None)


@pytest.mark.parametrize(
    "done",
    [
        [span("step", 20, 40, 7)],
        [span("data", 20, 22, 7), span("forward", 23, 29, 7), span("backward", 29, 35, 7)],
    ],
    ids=["the step has ended", "it has all"],
)
def test_a_step_that_is_finished_has_nothing_unfinished(done: list[Span]) -> None:
    assert unfinished([*BEFORE, *done], 99) == Unfinished("step", 7, "", None)


def test_of_the_only_step_nobody_knows_what_comes_next() -> None:
    assert unfinished([span("data", 0, 2)], 99) == Unfinished("step", 6, "", None)


def test_a_timer_that_comes_twice_is_missing_the_second_time() -> None:
    twice = [
        span("forward", 0, 4),
        span("load", 4, 5),
        Span("t", "again", None, "forward", 6, 9, "trainer", 3, "step", 6),
    ]

    found = unfinished([*twice, span("forward", 20, 24, 7), span("load", 24, 25, 7)], 99)

    assert found == Unfinished("step", 7, "forward", 26)


def test_of_timers_inside_of_each_other_it_was_in_the_innermost() -> None:
    nested = [
        span("data", 0, 2),
        span("update", 3, 15),
        span("forward", 4, 9, parent="update-6"),
        span("gemm", 5, 6, parent="forward-6"),
        span("backward", 9, 14, parent="update-6"),
    ]

    assert unfinished([*nested, span("data", 20, 22, 7)], 99) == Unfinished("step", 7, "gemm", 25)


def test_the_axis_is_that_of_the_newest_span_and_what_is_in_no_step_says_nothing() -> None:
    rollouts = [span("generate", 0, 5, 3, axis="rollout"), span("score", 5, 8, 3, axis="rollout")]
    newest = span("generate", 50, 60, 4, axis="rollout")

    found = unfinished([*BEFORE, span("data", 20, 25, 7), *rollouts, newest, span("lone", 70, 80, None)], 99)

    assert found == Unfinished("rollout", 4, "score", 60)
    assert unfinished([span("lone", 70, 80, None)], 99) is None
    assert unfinished([], 99) is None
