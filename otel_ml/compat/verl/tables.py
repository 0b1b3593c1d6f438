"""Tables of a run of verl: what a model wrote in a validation, and which groups were filtered out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.step_axes import whole
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.compat.verl.backends import exporters

__all__ = ["DapoFilteredRewardTableLogger", "ValidationGenerationsLogger"]


class _TableLogger:
    """Where no run is active, as in verl's rollouter, which has no `Tracking`, the first table begins one."""

    def __init__(self, project_name: str | None = None, experiment_name: str | None = None) -> None:
        self.project_name = project_name
        self.experiment_name = experiment_name

    def _begin(self, loggers: Any) -> None:
        # Without a project there is nothing to begin a run by: the table goes into that of a `Tracking`.
        if self.project_name is not None and not RUNTIME.is_chosen:
            chosen = [loggers] if isinstance(loggers, str) else list(loggers)
            otel_ml.init(self.project_name, name=self.experiment_name, exporters=exporters(chosen))


class ValidationGenerationsLogger(_TableLogger):
    """Records what a model wrote in a validation: a table a step, in every backend that has tables."""

    @reports_unrecordable
    def log(self, loggers: Any, samples: Iterable[Sequence[Any]], step: Any) -> None:
        """Record rows of (input, output, score); `loggers` are the backends of a run that begins here."""
        self._begin(loggers)
        otel_ml.log_table("val/generations", samples, ["input", "output", "score"], step=whole(step))


class DapoFilteredRewardTableLogger(_TableLogger):
    """Records how many groups of each reward DAPO has filtered out, in every backend that has tables."""

    @reports_unrecordable
    def log(self, loggers: Any, reward_counts: Mapping[Any, Any], step: Any) -> None:
        """Record one row, (step, `reward:count` of each reward), as the table of its step."""
        self._begin(loggers)
        # Keys may be texts, as of JSON, and are sorted as numbers.
        counts = {float(reward): int(count) for reward, count in reward_counts.items()}
        shown = ", ".join(f"{reward:g}:{counts[reward]}" for reward in sorted(counts))
        name = "training/filter_groups/filtered_reward_counts"
        otel_ml.log_table(name, [[step, shown]], ["step", "reward_counts"], step=whole(step))
