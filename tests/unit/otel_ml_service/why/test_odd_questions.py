"""Questions about steps that are not there, about one step, and of runs in which next to nothing was timed."""

from __future__ import annotations

import math

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.asking import SLOW, asked, texts
from tests.unit.otel_ml_service.why.jobs import FINDINGS, finding, job, numbered


def test_steps_that_the_run_does_not_have_are_not_said_to_have_taken_time() -> None:
    answer = asked(job(), steps=(100, 500))

    assert answer.sentences[0].startswith("Steps 100-159 took 12 ms each")
    assert (answer.first, answer.last) == (100, 159)


def test_the_steps_that_a_run_has_are_all_that_were_recorded_timed_or_not() -> None:
    rows = job(steps=41, is_timed=False, values=lambda step: {"time/step": 0.02} if step < 40 else {})

    assert asked(rows, steps=(41, 41)).sentences[0] == "Nothing is known of step 41: the run has steps 0-40."


def test_of_a_step_that_is_there_and_was_not_timed_it_is_said_how_much_is_known() -> None:
    answer = asked(job(is_timed=False), steps=(0, 0))

    assert answer.sentences[0] == "How long step 0 took is not known: it was not timed, and nothing says when it began."
    assert "were not recorded" not in texts(answer)


def test_a_finding_that_ends_before_it_begins_is_one_of_its_first_step() -> None:
    row = list(finding(since=80, until=80, extra_s=0.015))
    row[FINDINGS.index("until")] = 79

    [found] = facts_of("run", job(findings=[tuple(row)])).findings

    assert (found.since, found.last) == (80, 80)


def test_one_step_is_not_said_to_be_the_longest_one() -> None:
    answer = asked(job(slow=SLOW, extra_s=0.015), steps=(90, 90))

    assert "longest" not in " ".join([*answer.sentences, *(look.text for look in answer.look_at)])
    assert answer.sentences[2] == "`otel-ml trace run --steps 90` draws what each rank did in it."


def test_who_asks_about_a_step_hears_of_what_is_not_finite_from_there_on() -> None:
    rows = job(values=lambda step: {"loss": 1.0 / (step + 1) if step < 70 else math.nan})

    answer = asked(rows, steps=(70, 70))

    assert "loss became nan at step 70" in [one.text for one in answer.evidence]
    assert answer.verdict == "cannot tell"
    assert "loss" not in texts(asked(rows, steps=(60, 69)))


def test_who_asks_for_an_axis_that_is_not_there_is_not_told_of_a_role_nobody_named() -> None:
    with pytest.raises(ConfigError, match=r"has no steps of axis 'epoch'\. It has: axis 'step' of role 'trainer'"):
        asked(job(), steps=(1, 2), axis="epoch")
    with pytest.raises(ConfigError, match=r"has no steps of role 'critic'\."):
        why(facts_of("run", job()), Question(role="critic"))


def test_of_a_run_whose_steps_do_nothing_no_time_is_missed() -> None:
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1000.0 + step * 5e-6, {"time/step": 5e-6, "time/data": 3e-6})
        for step in range(60)
    ]

    answer = asked(numbered([*rows, RunStatus(0, 1001.0, "finished")]))

    assert answer.sentences[0].startswith("Nothing stands out in 60 steps: ")
    assert "no timer" not in texts(answer)


def test_a_metric_is_not_said_to_be_unchanged_where_it_has_no_values() -> None:
    answer = asked(job(values=lambda step: {"loss": 0.5} if step < 60 else {}), metric="loss", steps=(500, 500))

    assert answer.sentences[0] == "loss has no value in step 500: it has 60, in steps 0-59."
    assert "0 of 0" not in texts(answer)
    assert answer.verdict == "cannot tell"


def test_steps_that_are_longer_by_no_more_than_all_steps_vary_are_not_said_to_be_as_usual() -> None:
    slow = finding(since=80, until=83, extra_s=0.003)
    varying = job(
        findings=[slow],
        values=lambda step: {"time/exposed/forward": (0.013 if 80 <= step < 84 else 0.01) * (0.6, 1.4)[step % 2]},
    )

    answer = asked(varying, steps=(80, 83))

    assert answer.verdict == "cannot tell"
    assert answer.sentences[0] == (
        "Steps 80-83 took 15 ms each, usual ones 12 ms: these vary by as much among themselves."
    )
    assert answer.sentences[1].endswith("and steps vary by as much anyway.")
