"""What a writer says of its metrics and timers, and what is made of it where it says nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml_service.receiver.heartbeat import declared_of, kinds_of

MIB = 2**20

NONSENSE: list[Any] = [None, 7, True, ["a"], "", "no JSON", "7", "[7]", "[[]]", "null", "[" * 100_000]


@pytest.mark.parametrize("said", NONSENSE)
def test_nonsense_says_nothing(said: Any) -> None:
    assert declared_of({wire.REDUCTIONS: said}) == ()
    assert kinds_of({wire.TIMERS: said}) == ()


def test_who_says_nothing_has_said_nothing() -> None:
    assert declared_of({}) == ()
    assert kinds_of({}) == ()


def test_what_comes_before_nonsense_is_read_and_what_has_no_name_is_left_out() -> None:
    rows = [["loss", "max", ""], [7, "min", ""], ["grad/*", "mean,p99", ""], ["lr", "nonsense", ""], ["x", "min", ""]]

    assert declared_of({wire.REDUCTIONS: json.dumps(rows)}) == (
        ("loss", Reduction.parse("max")),
        ("grad/*", Reduction.parse("mean,p99")),
    )


def test_a_timer_is_work_or_waiting_and_nothing_else() -> None:
    rows = [["forward", "work"], ["sync", "wait"], ["x", "sleep"], [7, "work"], ["y", None]]

    assert kinds_of({wire.TIMERS: json.dumps(rows)}) == (("forward", "work"), ("sync", "wait"))


def test_a_mebibyte_is_read_and_no_more() -> None:
    declared, kinds = json.dumps([["loss", "max", ""]]), json.dumps([["forward", "work"]])

    assert declared_of({wire.REDUCTIONS: declared.ljust(MIB)}) == (("loss", Reduction.parse("max")),)
    assert kinds_of({wire.TIMERS: kinds.ljust(MIB)}) == (("forward", "work"),)
    assert declared_of({wire.REDUCTIONS: declared.ljust(MIB + 1)}) == ()
    assert kinds_of({wire.TIMERS: kinds.ljust(MIB + 1)}) == ()
