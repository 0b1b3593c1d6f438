"""What a program still asks of a run that has ended, and what it records into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml.testing import capture


def _in_a_block(run: otel_ml.Run) -> None:
    with run.step(3):
        pass


ASKS: dict[str, Callable[[otel_ml.Run], Any]] = {
    "current_step": lambda run: run.current_step(),
    "context": lambda run: run.context(),
    "set_step": lambda run: run.set_step(3),
    "step": _in_a_block,
    "define_metric": lambda run: run.define_metric("loss", reduce="max"),
}


@pytest.mark.parametrize("ask", ASKS)
def test_what_records_nothing_is_no_loss(ask):
    with capture():
        run = otel_ml.init()
        run.shutdown()
        ASKS[ask](run)

        assert AFTER_SHUTDOWN.values == 0


def test_its_context_is_one_that_can_travel_and_names_nothing():
    with capture():
        run = otel_ml.init()
        run.shutdown()
        context = run.context()

        assert isinstance(context, str)
        assert context.role is None


@pytest.mark.parametrize(
    ("record", "values"),
    [
        (lambda run: run.log({"a": 1.0, "b": 2.0, "c": 3.0}), 3),
        (lambda run: run.log(a=1.0, b=2.0), 2),
        (lambda run: run.record("a", 1.0, step=3), 1),
        (lambda run: run.log_text("note", "too late"), 1),
        (lambda run: run.log_params({"lr": 0.1}), 1),
        (lambda run: otel_ml.consumed(otel_ml.context()), 1),
        (lambda run: run.consumed(otel_ml.context()), 1),
    ],
)
def test_what_is_recorded_into_it_is_counted_by_value(record, values):
    with capture():
        run = otel_ml.init()
        run.shutdown()
        record(run)

        assert AFTER_SHUTDOWN.values == values
