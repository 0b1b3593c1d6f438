"""torchforge's environment variables; each means the same wherever it is read."""

from __future__ import annotations

import os

__all__ = ["are_metrics_off", "are_perf_metrics_off", "timer_wanted"]

_YES = frozenset({"true", "1", "yes"})


def are_metrics_off() -> bool:
    """Whether FORGE_DISABLE_METRICS says that nothing is recorded."""
    return _is_yes("FORGE_DISABLE_METRICS")


def are_perf_metrics_off() -> bool:
    """Whether DISABLE_PERF_METRICS says that tracers measure nothing."""
    return _is_yes("DISABLE_PERF_METRICS")


def timer_wanted(given: str) -> str:
    """Return `"gpu"` or `"cpu"`: what METRIC_TIMER_USES_GPU says, else `given`."""
    if not os.environ.get("METRIC_TIMER_USES_GPU"):
        return given
    return "gpu" if _is_yes("METRIC_TIMER_USES_GPU") else "cpu"


def _is_yes(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in _YES
