"""Where nobody has named a run yet, nothing is written: a folder, a project, an experiment bears its name."""

from __future__ import annotations

from otel_ml_service.aggregation.outcome import RunFacts, Status

__all__ = ["UNNAMED", "may_be_named"]

UNNAMED = "default"
"""The name of an experiment that nobody names."""

_WAIT_S = 60.0
"""How long what a Collector scrapes waits for training to begin: whoever watches engines alone waits as long."""


def may_be_named(facts: RunFacts, status: Status, now: float) -> bool:
    """Whether who knows the name of a run without writers may still come.

    Only a Collector that scrapes was heard: its rows can wait, and no backend can move a run to another name.

    Args:
        facts: what was said of the run.
        status: of the run.
        now: seconds since the epoch.
    """
    is_early = now - facts.started_at < _WAIT_S
    return is_early and not facts.experiment_name and status.state == "running"
