"""Which rank was in which pipeline stage, and on which host, from what a service noted of the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml_service.aggregation.rank_timers import stage_in
from otel_ml_service.stored_runs.noted_writers import noted_writers
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["hosts_of", "stages_of"]


def stages_of(run: RunFolder, role: str) -> Mapping[int, int]:
    """Return rank → stage of a role's ranks; nothing while a service has the run open, or where that cannot be read."""
    found: dict[int, int] = {}
    for writer in noted_writers(run):
        stage = stage_in({name: coordinate for name, coordinate, _ in writer["topology"]})
        if writer["role"] == role and stage is not None:
            found[writer["rank"]] = stage
    return found


def hosts_of(run: RunFolder) -> Mapping[str, Mapping[int, str]]:
    """Return role → rank → host, of whom said it; nothing while a service has the run open."""
    found: dict[str, dict[int, str]] = {}
    for writer in noted_writers(run):
        if writer["host"]:
            found.setdefault(writer["role"], {})[writer["rank"]] = writer["host"]
    return found
