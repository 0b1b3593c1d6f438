"""Messages that are the same but for some of their bits: which form one has, in one comparison.

A form is a tuple that begins with a mask, and with what is where the mask is set: as many bytes as the message has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from otel_ml._internal.native import native

__all__ = ["find_form", "find_form_in_python"]

F = TypeVar("F", bound="tuple[Any, ...]")


def find_form_in_python(forms: Mapping[int, Sequence[F]], message: bytes) -> F | None:
    r"""Return the first form that a message has; None where it has none of those of its size.

    Examples:
        >>> find_form({3: [(b"\xff\x00\xff", b"a\x00c", "a letter between a and c")]}, b"abc")[2]
        'a letter between a and c'
    """
    known = forms.get(len(message))
    if known is None:
        return None
    # A whole message at once, in C: a loop over its fields in Python would cost as much as decoding.
    found = np.frombuffer(message, np.uint8)
    for form in known:
        if np.array_equal(found & np.frombuffer(form[0], np.uint8), np.frombuffer(form[1], np.uint8)):
            return form
    return None


find_form = find_form_in_python if native is None else native.find_form
