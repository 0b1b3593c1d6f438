"""What torchtitan's structured logger says, with the fields that torchtitan 0.3.0 gives its lines, is in the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import otel_ml
from otel_ml.integrations.torchtitan import register_handler
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@pytest.fixture
def structured_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("torchtitan.structured_logger")
    logger.setLevel(logging.INFO)
    register_handler(structured_logger=logger, rank=0, source="trainer", output_dir="outputs")
    yield logger
    logger.handlers.clear()


def say(logger: logging.Logger, kind: str, step: int | None = None, **fields: object) -> None:
    logger.info(kind, extra={"log_type_name": kind, "step": step, **fields})


def test_spans_are_timers_and_scalars_metrics_at_torchtitans_step(
    captured: Capture, structured_logger: logging.Logger
) -> None:
    for step in (7, 8):
        say(structured_logger, "step_start", step)
        say(structured_logger, "optim_start", step)
        say(structured_logger, "optim_error", step)
        say(structured_logger, "optim_end", step, value=1.5)
        say(structured_logger, "metric_value", step, event_name="valid_tokens", value=100 + step)
        say(structured_logger, "step_end", step, value=2.5)
        structured_logger.info("no event")

    timed = {(point.name, point.step): point.count for point in captured.points if point.name.startswith("time/")}
    assert timed == {("time/step", 7): 1, ("time/optim", 7): 1, ("time/step", 8): 1, ("time/optim", 8): 1}
    assert captured.values("valid_tokens") == [107.0, 108.0]
    assert captured.notices == []


def test_what_comes_before_the_first_step_is_left_out(captured: Capture, structured_logger: logging.Logger) -> None:
    say(structured_logger, "checkpoint_load_start")
    say(structured_logger, "metric_value", None, event_name="early", value=1)
    say(structured_logger, "checkpoint_load_end", value=3.0)
    otel_ml.log({"loss": 0.5}, step=1)

    assert {point.name for point in captured.points} == {"loss"}


def test_a_span_that_began_before_the_first_step_is_no_mistake(
    captured: Capture, structured_logger: logging.Logger
) -> None:
    say(structured_logger, "training_start")
    say(structured_logger, "step_start", 1)
    say(structured_logger, "step_end", 1, value=2.5)
    say(structured_logger, "training_end", 1, value=9.0)

    assert {point.name for point in captured.points} == {"time/step"}
    assert captured.notices == []
