"""The collector of this process: what waits for a flush, and what only the process itself can reduce."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import otel_ml
from otel_ml._internal.record.append import append
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.definition import FLUSHED
from otel_ml._internal.steps.axes import current_step, scope_steps
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.step import At, step_of
from otel_ml.compat.forge.accumulators import MetricAccumulator, SampleAccumulator, State, accumulator_for
from otel_ml.compat.forge.environment_variables import are_metrics_off
from otel_ml.compat.forge.merging import merged_metrics, say_failed
from otel_ml.compat.forge.metric import Metric, Reduce, held_value
from otel_ml.compat.forge.modes import LoggingMode, modes_from, publish, stream
from otel_ml.compat.tracking.run_of_the_job import has_run
from otel_ml.compat.tracking.step_axes import counted, whole
from otel_ml.warn_once import say
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["COLLECTOR", "MODES_VARIABLE", "Collector", "Place", "publish_merged"]

MODES_VARIABLE = "FORGE_LOGGING_MODES"
"""How processes that never see the configuration know its modes; see `child_env()`."""

WINDOW_S = 10.0
"""Where nobody flushes, tables of samples and values of users' reductions are written this often."""

MAX_FLUSHES = 1_000
"""Flushes whose step is remembered, for times of a device that began before them."""

MAX_HELD = 100_000
"""Values that wait for a flush; those after are recorded at once, at the step after the last flush."""


class Place(NamedTuple):
    """Where a process is: what is measured from here on belongs here, also when it is known later.

    Attributes:
        step: the current one.
        flushes: how many there have been.
    """

    step: Step
    flushes: int


class Collector:
    """Owns what this process has not recorded yet. The lock guards the swap at a flush, and nothing slow."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew; also in a forked child, whose parent records what it holds."""
        self._lock = threading.RLock()  # reentrant: a signal handler may record while the main thread does
        self._held: list[Metric] = []
        self._own: dict[str, MetricAccumulator] = {}
        self._own_since = 0.0
        self._newest = 0
        # `_waits`: somebody flushes; before that values are recorded at once. `_leads`: nobody else sets steps, so the
        # flushes do.
        self._waits = self._leads = False
        self._step: int | None = None
        self._flushed: deque[int] = deque(maxlen=MAX_FLUSHES)
        self._flushes = 0
        self.modes: frozenset[LoggingMode] = modes_from(os.environ.get(MODES_VARIABLE, "")) or frozenset(
            {LoggingMode.GLOBAL_REDUCE}
        )

    def begin(self, modes: Iterable[LoggingMode], global_step: int) -> None:
        """From now on values wait for `flush()`, which says their step."""
        self.modes = frozenset(modes) or self.modes
        self._step = global_step
        self._waits = True
        self._leads = otel_ml.current_step() is None
        self._lead(global_step)
        self._at_exit()

    def _lead(self, step: int) -> None:
        """Be in the step that the next flush is expected to name, where the program itself says none.

        So the step before is complete with its flush, and actors that know nothing of steps follow.
        """
        if self._leads:
            otel_ml.set_step(step)

    def place(self) -> Place:
        """Return where the process is now."""
        return Place(current_step(), self._flushes)

    def push_at(self, place: Place, metric: Metric) -> None:
        """Take a value that belongs where the process was, such as what began there."""
        # With `passed` flushes since, the first of them has taken what was pushed at that place: `_flushed[-passed]`
        # is its step. Beyond MAX_FLUSHES the step is forgotten, and the value goes where the process is now.
        passed = self._flushes - place.flushes
        if self._waits and 0 < passed <= len(self._flushed):
            publish(metric, self.modes, self._flushed[-passed])
        elif place.step is current_step():
            self.push(metric)
        else:
            with At(place.step):
                self.push(metric)

    def push(self, metric: Metric) -> None:
        """Take a value; never raises, never waits. Without a run it is dropped, which otel_ml reports once."""
        if are_metrics_off():
            return
        if not has_run():
            say(
                "compat-forge",
                "Metric logging backends were not initialized: what is recorded before init_backends() or "
                "otel_ml.init() is dropped, as there is no run yet. Call one of them first; an actor elsewhere needs "
                "the variables of child_env().",
            )
            return
        if not isinstance(metric.reduction, Reduce) or metric.reduction is Reduce.SAMPLE:
            self._reduce_here(metric)
            return
        # Before what waits: torchforge's streaming backends get each value at the push, and not at a flush.
        if LoggingMode.PER_RANK_NO_REDUCE in self.modes:
            stream(metric, self._number(metric.timestamp))
            if self.modes == {LoggingMode.PER_RANK_NO_REDUCE}:
                return
        if not self._waits:
            publish(metric, self.modes, None)
        elif len(self._held) < MAX_HELD:
            # Copied before the lock is taken: a large tensor takes its time, and a flush would wait for it.
            held = replace(metric, value=held_value(metric.value))
            with self._lock:
                self._held.append(held)
        else:
            say(
                "compat-forge",
                f"{MAX_HELD:,} values wait for a flush; those after them are recorded at the next step. "
                "Call flush() once per training step.",
            )
            publish(metric, self.modes, self._step)

    def flush(self, global_step: int) -> dict[str, State]:
        """Record what waited at `global_step`; return the states of what only processes can reduce."""
        global_step = counted(global_step)
        if self._waits and not self._held:
            _mark(global_step)
        return self._let_go(global_step)

    def _let_go(self, global_step: int) -> dict[str, State]:
        with self._lock:
            held, self._held = self._held, []
            own, self._own, self._own_since = self._own, {}, 0.0
            self._flushed.append(global_step)
            self._flushes += 1
        for metric in held:
            publish(metric, self.modes, global_step)
        # What is not a step is reported where it is recorded, and moves nothing on.
        index = whole(global_step)
        if index is not None:
            self._step = index + 1
            self._lead(self._step)
        return _states_of(own)

    def finish(self) -> None:
        """Record what nobody will flush anymore, at the step after the last flush."""
        step = self._step if self._waits else None
        publish_merged([self._let_go(step or 0)], step)

    def _number(self, timestamp: float | None) -> int:
        """Return where on the streaming axis a value is: milliseconds since 1970, no two the same.

        A number from 0 on would begin anew in a process that was started again, and look like a job that went back.
        """
        recorded_s = time.time() if timestamp is None else timestamp  # None: it was taken away after the record
        with self._lock:
            self._newest = max(self._newest + 1, int(recorded_s * 1e3))
            return self._newest

    def _reduce_here(self, metric: Metric) -> None:
        with self._lock:
            try:
                # By its key alone: the first reduction of a key holds until the next flush.
                accumulator = self._own.get(metric.key)
                if accumulator is None:
                    accumulator = self._own[metric.key] = accumulator_for(metric.reduction)
                    self._own_since = self._own_since or time.monotonic()
                accumulator.append(metric.value)
            except Exception as error:  # noqa: BLE001 (a user's reduction fails in any way)
                say_failed(metric.key, error)
        self._at_exit()
        if not self._waits and time.monotonic() - self._own_since > WINDOW_S:
            self._write_window()

    def _write_window(self) -> None:
        with self._lock:
            own, self._own, self._own_since = self._own, {}, 0.0
        publish_merged([_states_of(own)], None)

    def _at_exit(self) -> None:
        # Callbacks run last registered first: after each new one of otel_ml's, ours has to come again.
        atexit.unregister(self.finish)
        atexit.register(self.finish)


def _mark(global_step: Any) -> None:
    """Have a step be one of the run, where this process has nothing for it: what actors recorded before belongs there.

    The service gives what has no step to the first row that has something newer, and a row begins with a record.
    """
    index = step_of(global_step)
    if index is not None and has_run() and not NOW.off and not are_metrics_off():
        append((FLUSHED, scope_steps().at(DEFAULT_AXIS, index), 1.0, time.time_ns()))


def _states_of(accumulators: Mapping[str, MetricAccumulator]) -> dict[str, State]:
    states: dict[str, State] = {}
    for key, accumulator in accumulators.items():
        try:
            states[key] = accumulator.get_state()
        except Exception as error:  # noqa: BLE001 (a user's reduction fails in any way)
            say_failed(key, error)
    return states


COLLECTOR = Collector()

os.register_at_fork(after_in_child=COLLECTOR.forget)


def publish_merged(states: list[Mapping[str, State]], step: int | None) -> None:
    """Record what states merge into: tables for samples, numbers for the rest."""
    for metric in merged_metrics(states):
        if metric.reduction is Reduce.SAMPLE or metric.reduction is SampleAccumulator:
            otel_ml.log_table(metric.key, [dict(sample) for sample in metric.value], step=step)
        else:
            otel_ml.record(metric.key, metric.value, step=step)
