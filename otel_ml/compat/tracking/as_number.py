"""What a program hands in as a number: a text, which MLflow and TensorBoard take for it, or a type of its own."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from otel_ml._internal.device_tensor import is_on_device
from otel_ml.never_raises import call_site
from otel_ml.warn_once import reporter

__all__ = ["in_memory", "is_in_memory", "number_of_text", "plain_float", "scalars", "without_dimensions"]


def number_of_text(text: str) -> Any:
    """Return the number, or the text where it is not one; `otel_ml.log()` says what is wrong with it.

    Examples:
        >>> number_of_text("0.5"), number_of_text("high")
        (0.5, 'high')
    """
    try:
        return float(text)
    except ValueError:
        return text


def scalars(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row, each as one number: also of a text, and of an array of one element in any shape.

    A list or an array of several elements, or of none, is not among them, which is reported.
    """
    found = {}
    for name, value in row.items():
        shape = (len(value),) if isinstance(value, (list, tuple)) else getattr(value, "shape", None)
        # A shape of () is one number. So are (1,) and (1, 1), and [0.5] is passed on: only more or fewer elements are
        # refused.
        if shape and math.prod(shape) != 1:
            what = f"{name!r} at {call_site()} is a {type(value).__name__} of shape {tuple(shape)}"
            reporter.drop("bad_value", f"{what}, expected one number. It is not recorded; reduce it first.")
        elif isinstance(value, str):
            found[name] = number_of_text(value)
        else:
            found[name] = without_dimensions(value) if shape else value
    return found


def without_dimensions(one: Any) -> Any:
    """Return an array of one element, in whatever shape, as that element; anything else as it is.

    Examples:
        >>> without_dimensions([0.5])
        [0.5]
    """
    try:
        # pandas' own types do not know what they are without dimensions: asked for their element, some end the process.
        return (one.to_numpy() if hasattr(one, "to_numpy") else one).reshape(())
    except Exception:  # noqa: BLE001 (a list, or somebody's array; `otel_ml.log()` says what is wrong with it)
        return one


def is_in_memory(value: Any) -> bool:
    """Whether to read a value waits for no device; one of which that is not known is on one."""
    device = getattr(value, "device", "cpu")  # torch's has a type, numpy's is a text, and its scalars have none
    is_of_jax = callable(getattr(value, "devices", None))
    return not is_on_device(value) if is_of_jax else bool(getattr(device, "type", device) == "cpu")


def in_memory(value: Any) -> Any:
    """Return the number of an array or a tensor of one element; one on a device as it is: reading it would wait."""
    if not hasattr(value, "item") or not is_in_memory(value):
        return value
    try:
        return value.item()
    except Exception:  # noqa: BLE001 (several elements, or somebody's object; `otel_ml.log()` says what is wrong with it)
        return value


def plain_float(value: Any) -> float | None:
    """Return a number as a float; None for what is none, and for one that has none, such as 10**400."""
    if not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001 (somebody's number; `otel_ml.log()` says what is wrong with it)
        return None
