"""Which timer is inside of which, and which one runs beside the others."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Span
from otel_ml_service.findings.nesting import BESIDE, parents_of


def span(name: str, start: int, end: int, inside: str | None = None, number: int = 0) -> Span:
    parent = None if inside is None else f"{inside}{number}"
    return Span("aa", f"{name}{number}", parent, name, start * 10**6, end * 10**6, "trainer", 0, "step", number)


def test_a_thread_that_ends_within_a_timer_is_not_inside_of_it():
    spans = [span("step", 0, 20), span("backward", 5, 15, "step"), span("all_reduce", 7, 12)]

    assert parents_of(spans) == {"backward": "step", "all_reduce": BESIDE}


def test_the_thread_of_the_step_is_the_one_that_counts_although_it_waits():
    spans = [span("step", 0, 20), span("barrier", 0, 10, "step"), span("prefetch", 2, 9)]

    assert parents_of(spans) == {"barrier": "step", "prefetch": BESIDE}


def test_a_timer_that_was_started_by_hand_is_around_what_runs_until_it_is_stopped():
    # Nothing nests under its span: all have the step for their parent.
    spans = [span("step", 0, 20), span("forward-backward", 0, 16, "step"), span("forward-recv", 1, 4, "step"),
             span("forward-compute", 4, 9, "step"), span("attention", 5, 6, "forward-compute")]  # fmt: skip

    assert parents_of(spans) == {
        "forward-backward": "step", "forward-recv": "forward-backward", "forward-compute": "forward-backward",
        "attention": "forward-compute",
    }  # fmt: skip


def test_what_is_begun_in_another_timer_and_ends_after_it_is_not_inside_of_it():
    spans = [span("step", 0, 20), span("forward", 0, 8, "step"), span("all_gather", 6, 12, "forward")]

    assert parents_of(spans) == {"forward": "step", "all_gather": BESIDE}


@pytest.mark.parametrize(("often", "expected"), [(3, "step"), (7, BESIDE)])
def test_a_timer_that_mostly_runs_beside_others_is_beside_them(often, expected):
    spans = [span("step", 20 * number, 20 * number + 19, number=number) for number in range(10)]
    spans += [span("forward", 20 * number, 20 * number + 9, "step", number) for number in range(10)]
    for number in range(10):
        begin, inside = (3, None) if number < often else (10, "step")
        spans.append(span("all_reduce", 20 * number + begin, 20 * number + begin + 5, inside, number))

    assert parents_of(spans)["all_reduce"] == expected


def test_of_a_span_whose_parent_was_not_kept_time_tells():
    spans = [span("forward", 0, 9), span("attention", 2, 5, "layer")]

    assert parents_of(spans) == {"attention": "forward"}


def test_a_thread_that_knows_what_is_around_all_steps_is_not_inside_of_one():
    spans = [span("step", 0, 20, "epoch"), span("backward", 5, 15, "step"), span("all_reduce", 7, 12, "epoch")]

    assert parents_of(spans) == {"backward": "step", "all_reduce": BESIDE}
