"""Megatron's `Timers`: documented behaviour and text, without a collective or a wait for the device."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

import otel_ml
from otel_ml.compat.megatron import DummyTimer, Timer, Timers
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings

SHORT_S = 0.003


@pytest.fixture(autouse=True)
def said_anew() -> None:
    forget_warnings()


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def ran(timers: Timers, name: str, seconds: float) -> None:
    timer = timers(name, log_level=0)
    timer.set_elapsed(seconds)


def test_wrong_arguments_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        Timers(3, "mean")

    assert len(error.value.problems) == 2


@pytest.mark.feature("M1", "yes", "a timer above the level is one shared object that does nothing")
@pytest.mark.parametrize(("level", "measured"), [(-1, []), (0, ["interval-time"]), (1, ["interval-time", "optimizer"])])
def test_timers_above_the_level_measure_nothing(level: int, measured: list[str]) -> None:
    timers = Timers(level, "minmax")
    made = {
        "interval-time": timers("interval-time", log_level=0),
        "optimizer": timers("optimizer", log_level=1),
        "forward-compute": timers("forward-compute"),
    }

    for timer in made.values():
        timer.start()
        timer.stop()

    assert [name for name, timer in made.items() if isinstance(timer, Timer)] == measured
    assert len({id(timer) for timer in made.values() if isinstance(timer, DummyTimer)}) <= 1
    assert list(timers.names) == measured


def test_a_timer_above_the_level_has_no_time_rather_than_none_taken(caplog: pytest.LogCaptureFixture) -> None:
    dummy = Timers(0, "max")("backward-compute", log_level=2)

    assert math.isnan(dummy.elapsed())
    assert math.isnan(dummy.active_time())
    assert caplog.text.count("has none, and NaN is returned") == 1


@pytest.mark.feature("M2", "yes", "accumulates, goes on while it is read, active time, durations from elsewhere")
def test_a_timer_accumulates_and_goes_on_while_it_is_read() -> None:
    timer = Timers(0, "max")("interval-time", log_level=0)

    timer.start()
    time.sleep(SHORT_S)  # what is measured
    first = timer.elapsed()
    time.sleep(SHORT_S)  # what is measured
    timer.stop()
    second = timer.elapsed(reset=False)

    assert first >= SHORT_S
    assert second >= SHORT_S
    assert timer.elapsed() == second
    assert timer.elapsed() == 0.0
    assert timer.active_time() == pytest.approx(first + second)


def test_a_duration_from_elsewhere_stands_in_place_of_what_ran() -> None:
    timer = Timers(0, "max")("interval-time", log_level=0)

    timer.set_elapsed(1.0)
    timer.set_elapsed(0.25)

    assert timer.elapsed() == 0.25
    timer.reset()
    assert (timer.elapsed(), timer.active_time()) == (0.0, 0.0)


def test_a_reset_stops_a_timer_and_what_ran_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timers(0, "max")("interval-time", log_level=0)

    timer.start()
    time.sleep(SHORT_S)  # what is measured
    timer.reset()
    began = time.perf_counter()
    timer.start()
    timer.stop()

    assert timer.elapsed() == timer.active_time() <= time.perf_counter() - began
    assert "started twice" not in caplog.text


def test_active_time_is_what_ran_until_the_last_stop_or_read_and_is_never_less_than_before() -> None:
    timer = Timers(0, "max")("interval-time", log_level=0)

    timer.start()
    assert timer.active_time() == 0.0
    read = timer.elapsed()
    assert timer.active_time() == read
    timer.reset()

    assert timer.active_time() == read


@pytest.mark.parametrize("normalizer", [0, -1.0, math.nan])
def test_a_normalizer_that_cannot_divide_is_said_and_the_times_are_not_divided(
    normalizer: float, captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    timers = Timers(0, "max")
    ran(timers, "interval-time", 0.5)

    assert "500.00" in (timers.get_all_timers_string(normalizer=normalizer) or "")
    timers.write(["interval-time"], None, 1, normalizer=normalizer)

    assert captured.values("interval-time-time") == [0.5]
    assert caplog.text.count(f"normalizer={normalizer!r}, expected a number above 0") == 1


def test_a_level_that_no_timer_can_have_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(Timers(2, "max")("optimizer", log_level=3), DummyTimer)

    assert "'optimizer' was given level 3 of 2" in caplog.text


def test_wrong_use_does_not_stop_training(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers(2, "max")
    timer = timers("optimizer", log_level=1)

    for _ in range(2):
        timer.stop()
    timer.start()
    timer.start()
    timer.stop()
    assert timers("optimizer", log_level=2) is timer

    assert timer.elapsed() >= 0
    assert [caplog.text.count(what) for what in ("stopped, and not", "started twice", "given level 2")] == [1, 1, 1]


@pytest.mark.feature("M3", "better", "nobody is stopped to measure; device time by events: timed(device='cuda')")
def test_a_barrier_waits_for_nobody_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timers(1, "max")("all-grads-sync", log_level=1)

    for _ in range(2):
        timer.start(barrier=True)
        timer.stop(barrier=True)
    timer.elapsed(barrier=True)

    assert caplog.text.count("waits neither") + caplog.text.count("wait neither") == 1


@pytest.mark.feature("M5", "yes", "`<name>-time`, to all backends of the run")
@pytest.mark.parametrize(
    ("option", "reduction"),
    [("max", "sum>max,count"), ("minmax", "sum>max,min,count"), ("all", "sum>max,min,count,rank")],
)
def test_written_timers_are_reduced_over_all_ranks_by_the_service(
    captured: Capture, option: str, reduction: str
) -> None:
    timers = Timers(1, option)
    ran(timers, "forward-backward", 3.0)

    timers.write(["forward-backward", "unknown"], None, 7, normalizer=2.0)

    [point] = captured.points
    assert (point.name, point.step, point.reduction, point.value) == ("forward-backward-time", 7, reduction, 1.5)


def test_who_reads_without_a_reset_begins_anew_where_another_resets(captured: Capture) -> None:
    timers = Timers(1, "max")
    seen = []
    for iteration in range(1, 4):
        ran(timers, "optimizer", 0.5)
        ran(timers, "save-checkpoint", 2.0)

        timers.write(["optimizer"], None, iteration, reset=False)
        seen.append(timers("save-checkpoint", log_level=0).elapsed(reset=False))
        timers.get_all_timers_string(["optimizer", "save-checkpoint"])

    assert captured.values("optimizer-time") == [0.5] * 3
    assert seen == [2.0] * 3


def test_a_timer_that_was_asked_for_above_the_level_may_be_asked_for_below_it() -> None:
    timers = Timers(0, "max")

    assert isinstance(timers("a"), DummyTimer)
    assert isinstance(timers("a", log_level=0), Timer)


@pytest.mark.feature("M21", "better", "one call is every backend; a second one for W&B or MLflow is not a second value")
def test_writing_to_each_backend_in_turn_records_once(captured: Capture) -> None:
    timers = Timers(1, "max")
    ran(timers, "optimizer", 1.0)

    timers.write(["optimizer"], None, 3)
    timers.write_to_wandb(["optimizer"], None, 3)
    timers.write_to_mlflow(["optimizer"], None, 3)

    assert [(point.count, point.value) for point in captured.points] == [(1, 1.0)]


def test_a_tracker_that_is_written_every_iteration_takes_nothing_from_the_report(captured: Capture) -> None:
    timers, timer = Timers(1, "max"), None
    for iteration in range(1, 5):
        timer = timers("optimizer", log_level=1)
        timer._total += 0.5  # half a second ran
        timers.write(["optimizer"], None, iteration)

    text = timers.get_all_timers_string(["optimizer"], normalizer=4)

    assert captured.values("optimizer-time") == [0.5] * 4
    assert text is not None
    assert text.endswith(": 500.00")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0])
def test_a_timer_that_was_given_an_odd_duration_measures_again_after_a_reset(odd: float) -> None:
    timer = Timers(0, "max")("setup", log_level=0)
    timer.set_elapsed(odd)
    timer.reset()
    assert timer.elapsed(reset=False) == 0.0

    timer.set_elapsed(odd)
    timer.set_elapsed(2.0)
    assert timer.elapsed() == 2.0


def test_a_duration_that_was_given_is_what_is_read_also_where_it_is_below_zero() -> None:
    timer = Timers(2, "max")("clock-offset")
    timer.set_elapsed(-3.5)

    assert [timer.elapsed(reset=False), timer.elapsed(), timer.elapsed()] == [-3.5, -3.5, 0.0]


def test_timers_are_written_at_the_current_step_where_no_iteration_is_given(captured: Capture) -> None:
    timers = Timers(2, "max")
    for step, seconds in enumerate((0.5, 0.75)):
        otel_ml.set_step(step)
        ran(timers, "optimizer", seconds)
        timers.write(["optimizer"], None, None)  # type: ignore[arg-type]

    assert captured.values("optimizer-time") == [0.5, 0.75]


@pytest.mark.parametrize("normalizer", [None, "2"])
def test_a_normalizer_that_is_no_number_is_said_and_the_times_are_not_divided(
    normalizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    timers = Timers(2, "max")
    ran(timers, "optimizer", 0.5)

    text = timers.get_all_timers_string(normalizer=normalizer)

    assert text is not None
    assert text.endswith(": 500.00")
    assert f"normalizer={normalizer!r}" in caplog.text


@pytest.mark.parametrize("value", [None, "1"])
def test_a_duration_that_is_no_number_is_said_and_the_timer_keeps_its_own(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    timer = Timers(2, "max")("optimizer")
    timer.set_elapsed(0.5)
    timer.set_elapsed(value)
    timer.start()
    timer.stop()

    assert timer.elapsed() == pytest.approx(0.5, abs=0.2)
    assert f"set_elapsed({value!r})" in caplog.text
