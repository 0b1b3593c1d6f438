"""What a person is told of a finding: each kind, when it begins and when it is over, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.say_finding import say_finding
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.phases import UNTIMED

SLOW = {"kind": "slow", "phase": "forward", "slowdown": 0.5, "extra_s": 0.25, "cost_s": 5.0}
LOAD = {"kind": "load", "phase": "forward", "extra_s": 0.25, "cost_s": 5.0, "amount": "tokens", "given": 1.5}
SHAPE = {"kind": "shape", "phase": "forward and backward", "extra_s": 0.25, "correlation": 0.876}
PAUSE = {"kind": "pause", "times": 4, "cost_s": 8.0, "extra_s": 0.4, "slowdown": 0.25}
STAGE = {"kind": "stage", "stage": 2, "slowdown": 0.5, "extra_s": 0.25, "cost_s": 5.0}
FIRST_16 = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"

BEGINS = [
    (
        {**SLOW, "rank": 3, "saved_s": 0.2},
        "Rank 3 of role 'trainer' is slow in 'forward' since step 10: 250 ms longer than the usual rank, +50 %; "
        "without it a step is 200 ms shorter (warning).",
    ),
    (
        {**SLOW, "where": "host n3", "ranks": tuple(range(16)), "others_wait": False},
        "Host n3 of role 'trainer' is slow in 'forward' since step 10: 250 ms longer than the usual rank, +50 %; its "
        "own steps take that much longer, and most ranks do not wait for it (warning). "
        f"Slow are ranks {FIRST_16}.",
    ),
    (
        {**SLOW, "where": "host n3", "ranks": tuple(range(18))},
        "Host n3 of role 'trainer' is slow in 'forward' since step 10: 250 ms longer than the usual rank, +50 % "
        f"(warning). Slow are ranks {FIRST_16} and 2 more.",
    ),
    (
        {**SLOW, "where": "role trainer", "ranks": (1,)},
        "Role 'trainer' is slow in 'forward' since step 10: 250 ms longer than before, +50 % (warning). "
        "Slow is rank 1.",
    ),
    (
        {**SLOW, "rank": 3, "phase": UNTIMED, "slowdown": -0.5},
        "Rank 3 of role 'trainer' is slow outside of its timers since step 10: 250 ms longer than the usual rank, "
        "-50 % (warning).",
    ),
    (
        STAGE,
        "Stage 2 of role 'trainer' has 1.5 × the work of the other stages since step 10: 250 ms a step more (warning).",
    ),
    (
        {**LOAD, "rank": 2, "ranks": (2,), "saved_s": 0.1},
        "Rank 2 of role 'trainer' has 1.5 × the tokens of the other ranks since step 10, and is not slow for it: "
        "250 ms a step more in 'forward', which the others wait for; with as much for all a step is 100 ms shorter.",
    ),
    (
        {**LOAD, "where": "ranks 2 and 3", "ranks": (2, 3)},
        "Ranks 2 and 3 of role 'trainer' have 1.5 × the tokens of the other ranks since step 10, and are not slow for "
        "it: 250 ms a step more in 'forward', which the others wait for.",
    ),
    (
        SHAPE,
        "The time of a step of role 'trainer' follows the shape of the data since step 10: forward and backward vary "
        "together, r = 0.88. Nobody is slow; the longest rank works 250 ms longer than the mean.",
    ),
    (
        {**SHAPE, "amount": "tokens"},
        "The time of a step of role 'trainer' follows tokens since step 10: forward and backward vary together, "
        "r = 0.88. Nobody is slow; the longest rank works 250 ms longer than the mean.",
    ),
    (
        PAUSE,
        "Role 'trainer' pauses in whatever its ranks work at now and then since step 10: 2 s each, 400 ms a step on "
        "average, +25 % (warning). Nobody is slow.",
    ),
    (
        {**PAUSE, "phase": "data", "rank": 2, "every": 5},
        "Role 'trainer' pauses in 'data' every 5 steps since step 10: 2 s each, 400 ms a step on average, +25 % "
        "(warning). Rank 2 stands still, and the others wait.",
    ),
    (
        {**PAUSE, "times": 0, "cost_s": 3.0},
        "Role 'trainer' pauses in whatever its ranks work at now and then since step 10: 3 s each, 400 ms a step on "
        "average, +25 % (warning). Nobody is slow.",
    ),
]  # fmt: skip

ENDS = [
    (
        {**SLOW, "rank": 3},
        "Rank 3 of role 'trainer' is no longer slow in 'forward': from step 10 to 30, 5 s longer than the usual rank "
        "in all.",
    ),
    (
        {**SLOW, "where": "role trainer"},
        "Role 'trainer' is no longer slow in 'forward': from step 10 to 30, 5 s longer than before in all.",
    ),
    (
        STAGE,
        "Stage 2 of role 'trainer' no longer has more work than the other stages: from step 10 to 30, 5 s in all.",
    ),
    (
        {**LOAD, "rank": 2, "ranks": (2,)},
        "Rank 2 of role 'trainer' no longer has 1.5 × the tokens of the other ranks: step 10 to 30, 5 s in all.",
    ),
    (
        {**LOAD, "where": "ranks 2 and 3", "ranks": (2, 3)},
        "Ranks 2 and 3 of role 'trainer' no longer have 1.5 × the tokens of the other ranks: step 10 to 30, 5 s in "
        "all.",
    ),
    (
        SHAPE,
        "The time of a step of role 'trainer' no longer follows the shape of the data: forward and backward varied "
        "together from step 10 to 30.",
    ),
    (
        {**PAUSE, "phase": "data", "every": 5},
        "Role 'trainer' no longer pauses in 'data': 4 times from step 10 to 30, 2 s each, 8 s in all.",
    ),
    ({"kind": "silent", "rank": 4}, "Rank 4 of role 'trainer' is heard again: it was silent from step 10 to 30."),
]  # fmt: skip


def said(**facts: Any) -> list[str]:
    output = Output()
    known = {"rank": None, "phase": "", "level": "warning", "since": 10, "last": 30}
    say_finding(output, Finding(**known | facts), "trainer", "step")
    return output.notices


@pytest.mark.parametrize(("facts", "sentence"), BEGINS)
def test_what_begins_is_said_with_where_how_much_and_for_whom_it_matters(facts: dict[str, Any], sentence: str) -> None:
    assert said(**facts) == [f"{sentence} (otel-ml explain straggler)"]


@pytest.mark.parametrize(("facts", "sentence"), ENDS)
def test_what_is_over_is_said_with_its_steps_and_what_it_cost(facts: dict[str, Any], sentence: str) -> None:
    assert said(**facts, is_over=True) == [f"{sentence} (otel-ml explain straggler)"]
