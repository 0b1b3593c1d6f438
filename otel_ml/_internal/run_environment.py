"""Environment variables that are set for as long as a run lasts: child processes and the service inherit them."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["RunEnvironment"]


class RunEnvironment:
    """Variables of this process' environment that were set, and what was there before."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def set(self, variables: Mapping[str, str]) -> None:
        """Set `variables`, in addition to those set before."""
        for name, value in variables.items():
            # The value of before the first call: at a second one ours is there.
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def before(self) -> dict[str, str]:
        """Return the environment without what was set: as whoever started the process has given it."""
        given = {name: value for name, value in os.environ.items() if name not in self._before}
        return {**given, **{name: value for name, value in self._before.items() if value is not None}}

    def undo(self) -> None:
        """Put back what was there before the first `set()`; again is fine."""
        # Taken first: a signal handler that ends the run here would change it while it is gone through.
        before, self._before = self._before, {}
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
