"""What `why` knows of a run: worked out by hand of a few records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from otel_ml_exporters.records import JsonValue, Params, Record, StepRecord, Table, Text
from otel_ml_service.why.facts import Place, Restart, RunFacts, Slow, facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

TRAINER = Place("trainer", "step")
GENERATOR = Place("generator", "step")
ROLLOUT = Place("generator", "rollout")


def row(step: int, time: float = 0.0, values: Mapping[str, float] | None = None, **further: Any) -> StepRecord:
    named = {"role": "trainer", "axis": "step", "attempt": 0, **further}
    return StepRecord(seq=0, step=step, time=time, values=values or {}, **named)


def facts(*rows: Record) -> RunFacts:
    return facts_of("run", numbered(rows))


def findings(*rows: Sequence[JsonValue], columns: Sequence[str], name: str = "otel_ml/findings") -> Table:
    return Table(0, 0.0, name, "step", 99, tuple(columns), tuple(tuple(row) for row in rows))


class TestPlaces:
    def test_the_trainers_steps_come_first_then_what_has_most(self) -> None:
        seconds = [row(second, axis="time", role="") for second in range(5)]
        rollouts = [row(step, axis="rollout", role="generator") for step in range(3)]
        generator = [row(step, role="generator") for step in range(2)]
        trainer_rollout = [row(step, axis="rollout") for step in range(4)]

        found = facts(*seconds, *rollouts, *generator, *trainer_rollout, row(0))

        assert found.places == [TRAINER, GENERATOR, Place("trainer", "rollout"), ROLLOUT]

    def test_a_name_is_of_the_place_with_the_longest_beginning_that_it_has(self) -> None:
        found = facts(row(0), row(0, role="generator"), row(0, role="generator", axis="rollout"))

        assert found.place_of("step", "loss") == TRAINER
        assert found.place_of("step", "generator/tokens") == GENERATOR
        assert found.place_of("rollout", "generator/rollout/tokens") == ROLLOUT
        assert found.place_of("rollout", "other") == Place("", "rollout")

    def test_metrics_of_a_place_are_the_users_and_no_timers(self) -> None:
        values = {"loss": 1.0, "time/forward": 2.0, "otel_ml/dropped": 3.0}
        of_generator = {"generator/tokens": 4.0, "generator/time/rollout": 5.0}

        found = facts(row(0, values=values), row(0, values=of_generator, role="generator"))

        assert [(name, dict(values)) for name, values in found.series(TRAINER)] == [("loss", {0: 1.0})]
        assert [name for name, _ in found.series(GENERATOR)] == ["generator/tokens"]


class TestSteps:
    def test_a_correction_says_nothing_of_when_a_step_was_done_nor_of_who_was_missing(self) -> None:
        found = facts(row(0, 10.0, writers_missing=1), row(0, 99.0, amendment=True), row(1, 20.0, writers_missing=2))

        assert found.times == {TRAINER: {0: 10.0, 1: 20.0}}
        assert found.incomplete == {TRAINER: {0, 1}}

    def test_a_later_attempt_begins_where_its_first_step_is_and_may_have_all_ranks(self) -> None:
        found = facts(
            row(0), row(1, writers_missing=1),
            row(1, attempt=1), row(2, attempt=1),
            row(2, attempt=3), row(3, attempt=3),
        )  # fmt: skip

        assert found.restarts == {TRAINER: [Restart(1, 1), Restart(2, 3)]}
        assert found.incomplete == {TRAINER: set()}

    def test_a_run_whose_first_attempt_is_gone_was_not_restarted_in_what_is_there(self) -> None:
        assert facts(row(5, attempt=2), row(6, attempt=2)).restarts == {}

    def test_seconds_have_no_attempts_and_miss_nobody(self) -> None:
        found = facts(row(0, role="", axis="time"), row(1, role="", axis="time", attempt=1, writers_missing=1))

        assert (found.restarts, found.incomplete, found.places) == ({}, {}, [])

    @pytest.mark.parametrize(
        ("time", "step"), [(9.9, None), (10.0, 4), (10.1, 5), (20.0, 5), (20.1, 6), (30.0, 6), (30.1, None)]
    )
    def test_what_was_done_at_a_time_is_in_the_first_row_of_then_or_later(self, time: float, step: int | None) -> None:
        assert facts(row(4, 10.0), row(5, 20.0), row(6, 30.0)).beside(TRAINER, time) == step

    def test_beside_a_place_without_steps_there_is_none(self) -> None:
        assert facts(row(4, 10.0)).beside(GENERATOR, 10.0) is None

    @pytest.mark.parametrize(
        ("first", "last", "stretch"),
        [
            (2, 2, (20.0, 25.0)),
            (1, 3, (10.0, 30.0)),
            (3, 3, (25.0, 30.0)),
            (0, 0, (10.0 - 600.0, 10.0)),
            (4, 9, None),
        ],
    )
    def test_spans_of_steps_lie_behind_the_step_before_and_up_to_the_last(
        self, first: int, last: int, stretch: tuple[float, float] | None
    ) -> None:
        # Step 1 closed late: what is behind it was under way from 20 s on.
        found = facts(row(0, 10.0), row(1, 20.0), row(2, 25.0), row(3, 30.0))
        asked: list[object] = []

        def between(*stretch: object) -> Iterator[Any]:
            asked.append(stretch)
            return iter(["a span"])

        found.spans = between
        spans = list(found.spans_of_steps(TRAINER, first, last, b"wanted"))

        ends = None if stretch is None else tuple(int(end * 1e9) for end in stretch)
        assert asked == ([] if ends is None else [(*ends, b"wanted")])
        assert spans == ([] if ends is None else ["a span"])

    def test_a_row_that_closed_late_does_not_hide_the_spans_of_those_behind_it(self) -> None:
        found = facts(row(0, 10.0), row(1, 50.0), row(2, 25.0))
        asked: list[tuple[Any, ...]] = []
        found.spans = lambda *stretch: iter(asked.append(stretch) or ())

        list(found.spans_of_steps(TRAINER, 1, 2))
        list(found.spans_of_steps(TRAINER, 2, 2))

        assert asked == [(10 * 10**9, 50 * 10**9), (50 * 10**9, 25 * 10**9)]


class TestOthers:
    def test_only_what_a_person_has_set_counts_as_parameters_and_events(self) -> None:
        found = facts(
            Params(0, 5.0, {"optimizer": {"lr": 0.1, "beta": 0.9}, "otel_ml.version": "1"}),
            Params(0, 6.0, {"otel_ml.host": "a"}),
            Text(0, 7.0, "note", "step", 3, "hello"),
            Text(0, 7.0, "note without a step", None, None, "hello"),
            Text(0, 7.0, "otel_ml/notice", "step", 3, "of ours"),
        )

        assert found.params == [(5.0, ("optimizer.lr", "optimizer.beta")), (6.0, ())]
        assert [event.name for event in found.events] == ["note"]

    def test_of_tables_of_findings_the_newest_of_each_place_counts(self) -> None:
        columns = ("since", "rank")
        old, new = findings((1, 1), columns=columns), findings((2, 2), columns=columns)
        of_generator = findings((3, 3), columns=columns, name="generator/otel_ml/findings")
        other = findings((4, 4), columns=columns, name="my_findings")

        found = facts(old, new, of_generator, other)

        assert [(slow.place, slow.since) for slow in found.findings] == [("", 2), ("generator/", 3)]

    def test_what_is_worked_out_is_kept_until_there_is_more(self) -> None:
        found, counted = facts(row(0)), []

        def count(of: RunFacts, place: Place) -> int:
            counted.append(place)
            return len(of.times[place])

        once = [found.once(count, TRAINER) for _ in range(2)]
        found.add(row(1))

        assert (once, found.once(count, TRAINER), counted) == ([1, 1], 2, [TRAINER, TRAINER])


class TestFindings:
    def test_a_row_says_who_was_slow_where_and_what_that_cost(self) -> None:
        whole = {
            "kind": "slow", "rank": 2, "phase": "forward", "since": 10, "until": 19, "slowdown": 0.5, "s in all": 4.0,
            "at step": 12, "span": "ab12", "place": "rank 2 of 4", "s saved per step": 0.3, "amount": "tokens",
            "given": 2.0, "others wait": "no",
        }  # fmt: skip
        lasting = {"kind": "silent", "rank": 1, "since": 90, "until": None, "s in all": math.nan}

        first, second = facts(
            findings(list(lasting.values()), columns=list(lasting), name="generator/otel_ml/findings"),
            findings(list(whole.values()), columns=list(whole)),
        ).findings

        assert first == Slow(
            "", "step", "slow", 2, "rank 2 of 4", "forward", 10, 19, is_over=True, extra_s=0.4, cost_s=4.0,
            slowdown=0.5, saved_s=0.3, shows=12, span="ab12", amount="tokens", given=2.0, others_wait=False,
        )  # fmt: skip
        assert second == Slow(
            "generator/", "step", "silent", 1, "rank 1", "", 90, 99, is_over=False, extra_s=0.0, cost_s=0.0,
        )  # fmt: skip

    def test_the_costliest_comes_first(self) -> None:
        found = facts(findings((1, 1, 0.5), (2, 2, 3.0), (3, 3, 1.0), columns=("rank", "since", "s in all")))

        assert [slow.rank for slow in found.findings] == [2, 3, 1]

    @pytest.mark.parametrize("since", [None, "soon", math.nan, math.inf, 2**53 + 2, -(2**53) - 2])
    def test_a_row_that_does_not_say_since_when_is_none(self, since: JsonValue) -> None:
        assert facts(findings((since, 1), columns=("since", "rank"))).findings == []

    def test_the_largest_step_is_one(self) -> None:
        assert [slow.since for slow in facts(findings((2**53, 1), columns=("since", "rank"))).findings] == [2**53]

    def test_nobody_is_accused_of_what_follows_the_data(self) -> None:
        nobody, somebody = facts(
            findings((1, "nobody", 9.0), (1, "stage 2", 1.0), columns=("since", "place", "s in all"))
        ).findings

        assert (nobody.accuses, somebody.accuses) == (False, True)
