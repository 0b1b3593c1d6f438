"""`RLInsightLogger`: its states are timers of the run; its own dashboard gets nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import NoneType
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import is_given, not_kept
from otel_ml.compat.tracking.run_of_the_job import has_run
from otel_ml.compat.tracking.step_axes import WITHIN, whole
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.compat.verl.intervals import INTERVALS
from otel_ml.integrations.several_numbers import as_one

__all__ = ["RLInsightLogger"]


class RLInsightLogger:
    """Records where `VERL_RL_INSIGHT_ENABLE=1`, as in verl, and where there is a run; else does nothing."""

    ENABLE_ENV = "VERL_RL_INSIGHT_ENABLE"

    def __init__(self, project_name: str, experiment_name: str, config: Any = None) -> None:
        self.init(project_name, experiment_name, config)

    @classmethod
    def enabled(cls) -> bool:
        """Whether the variable is `1`."""
        return os.environ.get(cls.ENABLE_ENV) == "1"

    @classmethod
    def init(cls, project_name: str | None = None, experiment_name: str | None = None, config: Any = None) -> None:
        """Say that rl_insight's own dashboard gets nothing."""
        del project_name, experiment_name
        if cls.enabled():
            not_kept("RLInsightLogger", "states are timers and metrics are values of the run; rl_insight gets nothing.")
            cls.register_transfer_queue_metrics(config)

    @classmethod
    @reports_unrecordable
    def log(cls, data: Mapping[str, Any], step: Any) -> None:
        """Record values at `step`."""
        if cls.enabled() and has_run():
            row = {name: as_one(value) for name, value in data.items()}
            otel_ml.log(row, step=whole(step), within=WITHIN)

    @classmethod
    def finish(cls) -> None:
        """Do nothing: the run ends with its `Tracking`."""

    @classmethod
    @contextmanager
    def trace_state(cls, state_name: str, *, state_lane_id: str | int | None = None, **labels: Any) -> Iterator[None]:
        """Time a state as the timer of its name; those that overlap on a lane, by default the process, count once."""
        if cls.enabled() and has_run():
            _say_labels({**labels, "state_lane_id": state_lane_id})
            # It is a key of a dictionary, and anything may have been given.
            row = state_lane_id if isinstance(state_lane_id, (str, int, NoneType)) else safe_repr(state_lane_id)
            with INTERVALS.state(row, state_name if isinstance(state_name, str) else safe_repr(state_name)):
                yield
        else:
            yield

    @classmethod
    def register_metrics(cls, server_addresses: Sequence[str], job_name: str | None = None, labels: Any = None) -> None:
        """Say that engines are not scraped."""
        del labels
        if cls.enabled():
            what = f"RLInsightLogger.register_metrics({safe_repr(server_addresses)}, {safe_repr(job_name)})"
            not_kept(what, "nothing is scraped by it. Let the Collector scrape these addresses.")

    @classmethod
    def register_rollout_metrics(
        cls, server_addresses: Sequence[str], rollout_name: str | None, labels: Any = None
    ) -> None:
        """Say that engines are not scraped."""
        cls.register_metrics(server_addresses, rollout_name, labels)

    @classmethod
    def register_transfer_queue_metrics(cls, config: Any) -> None:
        """Say that the transfer queue is not scraped, where it is asked for."""
        if _scrapes_transfer_queue(config):
            cls.register_metrics([], "transfer_queue")


def _scrapes_transfer_queue(config: Any) -> bool:
    with suppress(Exception):  # a configuration of any form, or none
        return bool(config["transfer_queue"]["metrics"]["enabled"])
    return False


def _say_labels(labels: Mapping[str, Any]) -> None:
    given = [f"{name}={safe_repr(value, 40)}" for name, value in labels.items() if is_given(value)]
    if given:
        call = f"RLInsightLogger.trace_state({', '.join(given)})"
        not_kept(call, "a state is the timer of its name.", "labels of RLInsightLogger.trace_state")
