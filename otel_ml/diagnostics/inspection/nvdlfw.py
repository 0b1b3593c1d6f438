"""What NVIDIA's own inspection tool (`nvdlfw-inspect`, as Transformer Engine uses it) measures, in the run."""

from __future__ import annotations

from typing import Any

from otel_ml.diagnostics.measure import Measure

__all__ = ["InspectLogger"]


class InspectLogger:
    """Takes statistics from `nvdlfw_inspect` and records each as `inspect/<its name>` at its iteration.

    Features of that tool which change numbers, such as `DisableFP8GEMM`, stay what they are: this is told of results
    only. Each rank hands its values over, or those of the group that the tool reduced over: means of them are shown,
    minima of `_min` and maxima of `_max`.

    Raises:
        ImportError: the tool is not installed.

    Examples:
        ```python
        nvdlfw_inspect.api.initialize("inspect.yaml", feature_dirs=[...], statistics_logger=InspectLogger())
        ```
    """

    def __init__(self) -> None:
        from nvdlfw_inspect.logging import BaseLogger

        BaseLogger.register(type(self))  # the tool takes nothing else, and is not there for everybody to inherit from

    def log_scalar(self, name: str, value: Any, iteration: int, **options: object) -> None:
        """Record one statistic; the tool calls it."""
        del options
        last = name.rpartition("_")[2]
        # By what the tool's names end in; other statistics are averaged.
        reduce = last if last in {"min", "max"} else "max" if last in {"amax", "range"} else "mean"
        measure = Measure(f"inspect/{name.replace('%', '_percent')}", "1", (reduce,), "Statistic of nvdlfw-inspect.")
        # At the tool's own iteration, which need not be the step that is current here.
        measure.record(value, step=iteration)
