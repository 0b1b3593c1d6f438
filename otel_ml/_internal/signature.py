"""The signature a call publishes: what `help()`, an editor and `inspect.signature()` tell, compiled or not.

Options are keyword-only there. The function itself has no star: CPython looks the default of a keyword-only argument up
by its name at every call (docs/adr/0019-options-by-position.md), and calls that pass one by position go on working.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

__all__ = ["MISSING", "public", "public_type", "publish", "publish_method"]

_PLACE = {"step": 0, "axis": 1}
"""Options that come first, in this order."""

_BY_NAME = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "nothing"})()
"""What a call has in the place of an argument that it was not given: it says so, and does not raise."""

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def public(call: F) -> F:
    """Have a function or class say that it is in `otel_ml`, where users find it, and not where it is written."""
    call.__module__ = "otel_ml"
    return call


def public_type(kind: C) -> C:
    """Have the class of what a call returns say that it is in `otel_ml.types`."""
    kind.__module__ = "otel_ml.types"
    return kind


def publish(*by_position: str, required: int = 0) -> Callable[[F], F]:
    """Publish the parameters `by_position` in this order, of which so many have no default; all others by name.

    What is positional-only, and not among these, is not published; nor is what takes mistakes (`**unknown: NoReturn`).
    """

    def published(call: F) -> F:
        whole = signature(call)
        found = whole.parameters
        rest = [parameter for parameter in found.values() if parameter.kind is Parameter.VAR_KEYWORD]
        named = [parameter for parameter in rest if parameter.annotation != "NoReturn"]  # that takes what is said
        # `**unknown` and `**named` take a positional parameter by its name, too, so it is published as one that may be
        # named.
        first = [_first(found[name], place < required, bool(rest)) for place, name in enumerate(by_position)]
        options = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for name, parameter in found.items()
            if name not in by_position and parameter.kind in _BY_NAME
        ]
        options.sort(key=lambda option: _PLACE.get(option.name, len(_PLACE)))
        shown = whole.replace(parameters=[*first, *options, *named])
        call.__signature__ = shown  # type: ignore[attr-defined]
        call.__text_signature__ = _as_text(shown)  # type: ignore[attr-defined] # of the compiled twin
        return call

    return published


def _first(parameter: Parameter, is_required: bool, takes_any_name: bool) -> Parameter:
    kind = Parameter.POSITIONAL_OR_KEYWORD if takes_any_name else parameter.kind
    return parameter.replace(kind=kind, default=Parameter.empty if is_required else parameter.default)


def _as_text(shown: Signature) -> str:
    """Return it as a function of C has it: without annotations."""
    bare = [parameter.replace(annotation=Parameter.empty) for parameter in shown.parameters.values()]
    # `$self` is what `inspect` leaves out of a method of C that is bound.
    return str(Signature(bare)).replace("(self", "($self", 1)


def publish_method(method: Callable[..., Any], call: Callable[..., Any]) -> None:
    """Publish for a method what `call` publishes, with `self` before it."""
    of_call = signature(call)
    owner = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__signature__ = of_call.replace(parameters=[owner, *of_call.parameters.values()])  # type: ignore[attr-defined]
