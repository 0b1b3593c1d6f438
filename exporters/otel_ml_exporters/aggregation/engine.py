"""One experiment run: observations in, closed records out."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml_exporters.aggregation.observation import Observation
from otel_ml_exporters.aggregation.outcome import Outcome, RunFacts, Status
from otel_ml_exporters.aggregation.settings import EngineSettings

__all__ = ["Engine"]


class Engine:
    """Aligns what the writers of one experiment send by step, and reduces it across ranks.

    Not thread-safe: one thread owns it. It knows no clock: `now` is seconds since the epoch, as the
    service reads it. After `observe` call `advance`; nothing closes before it.
    """

    def __init__(
        self, experiment: str, settings: EngineSettings = EngineSettings(), state: Mapping[str, bytes] | None = None
    ) -> None:
        raise NotImplementedError

    def observe(self, observation: Observation, now: float) -> None:
        """Take one observation; cheap, closes nothing."""

    def advance(self, now: float) -> None:
        """Close what is due at `now`."""

    def next_deadline(self) -> float | None:
        """Return when `advance` could change something though nothing arrives."""

    def take(self) -> Outcome:
        """Return what to commit, and forget it."""
        raise NotImplementedError

    @property
    def status(self) -> Status:
        """How the run stands."""
        raise NotImplementedError

    @property
    def facts(self) -> RunFacts:
        """What the writers said about the run."""
        raise NotImplementedError
