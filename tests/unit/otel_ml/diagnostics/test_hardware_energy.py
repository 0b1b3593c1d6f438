"""Energy per step and run, out of the devices' counters, without waiting for them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import otel_ml
from otel_ml.diagnostics import hardware
from otel_ml.diagnostics.hardware.energy_readings import Ledger
from otel_ml.testing import Capture, capture, otel_ml_capture
from tests.fakes.nvml import FakeNvml, load
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    load()
    fake = FakeNvml(tmp_path / "nvml")
    monkeypatch.setenv("FAKE_NVML", str(fake.folder))
    return fake


@pytest.mark.feature("M10", "better", "exact to the counter, at the step, without waiting for the device")
def test_the_energy_of_a_step_is_what_the_counters_of_the_ranks_gpus_grew(
    gpus: FakeNvml, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000001")

    with hardware.Energy() as energy:
        otel_ml.set_step(0)
        energy.lap()
        eventually(lambda: energy.total == 0.0)
        gpus.device(0, energy=9_000_000)  # not of this rank
        gpus.device(1, energy=1_000_000 + 7_000)  # mJ
        otel_ml.set_step(1)
        energy.lap()

    steps = {p.step: p for p in otel_ml_capture.points if p.name == "hw.energy.step"}
    assert steps[0].value == 0.0
    assert 0 < steps[1].value <= 7.0  # the counter is read right after the lap; what is between is the next one's
    assert steps[1].reduction == "sum>sum,mean"
    power = next(p for p in otel_ml_capture.points if p.name == "hw.power.step" and p.step == 1)
    assert power.value > 0
    (summary,) = [event.body for event in otel_ml_capture.events if event.kind == "ml.summary"]
    assert summary == {"hw.energy.total/rank_0": pytest.approx(7.0)}


def test_what_is_used_between_pause_and_resume_does_not_count() -> None:
    ledger = Ledger()
    ledger.advance(0.0, 0.0, 100.0)
    ledger.is_counting = True
    ledger.advance(1.0, 1.0, 110.0)
    ledger.is_counting = False
    ledger.advance(3.0, 5.0, 150.0)  # read at 5 s: half of 40 J was used until 3 s
    ledger.is_counting = True
    ledger.advance(6.0, 6.0, 157.0)

    assert ledger.lap() == (10.0 + 27.0, 1.0 + 3.0)
    assert ledger.total == 37.0


def test_a_lap_that_ends_before_the_counter_was_last_read_is_unknown_and_takes_no_seconds_back() -> None:
    ledger = Ledger()
    ledger.advance(0.0, 0.0, 100.0)
    ledger.is_counting = True
    ledger.advance(1.0, 4.0, 50.0)  # the counter began anew, and was read long after the mark
    ledger.lap()
    ledger.advance(2.0, 4.0, 50.0)  # a mark before that reading

    assert ledger.lap() == (None, 0.0)


def test_a_counter_that_began_anew_counts_from_its_new_beginning() -> None:
    ledger = Ledger()
    ledger.is_counting = True
    for second, joules in ((0.0, 100.0), (1.0, 130.0), (2.0, 4.0), (3.0, 11.0)):
        ledger.advance(second, second, joules)
        lap = ledger.lap()

    assert lap == (7.0, 1.0)
    assert ledger.total == 30.0 + 7.0


def test_a_counter_that_is_silent_leaves_the_lap_unknown_and_the_next_whole_one_known() -> None:
    ledger = Ledger()
    ledger.is_counting = True
    laps = []
    for second, joules in ((0.0, 100.0), (1.0, None), (2.0, 130.0), (3.0, 135.0)):
        ledger.advance(second, second, joules)
        laps.append(ledger.lap())

    assert laps == [(None, 0.0), (None, 0.0), (None, 0.0), (5.0, 1.0)]


def has_read(energy: hardware.Energy, joules: float) -> bool:
    """Let the counters be read; return whether (nearly) all that they grew by is counted, or left out."""
    if energy._marks.empty():  # one after the other: a thread that is late would never catch up
        energy.lap()
    at = energy._ledger._at
    return at is not None and at[1] > 2_000 + joules - 0.01


def test_paused_energy_is_left_out(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.Energy() as energy:
        with energy.paused():
            eventually(lambda: not energy._ledger.is_counting)
            gpus.device(0, energy=1_000_000 + 5_000)
            eventually(lambda: has_read(energy, 5.0))
        eventually(lambda: energy._ledger.is_counting)
        gpus.device(1, energy=1_000_000 + 3_000)

    assert energy.total == pytest.approx(3.0, abs=0.5)


def test_the_summary_of_a_run_has_no_energy_of_the_run_before_it(gpus: FakeNvml) -> None:
    def joules(captured: Capture) -> list[float]:
        return [point.value for point in captured.points if point.name == "hw.energy"]

    with ExitStack() as stack:
        with capture() as first:  # before the monitor, whose first measurement would begin a run of its own
            monitor = stack.enter_context(hardware.start_monitor(0.02, sources="gpu"))
            eventually(lambda: joules(first))
            gpus.device(0, energy=1_000_000 + 50_000)
            eventually(lambda: sum(joules(first)) == 50.0)
        with capture() as second:
            eventually(lambda: joules(second))
            gpus.device(0, energy=1_000_000 + 53_000)
            eventually(lambda: sum(joules(second)) == 3.0)
            monitor.stop()

    (summary,) = [event.body for event in second.events if event.kind == "ml.summary"]
    assert sum(summary.values()) == 3.0


def test_a_pause_lasts_until_the_end_of_the_outermost_block(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.Energy() as energy:
        with energy.paused():  # an evaluation
            with energy.paused():  # and in it a checkpoint
                eventually(lambda: not energy._ledger.is_counting)
            gpus.device(0, energy=1_000_000 + 5_000)
            eventually(lambda: has_read(energy, 5.0))
        eventually(lambda: energy._ledger.is_counting)
        gpus.device(1, energy=1_000_000 + 3_000)

    assert energy.total == pytest.approx(3.0, abs=0.5)


def test_a_block_inside_of_a_pause_does_not_end_it(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.Energy() as energy:
        energy.pause()
        with energy.paused():
            eventually(lambda: not energy._ledger.is_counting)
        gpus.device(0, energy=1_000_000 + 5_000)

    assert energy.total == pytest.approx(0.0, abs=0.5)


def test_energy_that_was_stopped_counts_the_next_run_anew(gpus: FakeNvml) -> None:
    def spend(joules: int) -> Capture:
        with capture() as captured, energy:
            otel_ml.set_step(0)
            gpus.device(0, energy=1_000_000 + joules * 1000)
            energy.lap()
            eventually(lambda: captured.points)
        gpus.device(0, energy=1_000_000)
        return captured

    energy = hardware.Energy()
    for joules in (50, 3):
        captured = spend(joules)

        (summary,) = [event.body for event in captured.events if event.kind == "ml.summary"]
        assert summary == {"hw.energy.total/rank_0": pytest.approx(joules)}
        assert energy.total == pytest.approx(joules)


@pytest.mark.feature("I15", "yes", "grams of CO₂ beside the joules, where the intensity is given")
def test_carbon_is_energy_times_the_intensity_that_was_given(gpus: FakeNvml, otel_ml_capture: Capture) -> None:
    with hardware.Energy(grams_per_kwh=400.0):
        gpus.device(0, energy=1_000_000 + 3_600_000_000)  # a kilowatt-hour, in mJ

    (summary,) = [event.body for event in otel_ml_capture.events if event.kind == "ml.summary"]
    assert summary["hw.carbon.total/rank_0"] == pytest.approx(400.0)


def test_energy_that_was_never_started_does_nothing(otel_ml_capture: Capture) -> None:
    energy = hardware.Energy()
    energy.lap()
    energy.stop()

    assert energy.total is None
    assert otel_ml_capture.points == []


def test_without_a_counter_energy_is_absent_and_training_goes_on(otel_ml_capture: Capture) -> None:
    load()  # and no driver

    with hardware.Energy() as energy:
        for step in range(3):
            otel_ml.log({"loss": 1.0}, step=step)
            energy.lap()

    assert {point.name for point in otel_ml_capture.points} == {"loss"}
    assert energy.total is None
    (notice,) = otel_ml_capture.notices
    assert notice.startswith("No energy is measured: NVML: Driver Not Loaded")


def test_a_driver_that_goes_away_ends_the_counting_and_keeps_what_was_counted(
    gpus: FakeNvml, otel_ml_capture: Capture
) -> None:
    with hardware.Energy() as energy:
        otel_ml.set_step(0)
        gpus.device(0, energy=1_000_000 + 4_000)
        energy.lap()
        eventually(lambda: energy.total)
        counted = energy.total
        gpus.lose_driver(9)
        otel_ml.set_step(1)
        energy.lap()
        eventually(lambda: otel_ml_capture.points)

    assert energy.total == counted
    assert {p.step for p in otel_ml_capture.points if p.name == "hw.energy.step"} == {0}
    assert any(notice.startswith("No energy is measured from now on") for notice in otel_ml_capture.notices)


def test_steps_close_without_their_energy_while_the_driver_hangs(
    gpus: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that fell off the bus blocks who asks for it; the rows of all ranks must not wait for it."""
    monkeypatch.setattr("otel_ml.diagnostics.hardware.energy.ANSWER_TIMEOUT", 0.1, raising=False)
    counter = gpus.folder / "0.energy"
    with otel_ml.init("hang", exporters="jsonl") as run, hardware.Energy() as energy:
        counter.unlink()
        os.mkfifo(counter)  # to open it waits for a writer

        def goes_on(step: int) -> bool:
            otel_ml.set_step(step)
            otel_ml.log({"loss": 1.0})
            energy.lap()
            return "loss" in rows(run)

        steps = itertools.count()
        try:
            eventually(lambda: goes_on(next(steps)))
        finally:
            with counter.open("w") as writer:
                writer.write("1000000")
            gpus.device(0, energy=1_000_000)


def rows(run: otel_ml.Run) -> Collection[str]:
    try:
        return otel_ml.read(run)
    except otel_ml.OtelMLError:  # nothing is written yet
        return ()


@example([(1.5, 0.0625, 1.9), (1.0, 0.0, 512.0)]).via("rounded up, so that an idle counter seemed to go back")
@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 3), st.floats(0, 1000)), min_size=1, max_size=30))
def test_laps_add_up_to_what_the_counter_grew(marks: list[tuple[float, float, float]]) -> None:
    """Whenever the counter is read after a mark, no joule is lost or counted twice."""
    ledger = Ledger()
    ledger.advance(0.0, 0.0, 100.0)
    ledger.is_counting = True
    moment, now, joules, laps = 0.0, 0.0, 100.0, 0.0
    for pause, delay, grown in marks:
        moment = max(moment, now) + pause
        now, joules = moment + delay, joules + grown
        ledger.advance(moment, now, joules)
        lap, _ = ledger.lap()
        assert lap is not None
        laps += lap
    ledger.advance(now, now, joules)
    rest, _ = ledger.lap()

    assert rest is not None
    assert laps + rest == pytest.approx(joules - 100.0, abs=1e-6)
    assert ledger.total == pytest.approx(joules - 100.0, abs=1e-6)
