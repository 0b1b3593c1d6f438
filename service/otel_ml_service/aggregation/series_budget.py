"""Which series without a step are taken: what engines publish by the thousand must not drown the run."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_service.aggregation.observation import Attributes
from otel_ml_service.aggregation.settings import EngineSettings

__all__ = ["SeriesBudget"]

Admission = Literal["taken", "denied", "overflow"]


class SeriesBudget:
    """Admits the first series that come, up to the limit, of those whose names are wanted.

    The series are learned anew after a restart of the service: those that still come are first again.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._taken: set[tuple[str, str, Attributes]] = set()
        self._wanted: dict[str, bool] = {}

    def verdict(self, role: str, name: str, attributes: Attributes) -> Admission:
        """Return what becomes of a point of a series."""
        # The service's own counters come as points of another program, and have to be in the run.
        if name.startswith(RESERVED_PREFIX):
            return "taken"
        if not self._is_wanted(name):
            return "denied"
        series = (role, name, attributes)
        if series in self._taken:
            return "taken"
        if len(self._taken) >= self._settings.scraped_series:
            return "overflow"
        self._taken.add(series)
        return "taken"

    def _is_wanted(self, name: str) -> bool:
        known = self._wanted.get(name)
        if known is None:
            allowed = any(fnmatchcase(name, glob) for glob in self._settings.scraped_allow)
            known = allowed and not any(fnmatchcase(name, glob) for glob in self._settings.scraped_deny)
            # Names beyond that are matched each time they come, so that names without end do not fill memory.
            if len(self._wanted) < self._settings.scraped_series:
                self._wanted[name] = known
        return known
