"""`create_tracker()`: one line chooses where a pipeline's metrics go, and it may be several places."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import otel_ml
from otel_ml import env
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.compat.roll.reducing import is_several, reduce_metrics
from otel_ml.compat.roll.tags import published, reduction_of
from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.step_axes import WITHIN, counted
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.exceptions import ConfigError
from otel_ml.flatten import leaves
from otel_ml.warn_once import say

__all__ = ["BaseTracker", "create_tracker"]

KNOWN = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio", "jsonl", "console", "stdout")

_ARGUMENTS = {
    "project": "experiment",
    "name": "name",
    "experiment_name": "name",
    "tags": "tags",
    "notes": "notes",
    "description": "notes",
}
"""What the trackers' arguments are for `otel_ml.init()`."""

Reduction = tuple[str, str | None]
"""Across ranks, and within one first: of a rank's numbers the last counts, of its lists every element."""

_REDUCED_ALREADY = {"std": "mean", "p50": "mean", "p99": "mean"}
"""A number under such a key is a deviation or a quantile already; that of one number would be 0, or itself."""


class BaseTracker:
    """Records what a pipeline logs; the base of all trackers, and the tracker of those that log nowhere."""

    def __init__(self) -> None:
        self.log_history: list[dict[str, Any]] = []

    def log(self, values: Mapping[str, Any], step: int, **keywords: Any) -> None:
        """Record values at a step: numbers (the last of a step counts), lists (each element does), texts, and groups.

        Never waits for a backend, and never raises.

        Args:
            values: key → value. A key may end with its reduction over all elements and ranks: `@sum`, `_p99`, `/max`.
            step: the global step.
            **keywords: `weight=` of the values in the mean, of which each counts then; `over=` a topology dimension;
                others are not used.
        """

    def finish(self) -> None:
        """Write everything, and end the run."""

    def replay(self, log_history: Iterable[Mapping[str, Any]]) -> None:
        """Record the history of a checkpoint again, in a new run.

        A run that is continued (`otel_ml.init(id=…)`, or a restart of the same launch) still has its history.
        """
        for row in log_history:
            self.log(row["metrics"], row["step"])


class Tracker(BaseTracker):
    """Records through otel_ml."""

    def __init__(self, *, prints: bool) -> None:
        super().__init__()
        self._prints = prints
        self._variables = RunEnvironment()
        # Before init() reads where to send; put back once the run has ended.
        self._variables.set(_beside_traces_of_roll(os.environ))

    @reports_unrecordable
    def log(self, values: Mapping[str, Any], step: int, **keywords: Any) -> None:
        step = counted(step)
        # otel_ml.log() takes one reduction for all values of a call, so there is a call for each.
        by_reduction: dict[Reduction, dict[str, Any]] = {}
        numbers: dict[str, Any] = {}
        for key, value in leaves(values, "/"):
            if type(value) in (float, int):  # nearly all: nothing of it has to be looked at
                name, reduction = _of_one_number(key)
                by_reduction.setdefault(reduction, {})[name] = numbers[key] = value
                continue
            if isinstance(value, Mapping):
                continue  # an empty one
            if _is_plain(value):
                numbers[key] = value
            if isinstance(value, str):
                otel_ml.log_text(published(key), value, step=step)
            elif (flat := _records(value)) is not None:
                by_reduction.setdefault(_reduction(key, value), {})[published(key)] = flat
        weight, over = keywords.get("weight"), keywords.get("over")
        for (across, within), found in by_reduction.items():
            if weight is not None and across == "mean":  # each value is a part of the mean
                otel_ml.log(found, step=step, reduce=across, weight=weight, over=over)
            else:
                otel_ml.log(found, step=step, reduce=across, within=within, over=over)
        self._remember(numbers, step)

    def finish(self) -> None:
        otel_ml.shutdown()
        self._variables.undo()

    def _remember(self, numbers: dict[str, Any], step: int) -> None:
        reduced = reduce_metrics(numbers)
        # With the tags in the keys, for replay() to reduce by them again.
        self.log_history.append({"step": step, "metrics": reduced})
        if self._prints:
            shown = {published(key): value for key, value in reduced.items()}
            line = json.dumps({"step": step, "metrics": shown}, default=_in_json)
            print_line(f"metrics_tag: {line}")


def create_tracker(tracker_name: str | Sequence[str], config: Any, **kwargs: Any) -> BaseTracker:
    """Start the run, record its parameters, and return what the pipeline logs to.

    Args:
        tracker_name: `tensorboard`, `wandb`, `mlflow`, `swanlab`, `trackio`, `jsonl`, `console`, `stdout` (one line
            of JSON a step), several of them with commas, or nothing: then nothing is recorded.
        config: parameters of the pipeline; values of any kind.
        **kwargs: `project`, `name` or `experiment_name`, `tags`, `notes` or `description`; others are said to be
            unused.

    Raises:
        ConfigError: a name is unknown (also a ValueError).
    """
    names = tracker_name.split(",") if isinstance(tracker_name, str) else list(tracker_name or ())
    wanted = [name.strip() for name in names if name and name.strip()]
    if not wanted:
        return BaseTracker()
    unknown = [name for name in wanted if name not in KNOWN]
    if unknown:
        raise ConfigError(f"Tracker {unknown[0]!r}: expected one of {', '.join(KNOWN)}. Correct track_with.")
    unused = sorted(name for name, value in kwargs.items() if name not in _ARGUMENTS and value is not None)
    if unused:
        say(
            "compat-roll",
            f"Tracker arguments {', '.join(unused)} have no meaning here. The folder is OTEL_ML_DIR, "
            "and what a backend needs, such as its key, is set where the service runs.",
        )
    arguments = {_ARGUMENTS[name]: value for name, value in kwargs.items() if name in _ARGUMENTS and value is not None}
    exporters = with_exporters_of_the_job(["jsonl", *(name for name in wanted if name != "stdout")])
    # Before init(): it sets the variables by which the run does not go to ROLL's collector.
    tracker = Tracker(prints="stdout" in wanted)
    otel_ml.init(**arguments, params=config, exporters=exporters)
    return tracker


def _beside_traces_of_roll(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables by which a run does not go to the collector that ROLL starts for its own traces."""
    if environ.get("ROLL_OTEL_ENABLED") != "1" or environ.get(env.MODE.name):
        return {}
    say(
        "compat-roll",
        f"ROLL_OTEL_ENABLED=1 sets {env.ENDPOINT.name} to a collector of ROLL's own, which takes traces alone: the run "
        f"is not sent there. Set {env.MODE.name}=remote to send it all the same.",
    )
    return {env.MODE.name: "embedded"}


def _records(value: Any) -> Any | None:
    """Return what otel_ml takes: one number or a flat sequence of them; None for an empty one."""
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) > 1:
        # On its device: nothing waits for it.
        value = value.reshape(-1)
    is_empty = (isinstance(value, (list, tuple)) and not value) or (shape is not None and math.prod(shape) == 0)
    return None if is_empty else value


def _is_plain(value: Any) -> bool:
    """Whether a value is a text, a number or numbers in this process' memory: others are asked for nothing."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, (int, float, np.number)) for item in value)
    return isinstance(value, (int, float, str, np.number))


def _in_json(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _reduction(key: str, value: Any) -> Reduction:
    has_several = is_several(value) or len(getattr(value, "shape", ())) > 0
    return (reduction_of(key), None) if has_several else _of_one_number(key)[1]


@lru_cache(maxsize=4096)
def _of_one_number(key: str) -> tuple[str, Reduction]:
    """Return the name under which a number is published, and its reduction."""
    tag = reduction_of(key)
    return published(key), (_REDUCED_ALREADY.get(tag, tag), WITHIN)
