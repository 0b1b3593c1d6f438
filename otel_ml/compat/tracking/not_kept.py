"""What the original did and we do not is reported once for each place of the program, which is named."""

from __future__ import annotations

import atexit
from collections import deque
from typing import Any

from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.never_raises import call_site
from otel_ml.warn_once import reporter, say

__all__ = ["fall_silent", "is_given", "not_kept", "options_not_kept", "speak_again"]

_RECORD_NOTHING: set[int] = set()
"""Runs that are to record nothing, and have not ended."""


_WITHOUT_RUN: deque[str] = deque(maxlen=100)
"""What was to be said while no run was active."""


def fall_silent(run: object) -> None:
    """Say nothing from now on, as long as this run is the only one: it is to record nothing."""
    _RECORD_NOTHING.add(id(run))


def speak_again(run: object) -> None:
    """Say what is not kept again: the run that was to record nothing has ended."""
    _RECORD_NOTHING.discard(id(run))


def not_kept(what: str, instead: str, kind: str = "") -> None:
    """Say that `what` the program asked for is not done as in the original, and what happens instead.

    Where no run is active, and none begins later, it is said at the end of the program.

    Args:
        what: the call or the argument.
        instead: as a sentence.
        kind: where `what` has a value that differs from call to call: what is reported once for each place.
    """
    # An active run counts for more: beside a disabled run of W&B the program may have one that records, and what that
    # does not keep is to be heard.
    if _RECORD_NOTHING and not RUNTIME.is_active:
        return
    place = call_site()
    sentence = f"{what} at {place} is accepted and not kept as it is: {instead}"
    # The reporter keeps the sentence for the run that begins next. If none does, `_say_what_no_run_has_said()` finds
    # it there, and says it as a warning.
    if not RUNTIME.is_active:
        _WITHOUT_RUN.append(sentence)
    reporter.say("not-kept", sentence, kind and f"{kind} at {place}")


@atexit.register
def _say_what_no_run_has_said() -> None:
    unsaid = "".join(reporter.kept)
    for sentence in _WITHOUT_RUN:
        if sentence in unsaid:
            say("not-kept", sentence)


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
