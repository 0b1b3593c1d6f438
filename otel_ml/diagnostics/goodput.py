"""Goodput: time and steps count as productive once a checkpoint that holds them succeeded, on every rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from os import PathLike
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.read_run import metric_rows, metrics_file
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.exceptions import ConfigError, OtelMLError
from otel_ml.never_raises import never_raises

__all__ = ["MEASURES", "Goodput", "GoodputReport", "goodput_of"]

MEASURES = Measures(
    Measure("goodput/worked", "s", ("sum",), "Time that ranks worked in a step."),
    Measure("goodput/ranks", "1", ("sum",), "Ranks that did a step.", "max"),
    Measure("goodput/began", "s", ("min",), "Unix time at which this start of the job began.", "min"),
    Measure("goodput/saved_step", "{step}", ("min", "count"), "Last step in a checkpoint that succeeded.", "max"),
    Measure("goodput/fraction", "1", ("mean",), "Saved work per time since the first start.", "last"),
    Measure("goodput/steps", "{step}", ("min",), "Steps in checkpoints that succeeded.", "last"),
    Measure("goodput/lost", "s", ("max",), "Work that would be lost if the job died now.", "last"),
)
"""What is recorded, by name."""

_STATE = ("began", "saved_seconds", "saved_steps")


class Goodput:
    """Keeps on each rank what is done and what is saved; `state()` goes into the checkpoint.

    `goodput/fraction` is what this rank knows while the job runs. `goodput_of()` reads the run and counts a checkpoint
    only where all ranks saved it.

    Args:
        state: what `state()` put into the checkpoint that the job goes on from.
        clock: Unix seconds; for tests. By default nobody can set it: the system's is read once.

    Raises:
        ConfigError: `state` is not one.

    Examples:
        ```python
        goodput = Goodput(state=checkpoint.get("goodput"))
        for step, batch in enumerate(loader, start):
            with goodput.work(step):
                train(batch)
            if step % 100 == 0:
                save({"model": model, "goodput": goodput.state(step)})
                goodput.saved(step)  # when the save has succeeded; an asynchronous one later
        ```
    """

    def __init__(self, *, state: Mapping[str, float] | None = None, clock: Callable[[], float] | None = None) -> None:
        self._clock = _steady_clock() if clock is None else clock
        self._start = self._clock()
        began, seconds, steps = (self._start, 0.0, 0.0) if state is None else _state_in(state)
        # The beginning is that of the first start, so a pause between two starts is time without goodput.
        self._began, self._saved_seconds, self._saved_steps = began, seconds, int(steps)
        # Who saves in the background says so from there; a signal handler that saves, in the middle of a step.
        self._lock = threading.RLock()
        self._unsaved: dict[int, float] = {}
        self._lost = 0.0  # their sum: a job may do thousands of steps before it saves
        self._newest: int | None = None

    def work(self, step: int) -> AbstractContextManager[None]:
        """Time the work of `step`; what raises is not work."""
        return _Work(self._clock, self._worked, step)

    def _worked(self, step: int, seconds: float) -> None:
        with self._lock:
            self._unsaved[step] = self._unsaved.get(step, 0.0) + seconds
            self._lost += seconds
            # At this step `saved()`, which another thread may call, records what it changes.
            self._newest = step
        worked = {"goodput/worked": seconds, "goodput/ranks": 1.0, "goodput/began": self._start}
        MEASURES.record(worked | self._state_now(), step=step)

    @never_raises
    def saved(self, step: int) -> None:
        """A checkpoint that holds all steps up to `step` succeeded: they count from now on. Any thread may say so."""
        with self._lock:
            # Both at once, and before the steps leave `_unsaved`: `_until()` counts those that are there.
            self._saved_seconds, self._saved_steps = self._until(step)
            self._unsaved = {unsaved: seconds for unsaved, seconds in self._unsaved.items() if unsaved > step}
            self._lost = sum(self._unsaved.values())
        # At the step of the checkpoint, so that ranks meet that learn of it at different times.
        MEASURES["goodput/saved_step"].record(step, step=step)
        MEASURES.record(self._state_now(), step=self._newest)

    def state(self, step: int) -> dict[str, float]:
        """Return what the checkpoint of `step` keeps: it counts, since who reads it read the checkpoint."""
        with self._lock:
            seconds, steps = self._until(step)
        return dict(zip(_STATE, (self._began, seconds, steps), strict=True))

    def _until(self, step: int) -> tuple[float, int]:
        held = [seconds for unsaved, seconds in self._unsaved.items() if unsaved <= step]
        return self._saved_seconds + sum(held), self._saved_steps + len(held)

    def _state_now(self) -> dict[str, float]:
        values = {"goodput/steps": float(self._saved_steps), "goodput/lost": self._lost}
        total = self._clock() - self._began
        if total > 0:
            values["goodput/fraction"] = self._saved_seconds / total
        return values


def _steady_clock() -> Callable[[], float]:
    """Return a clock of Unix seconds that goes on evenly where the system's is set: work is a difference of two."""
    beginning = time.time() - time.monotonic()
    return lambda: beginning + time.monotonic()


def _state_in(state: Any) -> tuple[float, ...]:
    if isinstance(state, Mapping) and set(state) == set(_STATE):
        with suppress(TypeError, ValueError):
            return tuple(float(state[name]) for name in _STATE)
    raise ConfigError(f"Goodput: state: expected what state() returned, got {state!r:.80}.")


class _Work:
    """The `with` block of `Goodput.work()`: a generator in its place takes longer with cold caches."""

    __slots__ = ("_began", "_clock", "_step", "_worked")

    def __init__(self, clock: Callable[[], float], worked: Callable[[int, float], None], step: int) -> None:
        self._clock = clock
        self._worked = worked
        self._step = step

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._worked(self._step, self._clock() - self._began)


@dataclass(frozen=True, slots=True)
class GoodputReport:
    """What a run says of its goodput, over all starts of the job.

    Attributes:
        total: rank-seconds from the first start to the last row, pauses between starts included.
        worked: rank-seconds of work, whatever became of it.
        productive: rank-seconds of work that a checkpoint of all ranks holds.
        steps: that such a checkpoint holds.
        unsaved_steps: done after the last such checkpoint.
        incomplete: checkpoint's step → (ranks that saved it, ranks there were), where those differ.
    """

    total: float
    worked: float
    productive: float
    steps: int
    unsaved_steps: int
    incomplete: Mapping[int, tuple[int, int]]

    @property
    def fraction(self) -> float | None:
        """Productive per total time; None where there is no time."""
        return self.productive / self.total if self.total > 0 else None


def goodput_of(run: otel_ml.Run | str | PathLike[str], *, role: str | None = None) -> GoodputReport:
    """Read the goodput of a run back from its `metrics.jsonl`: all ranks, all starts.

    Work counts where a checkpoint of that start or a later one holds its step, and no later start did it again.

    Args:
        run: as `otel_ml.read()` takes it.
        role: whose goodput; by default that of `trainer`, or of the only role that recorded any.

    Raises:
        OtelMLError: there is no such file, nothing of `Goodput` in it, or that of several other roles and `role` is
            not given.
    """
    rows = _rows(run, role)
    worked: dict[tuple[int, int], float] = {}
    ranks: dict[tuple[int, int], int] = {}
    saved: dict[tuple[int, int], tuple[int, int]] = {}
    for key, values in _by_step(rows).items():
        if "goodput/worked" in values:
            worked[key] = float(values["goodput/worked"])
            ranks[key] = int(values["goodput/ranks"])
        if "goodput/saved_step" in values:
            saved[key] = (int(values["goodput/saved_step"]), int(values["goodput/saved_step/count"]))
    # Start of the job → its last checkpoint that all ranks saved: in their order, the last one stays.
    complete = {
        attempt: step
        for (attempt, step), (_, count) in sorted(saved.items())
        if count >= ranks_at(ranks, (attempt, step))
    }
    # A step that was done again counts where it was done last.
    newest = {step: attempt for attempt, step in sorted(worked)}
    held = [
        (attempt, step)
        for step, attempt in newest.items()
        if any(until >= step for later, until in complete.items() if later >= attempt)
    ]
    return GoodputReport(
        # Rank-seconds: each rank has been there, or should have been, from the first start on.
        total=_elapsed(rows) * max(ranks.values()),
        worked=sum(worked.values()),
        productive=sum(worked[key] for key in held),
        steps=len(held),
        unsaved_steps=len(newest) - len(held),
        incomplete={
            key[1]: (count, ranks_at(ranks, key)) for key, (_, count) in saved.items() if count < ranks_at(ranks, key)
        },
    )


def _by_step(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return what is known of each (attempt, step): a correction has only what it changes."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        found.setdefault((int(row.get("attempt", 0)), int(row["step"])), {}).update(row["values"])
    return found


def ranks_at(ranks: Mapping[tuple[int, int], int], key: tuple[int, int]) -> int:
    """Return how many ranks did the step, or the most there ever were where the row does not say."""
    return ranks.get(key) or max(ranks.values())


def _elapsed(rows: list[dict[str, Any]]) -> float:
    began = min(float(row["values"]["goodput/began"]) for row in rows if "goodput/began" in row["values"])
    return max(float(row["time"]) for row in rows) - began


def _rows(run: otel_ml.Run | str | PathLike[str], role: str | None) -> list[dict[str, Any]]:
    """Return the rows of one role that hold something of goodput, by names without the role."""
    path = metrics_file(run)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in metric_rows(path):
        named = {name.removeprefix(f"{row['role']}/"): value for name, value in row["values"].items()}
        if any(name.startswith("goodput/") for name in named):
            rows.setdefault(row["role"], []).append({**row, "values": named})
    working = {who: found for who, found in rows.items() if any("goodput/worked" in row["values"] for row in found)}
    # A role that is alone is meant; of several the trainer is.
    wanted = role or ("trainer" if "trainer" in working or len(working) != 1 else next(iter(working)))
    if wanted not in working:
        others = f" There is goodput of {', '.join(sorted(working))}: pass role=." if working else ""
        raise OtelMLError(
            f"Nothing of Goodput of role {wanted!r} in {str(path)!r}. Record work(step) in the job.{others}",
            slug="no-metrics",
        )
    return working[wanted]
