"""Recording calls take their options by position, too: as other loggers do, and because it is a third of a call."""

from __future__ import annotations

import inspect

import pytest

from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import Metric, get_meter
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.timing import timed, timer
from otel_ml.diagnostics.measure import Measure, Measures
from tests.unit.otel_ml.record.decoded import points, sums


def test_the_step_may_stand_where_wandb_log_and_mlflow_log_metrics_have_it(recorded):
    log({"loss": 1.0}, 7)
    record("accuracy", 2.0, 8)

    assert sums(recorded.collect()) == {("loss", 7): 1.0, ("accuracy", 8): 2.0}


def test_attributes_may_stand_where_opentelemetrys_record_has_them(recorded):
    get_meter().metric("loss").record(1.0, {"task": "math"})

    (point,) = points(recorded.collect(), "loss")
    assert point.attributes == {"task": "math"}


@pytest.mark.parametrize(
    "call", [log, record, Metric.record, timed, timer, set_step, step, Measure.record, Measures.record]
)
def test_no_recording_call_has_a_keyword_only_argument(call):
    # CPython looks the default of each up by its name, at every call: ADR 0019.
    kinds = {parameter.kind for parameter in inspect.signature(call).parameters.values()}
    assert inspect.Parameter.KEYWORD_ONLY not in kinds
