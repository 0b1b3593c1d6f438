"""NeMo RL's monitor of the GPUs of a Ray cluster: otel_ml's own, in the intervals that it is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_ml.warn_once import say

if TYPE_CHECKING:
    from otel_ml.diagnostics.hardware import Monitor

__all__ = ["RayGpuMonitorLogger", "monitor_of"]


class RayGpuMonitorLogger:
    """Samples all nodes of the Ray cluster, or this host where there is none, into every backend of the run.

    Args:
        collection_interval: seconds between two samples.
        flush_interval: seconds of a row.
        metric_prefix: not used, which is reported: names are OpenTelemetry's, such as `hw.gpu.utilization`.
        step_metric: not used, which is reported with it: the axis is `time`.
        parent_logger: not used: the run has all backends.

    Attributes:
        collection_interval, flush_interval, metric_prefix, step_metric, parent_logger: as they were given.
    """

    def __init__(
        self,
        collection_interval: float,
        flush_interval: float,
        metric_prefix: str,
        step_metric: str,
        parent_logger: Any = None,
    ) -> None:
        self.collection_interval = collection_interval
        self.flush_interval = flush_interval
        self.metric_prefix = metric_prefix
        self.step_metric = step_metric
        self.parent_logger = parent_logger
        self._monitor: Monitor | None = None
        say(
            "setting-unused",
            f"RayGpuMonitorLogger(metric_prefix={metric_prefix!r}, step_metric={step_metric!r}): names are those of "
            "OpenTelemetry, such as hw.gpu.utilization, on the axis time.",
        )

    @property
    def is_running(self) -> bool:
        """Whether it samples."""
        return self._monitor is not None

    def start(self) -> None:
        """Begin to sample; again: nothing."""
        if self._monitor is None:
            # The attributes have the names of the intervals in `gpu_monitoring`; a program may have set them since.
            self._monitor = monitor_of(vars(self))

    def stop(self) -> None:
        """End; again: nothing."""
        if self._monitor is not None:
            self._monitor.stop()
            self._monitor = None

    def flush(self) -> None:
        """Do nothing: samples are recorded as they are taken."""


def monitor_of(intervals: Mapping[str, float]) -> Monitor:
    """Start what samples every `collection_interval` and makes a row every `flush_interval` seconds."""
    from otel_ml.diagnostics.hardware import start_monitor

    # Only where the program uses Ray: importing it takes seconds.
    ray = sys.modules.get("ray")
    is_on_cluster = ray is not None and ray.is_initialized()
    return start_monitor(
        intervals.get("collection_interval", 10.0),
        intervals.get("flush_interval", 10.0),
        sources=("ray",) if is_on_cluster else ("gpu", "host"),
    )
