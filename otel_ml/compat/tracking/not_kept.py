"""What the original did and we do not is reported once for each place of the program, which is named."""

from __future__ import annotations

from typing import Any

from otel_ml.never_raises import call_site
from otel_ml.warn_once import reporter

__all__ = ["not_kept", "options_not_kept"]


def not_kept(what: str, instead: str) -> None:
    """Say that `what` the program asked for is not done as in the original, and what happens instead."""
    reporter.say("not-kept", f"{what} at {call_site()} is accepted and not kept as it is: {instead}")


def options_not_kept(call: str, instead: str, **options: Any) -> None:
    """Say which options of a call have no place here; one that is empty or off was not given."""
    given = [f"{name}={value!r:.40}" for name, value in options.items() if value]
    if given:
        not_kept(f"{call}({', '.join(given)})", instead)
