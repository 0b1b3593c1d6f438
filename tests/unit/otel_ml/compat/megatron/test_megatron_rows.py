"""A row of `TrainingLog`: held against what Megatron Bridge's own `training_log` writes for the same calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from otel_ml.compat.megatron import LoggerConfig, TrainingLog
from otel_ml.testing import Capture, Point, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def the_log(**options: Any) -> TrainingLog:
    seconds = count()
    return TrainingLog(LoggerConfig(**options), seq_length=8, write=lambda _: None, now=lambda: float(next(seconds)))


def points_of(captured: Capture, name: str) -> list[Point]:
    return [point for point in captured.points if point.name == name]


def test_of_an_iteration_that_is_done_again_the_last_values_count(captured: Capture) -> None:
    log = the_log()

    for loss in (8.0, 2.0):
        log.log(3, {"lm loss": loss}, learning_rate=loss, global_batch_size=4, consumed_samples=12)
        log.validation(3, {"lm loss": loss}, consumed_samples=12)

    for name in ("lm_loss", "learning-rate", "lm_loss_validation"):
        assert {(point.axis, point.step, point.value) for point in points_of(captured, name)} == {
            ("step", 3, 2.0),
            ("samples", 12, 2.0),
        }
    assert {point.value for point in points_of(captured, "batch-size")} == {4.0}


def test_the_operations_of_a_row_are_recorded_where_throughput_is_to_be_in_the_backends(captured: Capture) -> None:
    log = the_log(log_throughput_to_tensorboard=True, throughput_window_size=1)

    log.log(1, {"lm loss": 1.0}, flops=2e12, consumed_samples=4, global_batch_size=4, micro_batch_size=2)

    assert captured.values("throughput/tflops/device") == [2.0]
    assert captured.values("throughput/micro_batch_size") == [2.0]
    assert captured.values("throughput/global_batch_size") == [4.0]


def test_a_micro_batch_that_is_not_asked_for_is_not_recorded(captured: Capture) -> None:
    the_log().log(1, {"lm loss": 1.0}, consumed_samples=4, micro_batch_size=2)

    assert not captured.values("throughput/micro_batch_size")


def test_validation_stands_against_samples_too_with_its_perplexity(captured: Capture) -> None:
    log = the_log(log_validation_ppl_to_tensorboard=True)

    log.validation(2, {"lm loss": 0.0}, consumed_samples=64)
    log.validation(4, {"lm loss": 0.0})

    for name, value in (("lm_loss_validation", 0.0), ("lm_loss_validation_ppl", 1.0)):
        assert [(point.axis, point.step, point.value) for point in points_of(captured, name)] == [
            ("step", 2, value),
            ("samples", 64, value),
            ("step", 4, value),
        ]
