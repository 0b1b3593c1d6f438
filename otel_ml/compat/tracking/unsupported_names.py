"""Names of an original that have no place here: what is used instead is said where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml.warn_once import say

__all__ = ["not_here"]


def not_here(module: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error of a module that has no `name`; said too, as `from … import name` shows no error's text.

    Args:
        module: that is asked for it.
        name: what it is asked for.
        instead: names of the original → what is used instead, as a sentence.
    """
    if name not in instead:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    sentence = f"{module} has no {name}: {instead[name]}"
    say("not-kept", sentence)
    return AttributeError(sentence)
