"""What `OtelMLTiming` counts as waiting for data, and what as the work of other callbacks."""

from __future__ import annotations

import copy
import pickle
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from otel_ml.testing import Capture

if TYPE_CHECKING:
    from lightning import Trainer
    from lightning.pytorch.profilers import Profiler

WORKS_S = 0.05


@pytest.fixture
def line() -> ModuleType:
    from tests.unit.otel_ml.integrations import line

    return line


def total(capture: Capture, name: str) -> float:
    return sum(point.value for point in capture.points if point.name == name)


def fit(line: ModuleType, profiler: Profiler | None = None, **arguments: Any) -> Trainer:
    class Working(line.Callback):  # type: ignore[misc] # of a package without types
        """Works after each batch: a checkpoint, a table of samples, a tracker that waits for its server."""

        def on_train_batch_end(self, *args: Any) -> None:
            time.sleep(WORKS_S)  # what is measured

    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False),
        callbacks=[line.OtelMLTiming(), Working()],
        enable_checkpointing=False,
        profiler=profiler,
        **arguments,
    )
    fitted.fit(line.Line(), line.loader(), line.loader())
    return fitted


def test_the_time_for_data_is_what_lightnings_own_profiler_measures_of_it(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    profiler = line.profilers.SimpleProfiler()
    fit(line, profiler)

    theirs = sum(profiler.recorded_durations["[_TrainingEpochLoop].train_dataloader_next"])
    assert 0 < total(otel_ml_capture, "time/data") <= theirs


def test_what_other_callbacks_do_after_a_batch_is_a_timer_of_its_own_in_the_step_of_the_batch(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    fit(line)

    steps = {point.step: point.value for point in otel_ml_capture.points if point.name == "time/callbacks"}
    assert set(steps) == set(range(line.BATCHES))
    assert min(steps.values()) >= WORKS_S


@pytest.mark.parametrize("profiler", ["SimpleProfiler", "PassThroughProfiler"])
def test_the_profiler_of_the_program_is_told_everything_as_before(
    line: ModuleType, otel_ml_capture: Capture, profiler: str
) -> None:
    told: list[tuple[str, str]] = []

    class Telling(getattr(line.profilers, profiler)):  # type: ignore[misc]
        def start(self, action_name: str) -> None:
            told.append(("start", action_name))
            super().start(action_name)

        def stop(self, action_name: str) -> None:
            told.append(("stop", action_name))
            super().stop(action_name)

    fitted = fit(line, Telling())

    assert isinstance(fitted.profiler, Telling)
    fetched = [what for what, action in told if action == "[_TrainingEpochLoop].train_dataloader_next"]
    assert fetched == ["start", "stop"] * line.BATCHES


def test_a_second_training_of_a_trainer_counts_each_batch_once(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = fit(line)
    fitted.fit_loop.max_epochs = 2
    fitted.fit(line.Line(), line.loader())

    counts = [point.count for point in otel_ml_capture.points if point.name == "time/data"]
    assert sum(counts) == 2 * line.BATCHES


def test_a_batch_that_fails_in_a_callback_leaves_no_timer_open(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Failing(line.Callback):  # type: ignore[misc] # as above
        def on_train_batch_end(self, *args: Any) -> None:
            raise RuntimeError("disk full")

    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False),
        callbacks=[line.OtelMLTiming(), Failing()],
        enable_checkpointing=False,
    )
    with pytest.raises(RuntimeError, match="disk full"):
        fitted.fit(line.Line(), line.loader())

    assert [point.count for point in otel_ml_capture.points if point.name == "time/callbacks"] == [1]


def test_a_batch_that_the_module_skips_ends_with_its_epoch(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Skipping(line.Line):  # type: ignore[misc] # as above
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 2 else None  # Lightning's way to end the epoch

    class Working(line.Callback):  # type: ignore[misc] # as above
        def on_train_epoch_end(self, *args: Any) -> None:
            time.sleep(5 * WORKS_S)  # in no timer

    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False),
        callbacks=[line.OtelMLTiming(), Working()],
        enable_checkpointing=False,
    )
    fitted.fit_loop.max_epochs = 2
    fitted.fit(Skipping(), line.loader())

    for name in ("time/forward", "time/batch"):
        timed = {point.step: point for point in otel_ml_capture.points if point.name == name}
        assert timed[2].value < 5 * WORKS_S
        assert sum(point.count for point in timed.values()) == 6  # of each epoch two batches, and what began the third


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"]
)
def test_a_timed_trainers_parts_are_copied_and_pickled_and_the_copy_tells_its_own_timing(
    line: ModuleType, otel_ml_capture: Capture, copied: Any
) -> None:
    timing, profiler = line.OtelMLTiming(), line.profilers.SimpleProfiler()
    fitted = line.trainer(logger=False, callbacks=[timing], enable_checkpointing=False, profiler=profiler)
    fitted.fit(line.Line(), line.loader())
    timing._actions.fetched()

    twin, its_profiler = copied((timing, profiler))
    with its_profiler.profile("[_TrainingEpochLoop].train_dataloader_next"):
        pass
    assert twin._actions.fetched() > 0
    assert timing._actions.fetched() == 0
