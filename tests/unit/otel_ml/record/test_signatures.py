"""Recording calls publish their options by name, and take them by position, too: that is a third of a call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.record.meter import Metric, get_meter
from otel_ml.diagnostics.measure import Measures
from tests.e2e.jobs import ROOT
from tests.unit.otel_ml.record.decoded import points, sums

HOT = {
    "otel_ml/_internal/record/log.py": ("log", "record"),
    "otel_ml/_internal/record/meter.py": ("Metric.record",),
    "otel_ml/_internal/timers/manual_timer.py": ("timer",),
    "otel_ml/_internal/timers/timing.py": ("timed",),
    "otel_ml/_internal/steps/step.py": ("set_step", "step"),
    "otel_ml/diagnostics/measure.py": ("Measure.record", "Measures.record"),
}

BY_POSITION: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "log": (otel_ml.log, ["values", "step"]),
    "record": (otel_ml.record, ["name", "value", "step"]),
    "timed": (otel_ml.timed, ["name"]),
    "timer": (otel_ml.timer, ["name"]),
    "set_step": (otel_ml.set_step, ["index", "axis"]),
    "step": (otel_ml.step, ["index", "axis"]),
    "Metric.record": (Metric.record, ["self", "value", "attributes"]),
    "Measures.record": (Measures.record, ["self", "values"]),
}


def test_the_step_may_stand_where_wandb_log_and_mlflow_log_metrics_have_it(recorded):
    otel_ml.log({"loss": 1.0}, 7)
    otel_ml.record("accuracy", 2.0, 8)

    assert sums(recorded.collect()) == {("loss", 7): 1.0, ("accuracy", 8): 2.0}


def test_attributes_may_stand_where_opentelemetrys_record_has_them(recorded):
    get_meter().metric("loss").record(1.0, {"task": "math"})

    (point,) = points(recorded.collect(), "loss")
    assert point.attributes == {"task": "math"}


@pytest.mark.parametrize("call", BY_POSITION)
def test_a_signature_has_its_subject_by_position_and_its_options_by_name(call):
    function, expected = BY_POSITION[call]
    parameters = inspect.signature(function).parameters

    assert [name for name, one in parameters.items() if one.kind.name.startswith("POSITIONAL")] == expected
    assert {one.kind.name for name, one in parameters.items() if name not in expected} <= {
        "KEYWORD_ONLY",
        "VAR_KEYWORD",
    }


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in HOT.items() for name in names])
def test_no_function_that_records_has_a_keyword_only_argument(file, name):
    # CPython looks the default of each up by its name, at every call: ADR 0019.
    *owner, function = name.split(".")
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for one in owner:
        [found] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == one]
        body = [*found.body, *(node for part in found.body if isinstance(part, ast.If) for node in part.orelse)]
    implementation = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function][-1]

    assert implementation.args.kwonlyargs == []
