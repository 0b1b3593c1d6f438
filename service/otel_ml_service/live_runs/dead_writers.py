"""Which writers of a job have died: the process table of their host knows it at once, silence only after a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.live_runs.process_table import ProcessTable

__all__ = ["DeadWriters", "Died"]

_EVERY_S = 1.0
"""How often the processes are looked at; each costs 10 µs."""

_AGAIN_S = 0.05
"""The same while what one of them left is taken in: who leaves meanwhile waits to be told whether it is the last."""

_TAKEN_IN_S = 5.0
"""How long that is waited for, at most: a spool that cannot be read stays where it is."""


class Died(NamedTuple):
    """Who has died without a shutdown message.

    Attributes:
        settled: those of whom nothing more comes.
        is_more: there are others, whose spools are still to be taken in.
    """

    settled: Sequence[Writer] = ()
    is_more: bool = False


class DeadWriters:
    """Looks at the processes of those of whom more may come. Owned by the engine's thread.

    Args:
        is_left: whether a spool of this instance is still to be taken in.
    """

    def __init__(self, is_left: Callable[[str], bool]) -> None:
        self._is_left = is_left
        self._table = ProcessTable()
        self._looked_at = 0.0
        self._since: dict[str, float] = {}

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() - self._looked_at >= self.wait_s

    @property
    def wait_s(self) -> float:
        """Seconds between two looks."""
        return _AGAIN_S if self._since else _EVERY_S

    def among(self, awaited: Sequence[Writer]) -> Died:
        """Return who of the writers of a job, of whom more may come, has died."""
        now = self._looked_at = time.monotonic()
        gone = self._table.ended(awaited)
        since = {one.instance: self._since.get(one.instance, now) for one in gone}
        is_late = {instance for instance, at in since.items() if now - at >= _TAKEN_IN_S}
        settled = [one for one in gone if one.instance in is_late or not self._is_left(one.instance)]
        self._since = {one.instance: since[one.instance] for one in gone if one not in settled}
        return Died(settled, bool(self._since))
