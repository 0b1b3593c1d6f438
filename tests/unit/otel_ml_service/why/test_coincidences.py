"""What is at the same time as a change, and what is just beyond: edges at three steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from otel_ml_exporters.records import Params, Record, StepRecord, Text
from otel_ml_service.why.coincidences import changes_near, eligible, first_not_finite, is_of_time
from otel_ml_service.why.facts import Place, RunFacts, facts_of
from tests.unit.otel_ml_service.why.jobs import event, finding, job, no_rank, numbered

TRAINER = Place("trainer", "step")


def steps(
    count: int = 40, axis: str = "step", role: str = "trainer", s: float = 1.0, **values: Callable[[int], float]
) -> list[StepRecord]:
    """Return rows; the step `n` is done after `n * s` seconds."""
    return [
        StepRecord(0, role, axis, step, 0, step * s, {name: of(step) for name, of in values.items()})
        for step in range(count)
    ]


def facts(*rows: Record) -> RunFacts:
    return facts_of("run", numbered(rows))


def near(found: RunFacts, step: int = 20, place: Place = TRAINER, **how: Any) -> list[tuple[str, int | None, str]]:
    return [(one.kind, one.step, one.text) for one in changes_near(found, place, step, **how)]


@pytest.mark.parametrize(("at", "is_near"), [(16, False), (17, True), (20, True), (23, True), (24, False)])
def test_three_steps_are_the_same_time_and_four_are_not(at: int, is_near: bool) -> None:
    rows = [StepRecord(0, "trainer", "step", step, int(step >= at), float(step), {}) for step in range(40)]
    set_at = {"lr": lambda step: 0.1 if step < at else 0.01}

    assert near(facts(*rows)) == [("restart", at, f"the job was restarted (attempt 2) at step {at}")] * is_near
    events, changes = [*steps(), event("note", at, "hello")], steps(**set_at)
    assert near(facts(*events)) == [("event", at, f"event note at step {at}: hello")] * is_near
    assert near(facts(*changes)) == [("change", at, f"lr went from 0.1 to 0.01 at step {at}")] * is_near


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("{}", ""), ("two\n  lines", ": two lines"), ("x" * 60, ": " + "x" * 60), ("x" * 61, f": {'x' * 60}…")],
)
def test_an_event_is_shown_in_one_short_line(text: str, shown: str) -> None:
    assert near(facts(*steps(), event("note", 20, text))) == [("event", 20, f"event note at step 20{shown}")]


@pytest.mark.parametrize(("time", "is_near"), [(15.9, False), (16.0, True), (20.0, True), (24.0, True), (24.1, False)])
def test_parameters_are_set_between_the_rows_around_these_seven_steps(time: float, is_near: bool) -> None:
    rows = [Params(0, 20.0, {"begin": 1}), *steps(), Params(0, time, {"lr": 0.1, "decay": 2})]

    assert near(facts(*rows)) == [("parameter", None, "parameters were set: lr and decay")] * is_near


def test_in_the_first_steps_nothing_can_be_told_by_the_clock() -> None:
    rows = [Params(0, 0.0, {"begin": 1}), *steps(), Params(0, 1.0, {"lr": 0.1})]
    rollouts = steps(axis="rollout", role="generator", x=lambda step: float(step > 2))

    assert near(facts(*rows, *rollouts), step=2) == []


@pytest.mark.parametrize(("at", "is_near"), [(31, False), (32, True), (48, True), (49, False)])
def test_of_another_axis_it_is_what_was_done_in_the_same_seven_steps(at: int, is_near: bool) -> None:
    # Rollouts take half a second: 32 of them are done at 16 s, where step 16 is, and 48 at 24 s.
    values = {"generator/rollout/tasks": lambda step: float(step >= at)}
    rollouts = steps(80, axis="rollout", role="generator", s=0.5, **values)

    found = near(facts(*steps(), *rollouts))

    text = f"generator/rollout/tasks went from 0 to 1 at rollout {at} (beside step {math.ceil(at / 2)})"
    assert found == [("change", at, text)] * is_near


def test_a_finding_that_lasts_has_no_end_and_one_of_the_place_itself_may_be_known() -> None:
    over = finding(rank=2, since=80, until=119, extra_s=0.01)
    lasting = no_rank("stage", "stage 2", "", since=100, last=159, saved_s=0.1)
    found = facts_of("run", job(findings=[over, lasting]))

    assert near(found, 80) == [("finding", 80, "rank 2 was slow in forward from step 80")]
    assert near(found, 119) == [("finding", 119, "rank 2 was slow in forward up to step 119")]
    assert [one[1] for one in near(found, 100)] == [100]
    assert near(found, 159) == []
    assert near(found, 80, is_own_known=True) == []


@pytest.mark.parametrize("name", ["loss/max", "loss/p99.9", "tokens_per_second", "x/mfu"])
def test_another_word_for_a_metric_or_for_the_time_is_no_change(name: str) -> None:
    found = facts(*steps(**{name: lambda step: float(step >= 20)}))

    assert near(found) == []
    assert eligible(found) == 0


def test_the_metric_in_question_and_its_parts_are_none() -> None:
    changes = dict.fromkeys(["reward", "reward/math", "rewards"], lambda step: float(step >= 20))

    found = facts(*steps(**changes))

    assert [text.split()[0] for _, _, text in near(found, but="reward")] == ["rewards"]
    assert [text.split()[0] for _, _, text in near(found, but="reward/max")] == ["rewards"]
    assert [text.split()[0] for _, _, text in near(found)] == ["reward", "reward/math", "rewards"]
    assert eligible(found) == 3


def test_a_metric_is_told_once_and_as_what_it_became() -> None:
    values = {
        "lr": lambda step: [0.1, 0.2, 0.3][(step >= 19) + (step >= 21)],
        "g": lambda step: math.nan if step == 20 else 1.0,
    }
    found = facts(*steps(**values))

    assert near(found) == [
        ("change", 20, "g became nan at step 20"),
        ("change", 19, "lr went from 0.1 to 0.2 at step 19"),
    ]


@pytest.mark.parametrize(("count", "is_set"), [(40, True), (39, False)])
def test_what_stands_still_in_nine_steps_of_ten_is_set_by_somebody(count: int, is_set: bool) -> None:
    # It changes four times, at 10 and 20 and back right after; as a level of many it does not.
    found = facts(*steps(count, version=lambda step: float(step in {10, 20})))

    assert near(found) == [("change", 20, "version went from 0 to 1 at step 20")] * is_set


@pytest.mark.parametrize(
    ("values", "first"),
    [
        ({}, None),
        ({1: 1.0, 2: 2.0}, None),
        ({1: math.nan, 2: 1.0}, None),
        ({1: math.nan, 2: 1.0, 3: math.inf, 4: math.nan}, 3),
        ({4: math.nan, 2: 1.0, 3: 1.0}, 4),
        ({1: 1e308, 2: 1e308}, None),
        ({1: math.nan}, None),
        ({1: 1.0, 2: -math.inf}, 2),
    ],
)
def test_a_metric_is_finite_no_more_at_the_first_step_after_one_where_it_was(
    values: Mapping[int, float], first: int | None
) -> None:
    assert first_not_finite(values) == first


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("samples_per_s", True), ("samples per second", True), ("tokens/s", True), ("MFU", True), ("eta", True),
        ("per_sample", False), ("wall_time", True), ("loss", False), ("goodput", True), ("train/eta", True),
        ("epoch_eta", True), ("ETA", True), ("beta", False), ("kl/beta", False), ("theta", False), ("eta_min", False),
    ],
)  # fmt: skip
def test_what_is_measured_by_the_clock(name: str, is_so: bool) -> None:
    assert is_of_time(name) == is_so


def test_a_text_without_a_step_is_at_no_time() -> None:
    assert near(facts(*steps(), Text(0, 20.0, "note", None, None, "hello"))) == []
