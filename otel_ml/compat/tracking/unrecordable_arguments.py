"""A call of another interface that cannot record what it is given: reported as the program's mistake, not as ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.never_raises import call_site
from otel_ml.warn_once import RecordingError, reporter

__all__ = ["report_unrecordable", "report_unreduced", "reports_unrecordable"]

P = ParamSpec("P")

_OF_ARGUMENTS = (TypeError, ValueError, AttributeError, LookupError, OSError, ArithmeticError)
"""What converting a wrong argument raises: None for a mapping, a picture of five dimensions, a file that is missing,
a number of 400 digits.
"""


_EXPECTED = "what the original takes"


def reports_unrecordable(call: Callable[P, None], expected: str = _EXPECTED) -> Callable[P, None]:
    """Let `call` fail without its caller, and report what it was given; under `OTEL_ML_STRICT=true` it raises."""

    @functools.wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (the boundary to the user's program)
            report_unrecordable(_name_of(call, args), error, _given(call, args, kwargs), expected)

    return guarded


def report_unrecordable(call: str, error: Exception, given: str = "", expected: str = _EXPECTED) -> None:
    """Report why `call` records nothing: as a failure of ours only where no argument can be the reason.

    Raises:
        Exception: in strict mode.
    """
    if _is_of_arguments(error):
        sentence, kind = _said_of(call, error, given, "is not recorded", expected)
        reporter.drop("bad_event", sentence, kind=kind)
    else:
        reporter.failed(f"{call}() at {call_site()}", error)


def report_unreduced(call: str, error: Exception, given: str) -> None:
    """Report why `call` leaves what it was to reduce as it is, by which nothing is lost; see `report_unrecordable()`.

    Raises:
        Exception: in strict mode.
    """
    if _is_of_arguments(error):
        reporter.wrong("bad-event", *_said_of(call, error, given, "stays as it is"))
    else:
        reporter.failed(f"{call}() at {call_site()}", error)


def _is_of_arguments(error: Exception) -> bool:
    # RecordingError is a ValueError, too. It is raised in strict mode alone, counted where it is raised, and failed()
    # lets it through.
    return isinstance(error, _OF_ARGUMENTS) and not isinstance(error, RecordingError)


def _said_of(call: str, error: Exception, given: str, outcome: str, expected: str = _EXPECTED) -> tuple[str, str]:
    """Return the sentence, and what of it is said once."""
    place, why = call_site(), f"{type(error).__name__}: {text_of(error)}"
    sentence = f"{call}({given}) at {place} {outcome}: {why}. Expected {expected}; training goes on."
    return sentence, f"arguments of {call} at {place}: {type(error).__name__}"


def _name_of(call: Callable[..., None], args: Sequence[object]) -> str:
    """Return the name by which the program called it: a method's class may be one that the program does not know."""
    # `Tracking.log` may be called on a subclass of the program's own.
    if "." in call.__qualname__ and args:
        of = args[0] if isinstance(args[0], type) else type(args[0])
        return f"{of.__name__}.{call.__name__}"
    return call.__qualname__.removeprefix("_")  # what a public function guards of itself has its name behind a `_`


_OURS = frozenset({"self", "cls", "active"})
"""Arguments that no program gives: the object or the class of a method, and the run of a call of MLflow's."""


def _given(call: Callable[..., None], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return the arguments by their names, as far as the call has such names."""
    try:
        named: Mapping[str, Any] = inspect.signature(call).bind(*args, **kwargs).arguments
    except TypeError:  # too many, too few, or of another name: what the error says
        named = kwargs
    return ", ".join(f"{name}={safe_repr(value, 40)}" for name, value in named.items() if name not in _OURS)
