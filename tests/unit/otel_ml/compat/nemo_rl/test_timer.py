"""NeMo RL's timers."""

from __future__ import annotations

import logging
import math
import pickle
import re
import socket
import threading
import time

import pytest

import otel_ml
from otel_ml.compat.nemo_rl import ThreadSafeTimer, Timer
from otel_ml.testing import Capture


def filled(*samples: float, label: str = "generation") -> Timer:
    timer = Timer()
    for sample in samples:
        timer.record(label, sample)
    return timer


@pytest.mark.feature("N12", "yes", "start/stop, blocks and durations measured elsewhere")
def test_every_way_to_measure_adds_a_duration() -> None:
    timer = Timer()

    timer.start("a")
    stopped = timer.stop("a")
    with timer.time("a"):
        pass
    timer.record("a", 2.5)

    elapsed = timer.get_elapsed("a")
    assert elapsed[0] == stopped >= 0
    assert elapsed[2] == timer.get_latest_elapsed("a") == 2.5
    assert timer.reduce("a", "count") == 3


def test_a_block_that_raises_is_measured_and_its_error_goes_on() -> None:
    timer = Timer()

    with pytest.raises(RuntimeError, match="no memory"), timer.time("a"):
        raise RuntimeError("no memory")

    assert len(timer.get_elapsed("a")) == 1
    timer.start("a")


def test_starting_twice_and_stopping_what_does_not_run_are_errors() -> None:
    timer = Timer()
    timer.start("a")

    with pytest.raises(ValueError, match="'a' is running already"):
        timer.start("a")
    with pytest.raises(ValueError, match="'a' is running already"), timer.time("a"):
        pass
    with pytest.raises(ValueError, match="'b' is not running"):
        timer.stop("b")

    timer.stop("a")
    assert len(timer.get_elapsed("a")) == 1


@pytest.mark.feature("N12", "better", "marks are events of the run, too")
def test_marks_are_kept_with_what_was_given_and_are_events_of_the_run(otel_ml_capture: Capture) -> None:
    timer = Timer()
    before = time.time()

    first = timer.mark("worker_crashed", {"worker": 3})
    second = timer.mark("worker_crashed")
    other = timer.mark("restored")

    assert before <= first <= second <= other <= time.time()
    assert timer.get_markers("worker_crashed") == {"worker_crashed": [(first, {"worker": 3}), (second, None)]}
    assert set(timer.get_markers()) == {"worker_crashed", "restored"}
    assert timer.get_markers("never") == {"never": []}
    events = [event.attributes for event in otel_ml_capture.events if event.kind == "timer.mark"]
    assert events[0] == {"label": "worker_crashed", "worker": 3}


@pytest.mark.feature("N13", "yes", "mean, median, min, max, std, sum, count")
@pytest.mark.parametrize(
    ("operation", "expected"),
    [("mean", 2.5), ("median", 2.5), ("min", 1.0), ("max", 4.0), ("std", 1.118033988749895), ("sum", 10.0),
     ("count", 4)],
)  # fmt: skip
def test_durations_are_reduced(operation: str, expected: float) -> None:
    assert filled(1.0, 2.0, 3.0, 4.0).reduce("generation", operation) == pytest.approx(expected)


@pytest.mark.parametrize("operation", ["mean", "median", "min", "max", "sum"])
@pytest.mark.parametrize("samples", [(1.0, math.nan), (math.nan, 1.0)])
def test_a_duration_that_is_nan_is_one_wherever_it_stands(operation: str, samples: tuple[float, ...]) -> None:
    timer = filled(*samples)

    assert math.isnan(timer.reduce("generation", operation))
    assert math.isnan(timer.get_timing_metrics(operation)["generation"])  # type: ignore[arg-type]


class PrintingTimer(Timer):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def start(self, label: str, should_log: bool = True) -> None:
        self.seen.append(f"start {label}")
        super().start(label, should_log)

    def stop(self, label: str, should_log: bool = True) -> float:
        self.seen.append(f"stop {label}")
        return super().stop(label, should_log)


def test_a_block_of_a_timer_that_adds_to_start_and_stop_calls_both_as_nemo_rls_does() -> None:
    timer = PrintingTimer()

    with pytest.raises(KeyError), timer.time("refit"):
        raise KeyError
    with timer.time("refit"):
        pass

    assert timer.seen == ["start refit", "stop refit"] * 2
    assert timer.reduce("refit", "count") == 2


def test_what_cannot_be_reduced_is_said() -> None:
    with pytest.raises(ValueError, match=r"operation='average'.*mean, median"):
        filled(1.0).reduce("generation", "average")
    with pytest.raises(KeyError, match="'refit'"):
        filled(1.0).reduce("refit")
    with pytest.raises(KeyError, match="'refit'"):
        filled(1.0).get_latest_elapsed("refit")


@pytest.mark.feature("N13", "yes", "one operation for all labels, or one for each")
def test_all_labels_are_reduced_by_one_operation_or_each_by_its_own(caplog: pytest.LogCaptureFixture) -> None:
    timer = filled(1.0, 3.0)
    timer.record("refit", 5.0)

    assert timer.get_timing_metrics() == {"generation": 2.0, "refit": 5.0}
    assert timer.get_timing_metrics("sum") == {"generation": 4.0, "refit": 5.0}
    assert timer.get_timing_metrics({"generation": "max"}) == {"generation": 3.0, "refit": [5.0]}
    assert timer.get_timing_metrics({"never": "max"})["refit"] == [5.0]
    assert not caplog.records
    assert timer.get_timing_metrics("total") == {"generation": [1.0, 3.0], "refit": [5.0]}
    assert "get_timing_metrics('total')" in caplog.text


def test_a_driver_sums_the_labels_that_were_measured_as_nemo_rls_own_does() -> None:
    timer = filled(1.0, 2.0, label="init/total")
    timer.record("idle/validation", 5.0)
    timer.drain("idle/validation")

    labels = ["init/total", "idle/buffer_starvation", "idle/validation"]
    assert {label: timer.reduce(label, "sum") for label in labels if label in timer._timers} == {"init/total": 3.0}


def test_what_a_timer_returns_is_not_its_own_list() -> None:
    timer = filled(1.0)

    timer.get_elapsed("generation").append(9.0)

    assert timer.get_elapsed("generation") == [1.0]


@pytest.mark.feature("N13", "yes", "reset of one label or of all")
def test_a_label_or_all_can_be_forgotten() -> None:
    timer = filled(1.0, 2.0)
    timer.record("refit", 5.0)
    timer.mark("refit")
    timer.start("refit")

    timer.reset("refit")
    assert timer.get_timing_metrics("sum") == {"generation": 3.0}
    assert timer.get_markers("refit") == {"refit": []}
    timer.start("refit")

    assert timer.drain("generation") == 3.0
    assert timer.drain("generation") == 0.0
    timer.reset()
    assert timer.get_timing_metrics() == {}
    timer.start("refit")


@pytest.mark.feature("N14", "better", "several threads measure blocks of one label at once")
@pytest.mark.parametrize("kind", [Timer, ThreadSafeTimer])
def test_threads_share_a_timer_and_lose_nothing(kind: type[Timer]) -> None:
    timer, together = kind(), threading.Barrier(4)
    drained: list[float] = []

    def measure() -> None:
        together.wait()
        for _ in range(500):
            with timer.time("block"):
                timer.record("unit", 1.0)
            drained.append(timer.drain("unit"))

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert timer.reduce("block", "count") == 2000
    assert sum(drained) + timer.drain("unit") == 2000.0


@pytest.mark.feature("N15", "yes", "context fields and UTC stamps in every debug line")
def test_debug_lines_say_who_when_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timer({"rank": 3, "worker": "collector", "hostname": "gpu-05"})

    with caplog.at_level(logging.DEBUG, logger="otel_ml.compat.nemo_rl.timer"):
        with timer.time("generation"):
            pass
        timer.record("refit", 0.25)
        timer.mark("crashed", {"worker": 3})
        timer.mark("restored")
        timer.start("quiet", should_log=False)
        timer.stop("quiet", should_log=False)

    stamp = r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    who = re.escape("[rank=3 worker=collector hostname=gpu-05] ")
    expected = ["generation start", r"generation end elapsed=\d\.\d{4}s", r"refit record elapsed=0\.2500s",
                r"crashed mark meta=\{'worker': 3\}", "restored mark"]  # fmt: skip
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(expected)
    for line, event in zip(lines, expected, strict=True):
        assert re.fullmatch(f"{who}{event} {stamp}", line), line


def test_the_host_is_named_where_nobody_says_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="otel_ml.compat.nemo_rl.timer"):
        Timer({"rank": 0}).record("a", 1.0)

    assert caplog.messages[0].startswith(f"[rank=0 hostname={socket.gethostname()}] a record")


@pytest.mark.feature("N12", "better", "every duration is also a timer of the run, with its span")
def test_every_duration_is_a_timer_of_the_run_at_the_step_then_current(otel_ml_capture: Capture) -> None:
    timer = Timer()
    otel_ml.set_step(7)

    with timer.time("generation"):
        timer.start("refit")
        timer.stop("refit")
    timer.record("generation", 2.0)

    points = {point.name: point for point in otel_ml_capture.points}
    assert {name: point.step for name, point in points.items()} == {"time/generation": 7, "time/refit": 7}
    assert points["time/generation"].count == 2
    assert points["time/generation"].value >= timer.reduce("generation", "sum") > 2.0
    assert points["time/refit"].value >= timer.reduce("refit", "sum") > 0.0
    assert {point.reduction for point in points.values()} == {"sum>max"}
    assert sorted(otel_ml_capture.spans) == ["generation", "refit"]
    assert not otel_ml_capture.notices


def test_a_worker_sends_its_timer_to_its_driver() -> None:
    timer = filled(1.0, 3.0)
    timer.start("still running")

    arrived = pickle.loads(pickle.dumps(timer))

    arrived.record("generation", 2.0)
    assert arrived.reduce("generation", "max") == 3.0
    assert arrived.reduce("generation", "count") == 3
    assert timer.reduce("generation", "count") == 2
    with pytest.raises(ValueError, match="not running"):
        arrived.stop("still running")
    assert timer.stop("still running") >= 0
