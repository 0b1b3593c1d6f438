"""The time of steps from a few values each; sums and medians are worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from otel_ml_exporters.records import StepRecord
from otel_ml_service.why.answer import Phase
from otel_ml_service.why.facts import Place, RunFacts, facts_of
from otel_ml_service.why.step_time import StepTime, account, calm_steps, step_time, usual_steps, without_pauses
from tests.unit.otel_ml_service.why.jobs import numbered

TRAINER = Place("trainer", "step")


def facts(values: Mapping[int, Mapping[str, float]]) -> RunFacts:
    """Return a run whose step `n` was done at `10 n` seconds."""
    return facts_of("run", numbered([StepRecord(0, "trainer", "step", n, 0, 10.0 * n, of) for n, of in values.items()]))


def timed(seconds: Mapping[int, float], phases: Mapping[str, Mapping[int, float]] | None = None) -> StepTime:
    return StepTime("timer", seconds, phases or {}, {})


class TestSources:
    def test_an_account_of_more_than_half_of_the_steps_adds_up(self) -> None:
        exposed = {"time/exposed/a": 1.0, "time/exposed/a/rank": 3.0, "time/exposed/b": 0.5, "time/step": 9.0}
        found = step_time(facts({0: exposed, 1: exposed, 2: {"time/step": 9.0}}), TRAINER)

        assert (found.source, dict(found.seconds), found.adds_up) == ("account", {0: 1.5, 1: 1.5}, True)
        assert {name: dict(values) for name, values in found.phases.items()} == {
            "a": {0: 1.0, 1: 1.0},
            "b": {0: 0.5, 1: 0.5},
        }
        assert {name: dict(values) for name, values in found.ranks.items()} == {"a": {0: 3.0, 1: 3.0}, "b": {}}

    def test_of_an_account_of_half_of_the_steps_the_timers_tell_more(self) -> None:
        timers = {"time/step": 9.0, "time/a": 4.0, "time/a/max": 5.0, "time/a/rank_3": 5.0, "time/a/inner": 1.0}
        found = step_time(facts({0: {**timers, "time/exposed/a": 1.0}, 1: {**timers, "time/a/argmax": 2.0}}), TRAINER)

        assert (found.source, dict(found.seconds), found.adds_up) == ("timer", {0: 9.0, 1: 9.0}, False)
        assert sorted(found.phases) == ["a", "a/inner"]
        assert {name: dict(values) for name, values in found.ranks.items()} == {"a": {1: 2.0}, "a/inner": {}}

    def test_without_timers_there_is_the_clock(self) -> None:
        found = step_time(facts({0: {}, 2: {}, 3: {}}), TRAINER)

        assert (found.source, dict(found.seconds)) == ("clock", {2: 20.0, 3: 10.0})

    def test_steps_that_only_the_clock_has_are_told_by_it(self) -> None:
        exposed = {"time/exposed/a": 1.0}
        run = facts({0: exposed, 1: exposed, 2: exposed, 3: {}})

        assert step_time(run, TRAINER, 3, 3).source == "clock"
        assert step_time(run, TRAINER, 2, 3).source == "account"
        assert step_time(run, TRAINER, 9, 9).source == "account"

    @pytest.mark.parametrize(
        ("value", "is_one"), [(-0.1, False), (0.0, True), (0.999e9, True), (1e9, False), (math.nan, False)]
    )
    def test_what_is_no_duration_is_left_out(self, value: float, is_one: bool) -> None:
        found = step_time(facts({0: {"time/step": 1.0}, 1: {"time/step": value}}), TRAINER)

        assert (1 in found.seconds) == is_one


class TestSteps:
    def test_scatter_is_that_of_normal_noise(self) -> None:
        time = timed(dict(enumerate([1.0, 2.0, 4.0, 4.0, 9.0])))

        assert time.usual_s(range(5)) == 4.0
        assert time.scatter_s(range(5)) == pytest.approx(1.4826 * 2.0)

    def test_steps_are_compared_with_the_64_before_them_but_for_the_first_three(self) -> None:
        time = timed(dict.fromkeys(range(200), 1.0))

        assert usual_steps(time, 100, 110, []) == [*range(36, 100)]
        assert usual_steps(time, 20, 110, []) == [*range(3, 20)]
        assert usual_steps(time, 100, 110, [(50, 80), (90, 95)]) == [
            step for step in range(3, 100) if not 50 <= step <= 80 and not 90 <= step <= 95
        ]

    @pytest.mark.parametrize(("first", "steps"), [(11, [*range(3, 11)]), (10, [*range(121, 185)])])
    def test_of_fewer_than_eight_before_those_after_are_taken(self, first: int, steps: list[int]) -> None:
        assert usual_steps(timed(dict.fromkeys(range(200), 1.0)), first, 120, []) == steps

    @pytest.mark.parametrize(("last", "are_enough"), [(91, True), (92, False)])
    def test_fewer_than_eight_on_both_sides_are_none(self, last: int, are_enough: bool) -> None:
        found = usual_steps(timed(dict.fromkeys(range(100), 1.0)), 5, last, [])

        assert found == ([*range(92, 100)] if are_enough else [])

    def test_a_pause_is_more_than_ten_scatters_beyond_what_is_usual(self) -> None:
        # All alike: they count as varying by 2 %, so 1.2 s is the longest that is none.
        time = timed({**dict.fromkeys(range(20), 1.0), 5: 1.2, 6: 1.21})

        assert calm_steps(time, range(20)) == [step for step in range(20) if step != 6]
        assert calm_steps(time, range(7)) == [*range(7)]
        assert calm_steps(time, range(8)) == [0, 1, 2, 3, 4, 5, 7]

    @pytest.mark.parametrize(("long", "kept"), [(3, False), (4, True)])
    def test_four_long_ones_in_a_row_are_no_longer_a_pause(self, long: int, kept: bool) -> None:
        time = timed({**dict.fromkeys(range(40), 1.0), **dict.fromkeys(range(10, 10 + long), 5.0), 30: 5.0})

        assert without_pauses(time, range(40)) == [
            step for step in range(40) if step != 30 and (kept or not 10 <= step < 10 + long)
        ]


def test_an_account_says_what_changed_most_and_whose_it_is() -> None:
    time = StepTime(
        "account",
        dict.fromkeys(range(6), 4.0),
        {
            "a": {0: 1.0, 1: 1.0, 4: 1.5, 5: 1.5},
            "b": {0: 3.0, 1: 3.0, 4: 1.0, 5: 2.0},
            "c": {4: 2.0},
            "never": {},
            "small": {0: 0.5, 1: 0.5, 4: 0.5, 5: 0.5},
        },
        {"b": {4: 2.0, 5: 7.0}, "a": {4: 3.0, 5: 3.0}},
    )

    # Of 8 s in two steps.
    assert account(time, [4, 5], [0, 1]) == (
        Phase("b", 1.5, 3.0, 3.0 / 8.0, 2, 1, 2),
        Phase("c", 1.0, 0.0, 2.0 / 8.0, None, 0, 2),
        Phase("a", 1.5, 1.0, 3.0 / 8.0, 3, 2, 2),
        Phase("small", 0.5, 0.5, 1.0 / 8.0, None, 0, 2),
    )
    assert [(phase.name, phase.usual_s) for phase in account(time, [4, 5], [])] == [
        ("a", None), ("b", None), ("c", None), ("small", None),
    ]  # fmt: skip
