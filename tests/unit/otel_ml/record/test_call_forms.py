"""What people type who come from another logger: it is recorded, or answered with what to type; nothing raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml._internal.messages.recorder import recorder
from otel_ml.exceptions import OtelMLError
from otel_ml.testing import capture

LOSS_AT_5 = [("loss", 5, 1.0)]
LOSS_AT_3 = [("loss", 3, 1.0)]
BOTH = [("acc", 5, 2.0), ("loss", 5, 1.0)]
MANY = {f"m{n}": float(n) for n in range(9)}
MANY_AT_5 = sorted((name, 5, value) for name, value in MANY.items())


def _in_a_block(to: Any) -> None:
    with to.step(step=3):
        to.log({"loss": 1.0})


WORKS: dict[str, tuple[Callable[[Any], object], list[tuple[str, int, float]]]] = {
    "log_metric of MLflow": (lambda to: to.log("loss", 1.0), LOSS_AT_5),
    "an int beside a name is its value": (lambda to: to.log("loss", 1), LOSS_AT_5),
    "a number of numpy": (lambda to: to.log("loss", np.float32(1)), LOSS_AT_5),
    "add_scalar of TensorBoard": (lambda to: to.log("loss", 1.0, 3), LOSS_AT_3),
    "log_metric of MLflow with a step": (lambda to: to.log("loss", 1.0, step=3), LOSS_AT_3),
    "a name, a value and an axis": (lambda to: to.log("loss", 1.0, 3, axis="step"), LOSS_AT_3),
    "a name, a value, a step and another axis": (lambda to: to.log("loss", 1.0, 3, axis="eval"), LOSS_AT_3),
    "values as keywords": (lambda to: to.log(loss=1.0, acc=2.0), BOTH),
    "values as keywords with a step": (lambda to: to.log(loss=1.0, step=3), LOSS_AT_3),
    "W&B's commit": (lambda to: to.log({"loss": 1.0}, commit=False), LOSS_AT_5),
    "W&B's commit and a step": (lambda to: to.log({"loss": 1.0}, 3, commit=True), LOSS_AT_3),
    "W&B's commit of a row": (lambda to: to.log(MANY, commit=False), MANY_AT_5),
    "pairs": (lambda to: to.log([("loss", 1.0), ("acc", 2.0)]), BOTH),
    "the name of the first argument": (lambda to: to.log(values={"loss": 1.0}), LOSS_AT_5),
    "W&B's name of it": (lambda to: to.log(data={"loss": 1.0}), LOSS_AT_5),
    "MLflow's name of it": (lambda to: to.log(metrics={"loss": 1.0}, step=3), LOSS_AT_3),
    "a metric that is called data": (lambda to: to.log(data=1.0), [("data", 5, 1.0)]),
    "set_step of a step": (lambda to: (to.set_step(step=3), to.log({"loss": 1.0})), LOSS_AT_3),
    "set_step of a step and an axis": (lambda to: (to.set_step(step=3, axis="step"), to.log({"loss": 1.0})), LOSS_AT_3),
    "a block of a step": (lambda to: _in_a_block(to), LOSS_AT_3),
    "an axis by position": (lambda to: to.log({"loss": 1.0}, 3, "step"), LOSS_AT_3),
    "record of a dictionary": (lambda to: to.record({"loss": 1.0}), LOSS_AT_5),
    "record of a dictionary at a step": (lambda to: to.record({"loss": 1.0}, 3), LOSS_AT_3),
    "record of a dictionary at a named step": (lambda to: to.record({"loss": 1.0}, step=3), LOSS_AT_3),
    "record by the names of its arguments": (lambda to: to.record(name="loss", value=1.0, step=3), LOSS_AT_3),
    "record of a keyword": (lambda to: to.record(loss=1.0), LOSS_AT_5),
}

NAMES_AND_VALUES = "expected names and values such as {'loss': 0.5}, got "

ANSWERED: dict[str, tuple[Callable[[Any], object], dict[str, int], tuple[str, ...]]] = {
    "a name alone": (
        lambda to: to.log("loss"),
        {"bad_value": 1},
        ("log(): " + NAMES_AND_VALUES + "'loss' without a value. Call log({'loss': …}) or record('loss', …).",),
    ),
    "None": (lambda to: to.log(None), {"bad_value": 1}, ("log(): " + NAMES_AND_VALUES + "None.",)),
    "a number": (lambda to: to.log(1.0), {"bad_value": 1}, ("log(): " + NAMES_AND_VALUES + "1.0.",)),
    "a name and a value in a list": (
        lambda to: to.log(["loss", 1.0]),
        {"bad_value": 1},
        ("log(): " + NAMES_AND_VALUES + "['loss', 1.0].",),
    ),
    "pairs of which two have one name": (
        lambda to: to.log([("loss", 1.0), ("loss", 2.0)]),
        {"bad_value": 2},
        ("log(): " + NAMES_AND_VALUES + "[('loss', 1.0), ('loss', 2.0)].",),
    ),
    "a text beside a name": (
        lambda to: to.log("loss", "high"),
        {"bad_value": 1},
        ("Metric 'loss'", "got 'high' (str); convert it with float(), or use log_text()"),
    ),
    "a name in the place of a step": (
        lambda to: to.log("loss", 1.0, step="eval"),
        {"bad_step": 1},
        ("log(): expected a step that is a whole number from 0 on, got 'eval'. Pass an int.",),
    ),
    "record without a value": (
        lambda to: to.record("loss"),
        {"bad_value": 1},
        ("record(): expected a name and a value, got 'loss' without a value. Call record('loss', …).",),
    ),
    "record of nothing": (
        lambda to: to.record(),
        {"bad_value": 1},
        ("record(): expected a name and a value, got nothing. Call record('loss', …).",),
    ),
    "record of a number": (lambda to: to.record(3, 1.0), {"bad_name": 1}, ("A metric's name", "got 3.")),
    "two steps": (
        lambda to: to.log({"loss": 1.0}, 3, step=4),
        {"bad_step": 1},
        ("log(): expected a step that is a whole number from 0 on, got (3, 4). Pass an int.",),
    ),
    "a text as a step": (
        lambda to: to.set_step("3"),
        {},
        ("set_step(): expected a step that is a whole number from 0 on, got '3'. Pass an int.",),
    ),
    "set_step of nothing": (
        lambda to: to.set_step(),
        {},
        ("set_step(): expected a step that is a whole number from 0 on, got nothing. Pass an int.",),
    ),
    "a block of nothing": (
        lambda to: to.step().__enter__(),
        {},
        ("step(): expected a step that is a whole number from 0 on, got nothing. Pass an int.",),
    ),
    "more than a step and an axis": (
        lambda to: to.set_step(5, "step", 3),
        {},
        ("set_step(): takes a step and an axis, and was given 3 as well.",),
    ),
}


def recorded(run: Any) -> list[tuple[str, int | None, float]]:
    return sorted((point.name, point.step, point.value) for point in run.points)


@pytest.mark.parametrize("through", ["module", "run"])
@pytest.mark.parametrize("form", WORKS)
def test_what_is_meant_is_recorded_and_nothing_is_said(form: str, through: str) -> None:
    call, expected = WORKS[form]
    for _ in range(2):  # the second time a row is known
        with capture() as run:
            otel_ml.set_step(5)
            call(otel_ml if through == "module" else otel_ml.init())

            assert recorded(run) == expected
            assert run.notices == []
            assert recorder.dropped == {}


@pytest.mark.parametrize("through", ["module", "run"])
@pytest.mark.parametrize("form", ANSWERED)
def test_what_is_not_clear_is_answered_with_what_to_type_and_counted_by_value(form: str, through: str) -> None:
    call, dropped, parts = ANSWERED[form]
    with capture() as run:
        otel_ml.set_step(5)
        call(otel_ml if through == "module" else otel_ml.init())

        assert recorded(run) == []
        assert recorder.dropped == dropped
        [said] = run.notices
        assert [part for part in parts if part not in said] == []


@pytest.mark.parametrize("form", ANSWERED)
def test_under_strict_it_raises(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_STRICT", "true")
    call, _, parts = ANSWERED[form]
    with capture(), pytest.raises(OtelMLError) as raised:
        call(otel_ml)

    assert parts[0] in str(raised.value)


def test_an_argument_that_nobody_knows_beside_a_dictionary_is_no_value() -> None:
    with capture() as run:
        otel_ml.set_step(5)
        otel_ml.log({"loss": 1.0}, colour=2.0)

        assert recorded(run) == LOSS_AT_5
        assert [said.partition(". ")[0] for said in run.notices] == ["log(): unknown argument colour"]


def test_a_function_given_to_timed_is_timed_whatever_kind_it_is() -> None:
    with capture() as run:
        otel_ml.set_step(5)

        assert otel_ml.timed(lambda: 7)() == 7
        assert [point.step for point in run.points if "<lambda>" in point.name] == [5]


DEFINITIONS: dict[str, tuple[Callable[[], object], str]] = {
    "W&B's step_metric": (
        lambda: otel_ml.define_metric("loss", step_metric="epoch", reduce="max"),
        "define_metric(): unknown argument step_metric. It is not used, all else is.",
    ),
    "a reduction by position": (
        lambda: otel_ml.define_metric("loss", "max"),
        "define_metric(): expected options by name, got 'max' by position. Call define_metric(name, reduce='max').",
    ),
    "a metric's reduction by position": (
        lambda: otel_ml.get_meter().metric("loss", "max"),
        "metric(): expected options by name, got 'max' by position. Call metric(name, reduce='max').",
    ),
    "an option of another meter": (
        lambda: otel_ml.get_meter().metric("loss", buckets=3, reduce="max"),
        "metric(): unknown argument buckets. It is not used, all else is.",
    ),
    "an option of tqdm": (
        lambda: list(otel_ml.steps([1, 2], desc="train")),
        "steps(): unknown argument desc. It is not used, all else is.",
    ),
}


@pytest.mark.parametrize("case", DEFINITIONS)
def test_an_option_that_there_is_not_loses_nothing_and_is_said(case: str) -> None:
    call, expected = DEFINITIONS[case]
    with capture() as run:
        call()

        assert recorder.dropped == {}
        assert [expected in said for said in run.notices] == [True]


ENDS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a time-out that is a text": (
        lambda to: to.flush("5"),
        "flush(): expected a time-out in seconds, got '5'. It waits 2 s.",
    ),
    "a time-out that is no number": (
        lambda to: to.shutdown(float("nan")),
        "shutdown(): expected a time-out in seconds, got nan. It waits as long as is usual.",
    ),
    "W&B's exit code": (
        lambda to: to.shutdown(exit_code=1),
        "shutdown(): unknown argument exit_code. It is not used, all else is.",
    ),
    "an option of another flush": (
        lambda to: to.flush(wait=True),
        "flush(): unknown argument wait. It is not used, all else is.",
    ),
}


@pytest.mark.parametrize("through", ["module", "run"])
@pytest.mark.parametrize("case", ENDS)
def test_what_ends_a_training_does_not_raise_because_of_how_it_is_called(case: str, through: str) -> None:
    call, expected = ENDS[case]
    with capture() as run:
        call(otel_ml if through == "module" else otel_ml.init())

        assert [expected in said for said in run.notices] == [True]


@pytest.mark.parametrize("timeout", [None, np.float32(2), math.inf, 1e300, 1, -1.0])
def test_whatever_number_of_seconds_is_waited_at_most_nothing_is_said(timeout: Any) -> None:
    with capture() as run:
        otel_ml.flush(timeout)
        otel_ml.init().flush(timeout=timeout)
        otel_ml.shutdown(timeout)

        assert run.notices == []


def test_a_run_that_is_finished_as_wandbs_are_has_ended() -> None:
    with capture():
        run = otel_ml.init()
        run.finish(exit_code=0, quiet=True)  # type: ignore[call-arg]

        assert not run.is_active


def _blocks(to: Any) -> None:
    with to.step(5, colour=1), to.timed("forward", colour=1):
        to.record("loss", 1.0)


def _by_hand(to: Any) -> None:
    timer = to.timer("forward", colour=1)
    timer.start()
    timer.stop()
    to.record("loss", 1.0, step=5)


UNKNOWN: dict[str, Callable[[Any], object]] = {
    "step and timed": _blocks,
    "set_step": lambda to: (to.set_step(5, colour=1), to.record("loss", 1.0)),
    "timed as a decorator": lambda to: to.timed(colour=1)(lambda: to.log({"loss": 1.0}, step=5))(),
    "timer": _by_hand,
    "a metric": lambda to: otel_ml.get_meter().metric("loss").record(1.0, step=5, colour=1),
    "a counter": lambda to: otel_ml.get_meter().create_counter("loss").add(1.0, colour=1),
    "consumed": lambda to: (to.consumed([], colour=1), to.record("loss", 1.0, step=5)),
    "context": lambda to: (to.context(colour=1), to.record("loss", 1.0, step=5)),
    "operation": lambda to: (otel_ml.operation("train", colour=1), to.record("loss", 1.0, step=5)),
}


@pytest.mark.parametrize("through", ["module", "run"])
@pytest.mark.parametrize("case", UNKNOWN)
def test_an_option_that_there_is_not_is_said_with_the_call_and_all_else_counts(case: str, through: str) -> None:
    with capture() as run:
        if case == "a counter":
            otel_ml.set_step(5)
        UNKNOWN[case](otel_ml if through == "module" else otel_ml.init())

        assert [point for point in recorded(run) if point[0] == "loss"] == LOSS_AT_5
        assert recorder.dropped == {}
        calls = [said.partition("(")[0] for said in run.notices if "unknown argument colour" in said]
        assert calls == {"step and timed": ["step", "timed"], "timed as a decorator": ["timed"]}.get(case) or [
            case.replace("a metric", "record").replace("a counter", "add")
        ]


def test_a_loop_may_be_told_where_it_begins_as_enumerate_is() -> None:
    with capture():
        assert [otel_ml.current_step() for _ in otel_ml.steps("ab", 60)] == [60, 61]


def test_a_meter_takes_what_opentelemetrys_takes() -> None:
    with capture() as run:
        otel_ml.set_step(5)
        otel_ml.get_meter("train", "1.0", None, {"library": "x"}).create_counter("n", "1", "count").add(1.0)

        assert recorded(run) == [("n", 5, 1.0)]


def test_an_axis_that_is_none_raises_nothing_where_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    axis: Any = ["rollout"]

    otel_ml.set_step(1, axis)
    otel_ml.set_step(1, axis=axis)


def test_each_value_of_a_metric_without_a_name_is_counted() -> None:
    with capture():
        metric = otel_ml.get_meter().metric("")
        recorder.dropped.clear()
        for _ in range(3):
            metric.record(1.0, {"split": "val"})

        assert recorder.dropped == {"bad_name": 3}


@pytest.mark.parametrize("through", ["module", "run"])
def test_what_runs_between_start_and_stop_of_a_timer_is_not_nested(through: str) -> None:
    with capture() as run:
        otel_ml.set_step(5)
        timer = (otel_ml if through == "module" else otel_ml.init()).timer("outer")
        timer.start()
        with otel_ml.timed("inner") as inner:
            assert inner.parent_id == 0
        timer.stop()

        assert sorted(point.name for point in run.points) == ["time/inner", "time/outer"]


def test_a_prefix_that_is_a_number_is_its_text_the_first_fold_of_a_loop_too():
    with capture() as run:
        for fold in range(2):
            otel_ml.log({"loss": 1.0}, step=0, prefix=fold)
            otel_ml.log({"accuracy": 1.0}, step=0, prefix=fold, attributes={"task": "math"})

        assert sorted({point.name for point in run.points}) == ["0/accuracy", "0/loss", "1/accuracy", "1/loss"]
