"""What the original did and we do not is reported once for each place of the program, which is named."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.never_raises import call_site
from otel_ml.warn_once import reporter

__all__ = ["is_given", "not_kept", "options_not_kept"]


def not_kept(what: str, instead: str, kind: str = "") -> None:
    """Say that `what` the program asked for is not done as in the original, and what happens instead.

    Args:
        what: the call or the argument.
        instead: as a sentence.
        kind: where `what` has a value that differs from call to call: what is reported once for each place.
    """
    place = call_site()
    sentence = f"{what} at {place} is accepted and not kept as it is: {instead}"
    reporter.say("not-kept", sentence, kind and f"{kind} at {place}")


def options_not_kept(call: str, instead: str, /, **options: Any) -> None:
    """Say which options of a call have no place here; one that is empty or off was not given."""
    given = [f"{name}={safe_repr(value, 40)}" for name, value in options.items() if is_given(value)]
    if given:
        not_kept(f"{call}({', '.join(given)})", instead)


def is_given(option: Any) -> bool:
    """Whether an option says something: not empty, and not off. An array does, which is neither true nor false."""
    try:
        return bool(option)
    except Exception:  # noqa: BLE001 (somebody's object)
        return True
