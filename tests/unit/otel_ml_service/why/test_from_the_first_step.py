"""What lasts from the first step on, and steps that follow the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.why.answer import Answer
from tests.unit.otel_ml_service.why.asking import asked, texts
from tests.unit.otel_ml_service.why.jobs import finding, job, no_rank, numbered

ACCOUNT = ("time/exposed/forward", "time/exposed/all_reduce")


def test_a_step_time_that_follows_a_metric_is_said_to_follow_it() -> None:
    rng = np.random.default_rng(3)
    tokens = rng.lognormal(size=200)
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1e3 + step, {"tokens": float(count), "time/step": 0.01 + count / 500})
        for step, count in enumerate(tokens)
    ]  # fmt: skip

    answer = asked(numbered(rows), steps=(int(tokens.argmax()),) * 2)

    assert answer.verdict == "coincided"
    assert "step time follows tokens (r = 1.00)" in answer.sentences[1]


def test_a_stage_with_more_work_from_the_first_step_on_caused_it_and_no_rank_is_accused() -> None:
    found = no_rank("stage", "stage 2", "", since=0, last=159, saved_s=0.004)

    answer = asked(job(findings=[found]))

    assert (answer.verdict, answer.first, answer.last) == ("caused", 0, 159)
    assert answer.effect == pytest.approx(0.004)
    assert answer.sentences[0].endswith(
        "ms each: 4 ms (33.4 %) more than without what was found; no step was without it."
    )
    assert answer.sentences[1] == (
        "Caused: stage 2 had 1.77 × the work of the other stages, steps 0-159; none of its ranks was slow."
    )
    assert answer.sentences[2].startswith("With the work spread over all stages these steps are 4 ms shorter")
    assert "rank" not in answer.sentences[0] + answer.evidence[0].text


def test_a_rank_that_is_slow_from_the_first_step_on_caused_what_a_step_is_shorter_without_it() -> None:
    found = finding(since=0, until=159, extra_s=0.005)

    answer = asked(job(slow=range(160), extra_s=0.005, findings=[found]))

    assert answer.verdict == "caused"
    assert answer.effect == pytest.approx(0.005)
    assert "rank 2 was slow in forward, steps 0-159" in answer.sentences[1]


def test_what_saves_next_to_nothing_has_nothing_to_explain() -> None:
    found = no_rank("stage", "stage 2", "", since=0, last=159, saved_s=0.0002)

    assert asked(job(findings=[found]), steps=(0, 159)).verdict == "cannot tell"


def test_times_that_follow_the_data_coincided_and_nobody_is_accused() -> None:
    found = no_rank("shape", "nobody", "forward and backward", since=0, last=159, saved_s=0.003)

    answer = asked(job(findings=[found]))

    assert (answer.verdict, answer.explained) == ("coincided", 0.0)
    assert "followed the data (forward and backward varied together), and nobody was slow" in answer.sentences[1]
    assert answer.sentences[2] == "Where the longest rank is given as much as the mean one, a step is 3 ms shorter."
    assert "rank None" not in texts(answer)


def test_the_metric_that_goes_with_the_shape_of_the_data_is_named() -> None:
    found = no_rank("shape", "nobody", "forward and backward", since=0, last=159, saved_s=0.003)
    rows = job(findings=[found])
    seconds = {row.step: sum(row.values[name] for name in ACCOUNT) for row in rows if isinstance(row, StepRecord)}

    answer = asked(
        job(findings=[found], values=lambda step: {"tokens/max": 4e5 * seconds[step], "tokens": 2048.0 + step % 7})
    )

    assert answer.verdict == "coincided"
    assert "step time follows tokens/max (r = 1.00)" in answer.sentences[1]
    assert "tokens (r" not in texts(answer)


def varying(values: Callable[[int, float], Mapping[str, float]]) -> Answer:
    """Ask why of a run whose steps take 10 ms, times what a wide distribution gives, and a little less each time."""
    rng = np.random.default_rng(4)
    rows: list[Record] = []
    for step in range(160):
        seconds = 0.01 * rng.lognormal(0.0, 0.4) + 0.00002 * (160 - step)
        timers = {"time/exposed/forward": seconds, "time/exposed/forward/rank": float(step % 4)}
        found = {**timers, **values(step, seconds)}
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, found))
    return asked(numbered(rows))


def test_a_healthy_run_whose_steps_go_with_their_tokens_has_no_culprit_and_names_these() -> None:
    answer = varying(lambda step, seconds: {"tokens": 2e5 * seconds, "loss": 1 / (step + 1)})

    assert answer.verdict == "coincided"
    assert "Coincided: step time follows tokens (r = 1.00); nobody was slow" in answer.sentences[1]


def test_what_falls_as_step_time_falls_is_not_what_it_follows() -> None:
    rng = np.random.default_rng(9)

    answer = varying(lambda step, seconds: {"loss": 1 / (step + 1), "seen": 0.1 * step + rng.normal()})

    assert answer.verdict == "cannot tell"


def test_who_was_found_from_the_first_step_on_is_named_also_where_nothing_says_what_it_cost() -> None:
    found = (*finding(since=0, until=159, extra_s=0.5)[:-1], 0.5)  # longer than a step

    said = asked(job(findings=[found]))

    assert said.sentences[1] == (
        "Cannot tell what it cost: rank 2 was slow in forward, steps 0-159, and no step was without it."
    )


def test_a_metric_of_two_values_is_followed_as_one_of_many_is() -> None:
    rng = np.random.default_rng(9)
    tokens = [1e3 if is_short else 2e3 for is_short in rng.random(200) < 0.6]
    times = [count / 1e5 * float(rng.lognormal(0.0, 0.01)) for count in tokens]
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1e3 + step, {"tokens": count, "time/step": time})
        for step, (count, time) in enumerate(zip(tokens, times, strict=True))
    ]

    answer = asked(numbered(rows), steps=(100, 100))

    assert "step time follows tokens (r = 0.86)" in answer.sentences[1]
