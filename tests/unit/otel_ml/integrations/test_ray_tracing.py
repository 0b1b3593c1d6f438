"""Ray's tracing in calls of methods that take no trace context; in a real cluster it is in `tests/e2e`."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest
import ray
from ray.actor import signature as rays
from ray.util.tracing import tracing_helper

from otel_ml.integrations import ray_tracing

CONTEXT = {"traceparent": "00-1-2-01"}


@pytest.fixture(autouse=True)
def switched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is switched on."""
    done: list[str] = []
    monkeypatch.setattr(tracing_helper, "_enable_tracing", lambda: done.append("on"))  # Ray's: no way back
    monkeypatch.setattr(rays, "validate_args", rays.validate_args)
    return done


def parameters_of(function: Any) -> list[Parameter]:
    return [*signature(function).parameters.values()]


def test_a_method_that_takes_no_context_is_called_without_it(switched: list[str]) -> None:
    ray_tracing.switch_on()
    options = {"a": 1, "_ray_trace_ctx": CONTEXT}

    rays.validate_args(parameters_of(lambda a: None), (), options)

    assert options == {"a": 1}
    assert switched == ["on"]


def test_a_method_that_takes_the_context_has_it() -> None:
    ray_tracing.switch_on()
    options = {"a": 1, "_ray_trace_ctx": CONTEXT}

    rays.validate_args(parameters_of(lambda a, _ray_trace_ctx=None: None), (), options)

    assert options == {"a": 1, "_ray_trace_ctx": CONTEXT}


def test_options_of_the_users_are_not_ours_to_take() -> None:
    ray_tracing.switch_on()
    with_context, without = {"_ray_trace_ctx": CONTEXT, "b": 2}, {"b": 2}

    for options in (with_context, without):
        rays.validate_args(parameters_of(lambda **options: None), (), options)

    assert with_context == without == {"b": 2}


def test_what_ray_refuses_it_refuses_still() -> None:
    ray_tracing.switch_on()

    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        rays.validate_args(parameters_of(lambda a: None), (1,), {"b": 2})


def test_it_is_wrapped_once() -> None:
    ray_tracing.switch_on()
    once = rays.validate_args
    ray_tracing.switch_on()

    assert rays.validate_args is once


@pytest.mark.parametrize("is_initialized", [False, True])
def test_functions_that_were_called_in_an_earlier_cluster_are_traced_in_the_next(
    monkeypatch: pytest.MonkeyPatch, is_initialized: bool
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: is_initialized)
    called, traced, new = (ray.remote(function) for function in (lambda a: None, lambda a: None, lambda a: None))
    called._function_signature = was = parameters_of(lambda a: None)  # as after a call
    traced._function_signature = has = parameters_of(lambda a, _ray_trace_ctx=None: None)  # the same

    ray_tracing.switch_on()

    assert called._function_signature is (was if is_initialized else None)
    assert traced._function_signature is has
    assert new._function_signature is None
