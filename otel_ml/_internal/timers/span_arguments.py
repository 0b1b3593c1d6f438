"""What a program gives to a span: what is wrong with it is said, and the span is without it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import safe_repr

__all__ = ["attributes_of", "is_id", "say_unfit"]


def attributes_of(call: str, attributes: object) -> dict[str, object]:
    """Return the attributes that a call gives; none (said) where they are none."""
    if attributes is None:
        return {}
    with suppress(Exception):  # a mapping of the program's may raise whatever it likes
        if isinstance(attributes, Mapping):
            return dict(attributes)
    say_unfit(call, "attributes such as {'batch': 3}", attributes)
    return {}


def is_id(number: object, bits: int) -> bool:
    """Whether this is an id of so many bits; 0 is none."""
    return isinstance(number, int) and 0 < number < 1 << bits


def say_unfit(call: str, expected: str, given: object) -> None:
    """Say once what a call expects of its argument."""
    reporter.wrong(
        "bad-timer",
        f"{call}() of a span: expected {expected}, got {safe_repr(given)}. The span is without it.",
        kind=f"{call}() of a span",
    )
