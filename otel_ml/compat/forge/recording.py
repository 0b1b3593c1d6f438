"""`record_metric()`: from anywhere, with no handle, no coordination and no step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import otel_ml
from otel_ml.compat.forge.accumulators import MetricAccumulator
from otel_ml.compat.forge.collector import COLLECTOR, MODES_VARIABLE
from otel_ml.compat.forge.environment_variables import are_metrics_off
from otel_ml.compat.forge.metric import Metric, Reduce, Sample
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.env import CAPTURE, CONSOLE

__all__ = ["child_env", "record_episode_sample", "record_metric"]


def record_metric(
    key: str,
    value: Any,
    reduction: Reduce | Sample | type[MetricAccumulator] = Reduce.MEAN,
    *,
    over: str | None = None,
) -> None:
    """Record a value; FORGE_DISABLE_METRICS makes it a no-op.

    Where the process has a step (`otel_ml.set_step()`, `steps()`), it counts there. Where the process has backends of
    its own (`init_backends`), it waits for the flush that says the step. Elsewhere, in an actor that knows nothing of
    steps, it counts in the next row of its role. It begins no run: where there is none, it is dropped, reported once.

    Args:
        key: `component/operation/statistic`.
        value: a number, array or tensor, which is read without waiting for the device; for `Reduce.SAMPLE` a mapping.
        reduction: over all ranks and records of the step.
        over: topology dimension of which one rank per coordinate counts, such as `"dp"` where tensor-parallel ranks
            record copies.
    """
    COLLECTOR.push(Metric(key, value, reduction, over=over))


@reports_unrecordable
def record_episode_sample(table_name: str, episode: Any) -> None:
    """Record an episode for the table of the best and the worst by `reward`.

    Args:
        table_name: of the table.
        episode: a mapping, a dataclass, or what has `to_dict()`.
    """
    if are_metrics_off():
        return
    record_metric(table_name, _mapping(episode), Reduce.SAMPLE)


def _mapping(episode: Any) -> Any:
    if isinstance(episode, Mapping):
        return dict(episode)
    # Before a dataclass is taken apart: it may say itself what of it is to be seen.
    if hasattr(episode, "to_dict"):
        return episode.to_dict()
    if is_dataclass(episode) and not isinstance(episode, type):
        return asdict(episode)
    return dict(getattr(episode, "__dict__", {}))


def child_env() -> dict[str, str]:
    """Return the variables by which a process elsewhere joins this run, and knows its logging modes.

    The lines on stderr, git and the package list stay the business of the process that calls this.
    """
    modes = ",".join(sorted(mode.value for mode in COLLECTOR.modes))
    # What child_env() says stands behind the defaults, and wins over them.
    return {CONSOLE.name: "off", CAPTURE.name: "off", **otel_ml.child_env(), MODES_VARIABLE: modes}
