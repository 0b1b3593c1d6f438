"""Variables of this process that the service and child processes inherit, for as long as a run lasts."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["SetVariables"]


class SetVariables:
    """Environment variables that are set, and put back by `undo()`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)

    def undo(self) -> None:
        """Put back what was there."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
