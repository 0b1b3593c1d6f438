"""What Dynamo traces where a compiled function calls `log()`, `record()`, a metric's `record()` or a timer.

Each function here has the arguments of the one it stands for, and is never called: Dynamo reads it, and keeps of it
one call of the operator `otel_ml::log`. Names, options and constants become text of that call while it is traced;
tensors stay tensors, and a Python number that changes from call to call stays one, so that nothing is compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

from otel_ml._internal.compiled.operator import define_operator, described
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record import log as log_module
from otel_ml._internal.record.call_forms import meant_by_log
from otel_ml._internal.record.meter import Metric
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.timers import timing
from otel_ml._internal.timers.manual_timer import Timer
from otel_ml._internal.timers.timer_definitions import TimerDefinition

__all__ = ["log", "substitute"]

_NOTHING: dict[str, Any] = {}


def substitute() -> None:
    """Have Dynamo trace the functions of this module in place of those of the user's.

    Raises:
        ImportError: torch is too old for it (before 2.5).
    """
    from torch._dynamo.decorators import substitute_in_graph

    define_operator()
    for original, traced in _TRACED.items():
        if _is_method_of_python(original):
            original._torchdynamo_inline = traced  # type: ignore[attr-defined] # noqa: SLF001 (what torch.jit marks its own with)
        else:
            substitute_in_graph(original, skip_signature_check=True)(traced)


def _is_method_of_python(function: Callable[..., Any]) -> bool:
    """Whether Dynamo, where it is called on an object, looks at the function alone and not for a substitute."""
    return isinstance(function, FunctionType) and "." in function.__qualname__


def log(
    values: Any = _NOTHING,
    at: Any = None,
    where: Any = None,
    /,
    prefix: str | None = None,
    reduce: Any = None,
    within: str | None = None,
    over: str | None = None,
    weight: Any = None,
    attributes: Mapping[str, object] | None = None,
    commit: bool | None = None,
    step: Any = None,
    axis: str | None = None,
    **named: Any,
) -> None:
    """Stand for `otel_ml.log()`: its arguments."""
    # The forms of other loggers: `log("loss", x)`, `log(loss=x)`.
    if not isinstance(values, Mapping) or (named and not values):
        values, at, where = meant_by_log(values, at, where, named)
        named = {}
    options = {
        "axis": axis if where is None else where,
        "prefix": prefix,
        "reduce": reduce,
        "within": within,
        "over": over,
        "attributes": attributes,
    }
    # What is not an option goes with the call: `log()` says so when the graph runs.
    options.update(named)
    _call(values, at if step is None else step, weight, options)


def _record(name: str, value: Any, *arguments: Any, **options: Any) -> None:
    log({name: value}, *arguments, **options)


def _record_metric(
    self: Metric,
    value: Any,
    attributes: Mapping[str, object] | None = None,
    weight: Any = None,
    step: Any = None,
    axis: str | None = None,
) -> None:
    log({self.name: value}, step, axis, weight=weight, attributes=attributes)


def _call(values: Mapping[str, Any], step: Any, weight: Any, options: dict[str, Any]) -> None:
    tensors: list[torch.Tensor] = []
    numbers: list[Any] = []
    kinds = [_kind(value, tensors, numbers) for value in values.values()]
    # In this order, values, weight, step: `operator._log()` takes them from the two lists one after the other.
    weight_kind = _kind(weight, tensors, numbers)
    is_number = isinstance(step, int)
    step_kind = None if is_number else _kind(step, tensors, numbers)
    call = _described(list(values), kinds, weight_kind, step_kind, options)
    torch.ops.otel_ml.log(call, tensors, numbers, step if is_number else None)


def _kind(value: Any, tensors: list[torch.Tensor], numbers: list[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return "tensor"
    if isinstance(value, float) and not _is_known(value):
        # As a number it would be a constant of the graph, compiled anew for each; a product is not one.
        tensors.append(torch.ones((), dtype=torch.float64, device="cpu") * value)
        return "tensor"
    if isinstance(value, (int, float)):
        # An int that changes is a symbol of the graph already, and a float that is known here is a constant of it.
        numbers.append(value)
        return "number"
    if isinstance(value, (list, tuple)):
        return [_kind(one, tensors, numbers) for one in value]
    return None if value is None else _constant(value)


def _constant(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"constant": value}
    # It has no form in a graph. `log()` refuses the text, and its message says the type.
    return {"constant": f"a {type(value).__name__}"}


try:
    from torch.fx.experimental.symbolic_shapes import has_static_value as _is_known
except ImportError:

    def _is_known(value: Any) -> bool:
        """Whether a number is a constant of the graph: always, as far as this torch tells (before 2.8)."""
        return True


# Dynamo calls it while it compiles and keeps the text, instead of tracing into `json`.
_described = torch.compiler.assume_constant_result(described)


class _NotTimed:
    """Stands for a timer in compiled code, where there is no time between two lines: they are fused and moved."""

    def __enter__(self) -> _NotTimed:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def is_recording(self) -> bool:
        return False

    def set_attribute(self, key: str, value: object) -> None:
        return None

    def set_attributes(self, attributes: Mapping[str, object]) -> None:
        return None

    def add_event(self, *arguments: Any, **options: Any) -> None:
        return None

    def record_exception(self, *arguments: Any, **options: Any) -> None:
        return None

    def set_status(self, *arguments: Any, **options: Any) -> None:
        return None

    def update_name(self, name: str) -> None:
        return None


def _timed(name: Any = None, /, level: int = 1, *arguments: Any, **options: Any) -> Any:
    if name is None or isinstance(name, str):
        _say_not_timed(name, level)
        return _NotTimed()
    return name


def _timing_of(definition: TimerDefinition) -> _NotTimed:
    _say_not_timed(definition.name, definition.level)
    return _NotTimed()


def _timer_changed(self: Timer) -> None:
    if self._definition is not None:
        _say_not_timed(self._definition.name, self._definition.level)


def _say_when_traced(name: str | None, level: int) -> None:
    """Say it while the graph is made: none of it is left in there."""
    if level <= NOW.level:
        reporter.say(
            "compiled-timer",
            f"Timer {name!r:.80} is inside torch.compile, where it measures nothing: compiled code is fused and "
            "reordered, and no time passes between two of its lines. Put it around the call of the compiled function; "
            "torch.profiler tells what its kernels take.",
            kind="a timer in compiled code",
        )


_say_not_timed = torch.compiler.assume_constant_result(_say_when_traced)


_TRACED: dict[Callable[..., Any], Callable[..., Any]] = {
    log_module.log: log,
    log_module.record: _record,
    Metric.record: _record_metric,
    timing.timed: _timed,
    timing.timing_of: _timing_of,
    Timer.start: _timer_changed,
    Timer.stop: _timer_changed,
}
