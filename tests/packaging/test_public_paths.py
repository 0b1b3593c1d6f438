"""What users see of a name, in `help()`, a traceback or a pickle, is where they find it: nothing internal is public."""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import otel_ml
import otel_ml.types
from otel_ml.testing import capture

CALLS = [name for name in otel_ml.__all__ if inspect.isroutine(getattr(otel_ml, name))]

RETURNED: dict[str, Callable[[], Any]] = {
    "init": otel_ml.init,
    "step": lambda: otel_ml.step(1),
    "steps": lambda: otel_ml.steps([1]),
    "timed": lambda: otel_ml.timed("x"),
    "timer": lambda: otel_ml.timer("x"),
    "operation": lambda: otel_ml.operation("x"),
    "get_meter": otel_ml.get_meter,
    "metric": lambda: otel_ml.get_meter().metric("x"),
    "create_counter": lambda: otel_ml.get_meter().create_counter("c"),
    "create_gauge": lambda: otel_ml.get_meter().create_gauge("g"),
    "create_histogram": lambda: otel_ml.get_meter().create_histogram("h"),
    "create_up_down_counter": lambda: otel_ml.get_meter().create_up_down_counter("u"),
    "run.timed": lambda: otel_ml.init().timed("x"),
    "run.timer": lambda: otel_ml.init().timer("x"),
}


def found_by(path: str, name: str) -> Any:
    found: Any = importlib.import_module(path)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", otel_ml.__all__)
def test_a_public_name_is_where_it_says(name: str) -> None:
    found = getattr(otel_ml, name)

    assert "_internal" not in found.__module__
    assert found_by(found.__module__, found.__qualname__) is found
    assert pickle.loads(pickle.dumps(found)) is found


@pytest.mark.parametrize("call", RETURNED)
def test_what_a_call_returns_is_of_a_class_with_a_public_path(call: str) -> None:
    with capture():
        kind = type(RETURNED[call]())

    assert "_internal" not in kind.__module__
    assert found_by(kind.__module__, kind.__qualname__) is kind


@pytest.mark.parametrize("name", CALLS)
def test_every_public_call_has_a_signature_with_its_options_by_name(name: str) -> None:
    """The first three say what and where; an axis is one of them where a step is all there is."""
    parameters = inspect.signature(getattr(otel_ml, name)).parameters.values()
    by_position = [one.name for one in parameters if one.kind.name.startswith("POSITIONAL")]

    assert len(by_position) <= 3 or name == "get_meter"  # has OpenTelemetry's
    assert not {"prefix", "reduce", "within", "over", "weight", "level", "span", "device", "caption"} & {*by_position}


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name.startswith("log_") or name in {"log", "record", "event"}]
)
def test_what_records_has_its_subject_then_step_and_axis_then_the_rest(name: str) -> None:
    parameters = list(inspect.signature(getattr(otel_ml, name)).parameters.values())
    names = [one.name for one in parameters]
    if "step" not in names:
        assert name == "log_params"
        return
    at = names.index("step")

    assert names[at + 1] == "axis"
    assert {one.kind.name for one in parameters[:at]} == {"POSITIONAL_OR_KEYWORD"}
    assert {one.kind.name for one in parameters[at + 1 :]} <= {"KEYWORD_ONLY", "VAR_KEYWORD"}
