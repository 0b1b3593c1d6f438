"""verl's tracking over otel_ml: `from otel_ml.compat.verl import Tracking, ValidationGenerationsLogger`.

```python
from otel_ml.compat.verl import Tracking

tracking = Tracking("grpo", "dev", default_backend=["console", "tensorboard"], config={"lr": 1e-6})
tracking.log({"actor/pg_loss": 0.1, "critic/rewards/mean": 0.5}, step=1)
tracking.finish()
```
"""

from __future__ import annotations

import numbers
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.counts import WITHIN, whole
from otel_ml.compat.tracking.said import never_raises, not_kept

__all__ = ["Tracking", "ValidationGenerationsLogger", "reduce_metrics"]

CONSOLE = "console"

EXPORTERS: Mapping[str, str] = {
    "file": "jsonl",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "tracking": "wandb",
    "wandb": "wandb",
}
"""Backends of verl, and the exporter that writes there; `console` is a line that this process prints."""


class Tracking:
    """Records each step's metrics; what the run is written to does not touch training.

    Where a run is active already this joins it. With an endpoint, the service there decides where it is written.
    """

    def __init__(
        self,
        project_name: str,
        experiment_name: str,
        default_backend: str | Sequence[str] = "console",
        config: Any = None,
    ) -> None:
        chosen = [default_backend] if isinstance(default_backend, str) else list(default_backend)
        for backend in chosen:
            if backend not in EXPORTERS and backend != CONSOLE:
                known = ", ".join(sorted([CONSOLE, *EXPORTERS]))
                not_kept(f"Tracking(default_backend={backend!r})", f"no exporter writes there. There are: {known}.")
        self._joins = RUNTIME.is_chosen
        if self._joins:
            self._run = otel_ml.init()
        else:
            self._run = otel_ml.init(project_name, name=experiment_name, exporters=_exporters(chosen))
        self._prints = CONSOLE in chosen and self._run.rank == 0
        if config is not None:
            otel_ml.log_params(config)

    @property
    def run(self) -> otel_ml.Run:
        """The run that is recorded into."""
        return self._run

    @never_raises
    def log(self, data: Mapping[str, Any], step: Any, backend: Any = None) -> None:
        """Record numbers, and texts as texts, at `step`; in all backends."""
        if backend is not None:
            not_kept(f"Tracking.log(backend={backend!r:.80})", "every exporter of the run gets it.")
        index = whole(step)
        if index is None:
            not_kept(f"Tracking.log(step={step!r:.80})", "a step is a whole number from 0 on; the current one counts.")
        recordable = {key: value for key, value in data.items() if not isinstance(value, str) and value is not None}
        otel_ml.log(recordable, step=index, within=WITHIN)
        for key, value in data.items():
            if isinstance(value, str):
                otel_ml.log_text(key, value, step=index)
        if self._prints:
            sys.stdout.write(_line(recordable, step))

    def finish(self, exit_code: int = 0) -> None:
        """End the run that this began; without it the process ends it, and nothing is lost.

        Args:
            exit_code: other than 0: the run has failed.
        """
        if not self._joins:
            self._run.__exit__(SystemExit, SystemExit(exit_code), None)

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._joins:
            self._run.__exit__(kind, error, traceback)


class ValidationGenerationsLogger:
    """Records what a model wrote in a validation: a table a step, in every backend that has tables.

    Where no run is active, as in verl's rollouter, which has no `Tracking`, the first table begins that of its project.
    """

    def __init__(self, project_name: str | None = None, experiment_name: str | None = None) -> None:
        self.project_name = project_name
        self.experiment_name = experiment_name

    @never_raises
    def log(self, loggers: Any, samples: Iterable[Sequence[Any]], step: Any) -> None:
        """Record rows of (input, output, score); `loggers` are the backends of a run that begins here."""
        if self.project_name is not None and not RUNTIME.is_chosen:
            chosen = [loggers] if isinstance(loggers, str) else list(loggers)
            otel_ml.init(self.project_name, name=self.experiment_name, exporters=_exporters(chosen))
        otel_ml.log_table("val/generations", samples, ["input", "output", "score"], step=whole(step))


def reduce_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return each list of values as one: the largest or smallest where a word of the name says so, else the mean.

    A word is what stands between `/` and `_`: `minmax_diff` is averaged. A `Metric` of verl says itself how its values
    become one. What is empty is left out, for there is no value; what is no list stays.

    Examples:
        >>> reduce_metrics({"reward/max": [1, 3], "loss": [1, 3], "minmax_diff": [1, 3], "none": [], "lr": 0.5})
        {'reward/max': 3, 'loss': 2.0, 'minmax_diff': 2.0, 'lr': 0.5}
    """
    return {name: _reduced(name, values) for name, values in metrics.items() if not _is_empty(values)}


def _line(values: Mapping[str, Any], step: Any) -> str:
    """Return verl's line of a step; a tensor is left out: printing one that is on a device would wait for it."""
    shown = [f"{key}:{value}" for key, value in values.items() if isinstance(value, numbers.Real)]
    return " - ".join([f"step:{step}", *shown]) + "\n"


def _reduced(name: str, values: Any) -> Any:
    if hasattr(values, "aggregate"):
        return values.aggregate()
    if not isinstance(values, (list, tuple)) and not getattr(values, "ndim", 0):
        return values
    import numpy as np

    words = set(re.split(r"[/_]", name))
    if "max" in words:
        return max(values)
    if "min" in words:
        return min(values)
    return float(np.mean(values))


def _is_empty(values: Any) -> bool:
    if hasattr(values, "aggregate"):
        values = values.values
    return hasattr(values, "__len__") and not isinstance(values, str) and len(values) == 0


def _exporters(chosen: Sequence[str]) -> list[str] | None:
    """Return the exporters for verl's backends, always with the file: it is what `otel-ml replay` starts from."""
    found = [EXPORTERS[backend] for backend in chosen if backend in EXPORTERS]
    return list(dict.fromkeys([*found, "jsonl"])) if found else None
