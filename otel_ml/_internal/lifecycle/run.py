"""What `init()` returns."""

from __future__ import annotations

import html
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from otel_ml._internal.events import event_calls as events
from otel_ml._internal.here import Inside, Scope
from otel_ml._internal.lifecycle.run_methods import RunTimer, RunTiming, in_run, refuse
from otel_ml._internal.record.log import log, record
from otel_ml._internal.series.definition import Reduce, define_metric
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.steps.step import step as step_block
from otel_ml._internal.timers.step_loop import StepLoop
from otel_ml._internal.timers.step_loop import steps as steps_of
from otel_ml.printable import printable
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["Lifecycle", "Run"]

T = TypeVar("T")


class Lifecycle(Protocol):
    """Who ends the run."""

    def enter(self, run: Run) -> None:
        """Note that a block of the run begins; within it, a library's `with init()` ends nothing."""

    def leave(self, run: Run, status: str) -> None:
        """End the run with its outermost block, if it is still active."""

    def is_going_on(self, run: Run) -> bool:
        """Whether the run has not ended."""

    def end_run(self, run: Run, timeout: float | None = None) -> bool:
        """End the run, if it goes on."""

    def flush_run(self, run: Run, timeout: float) -> bool:
        """Send what is recorded into it."""

    def child_env_of(self, run: Run) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins it."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run this process records into; a context manager, of which the outermost block ends it.

    It is current in the context (`contextvars`) in which `init()` was called: module-level calls there go to it. With
    one run in a process they do from everywhere. Each of them is a method, too, which is for this run wherever it is
    called.

    Attributes:
        id: keep it in checkpoints: `init(id=…)` continues the run.
        name: display name.
        experiment: W&B project, MLflow experiment, folder.
        dir: the run's folder, or None where the service is elsewhere.
        role: of this process.
        rank: of this process.
    """

    id: str
    name: str
    experiment: str
    dir: Path | None
    role: str
    rank: int
    _lifecycle: Lifecycle
    _status: Callable[[], Mapping[str, Any] | None]
    _scope: Scope

    log = in_run(log)
    record = in_run(record)
    define_metric = in_run(define_metric)
    set_step = in_run(set_step)
    event = in_run(events.event)
    log_artifact = in_run(events.log_artifact)
    log_audio = in_run(events.log_audio)
    log_checkpoint = in_run(events.log_checkpoint)
    log_figure = in_run(events.log_figure)
    log_histogram = in_run(events.log_histogram)
    log_image = in_run(events.log_image)
    log_params = in_run(events.log_params)
    log_table = in_run(events.log_table)
    log_text = in_run(events.log_text)

    @property
    def is_active(self) -> bool:
        """Whether it goes on."""
        return self._lifecycle.is_going_on(self)

    @property
    def urls(self) -> Mapping[str, str]:
        """Where to look, by exporter; empty while the service does not answer. Asks the service."""
        exporters = (self._status() or {}).get("exporters") or {}
        return {name: str(state["url"]) for name, state in exporters.items() if state.get("url")}

    def summary(self, values: Mapping[str, float]) -> None:
        """Record final scalars: W&B summary, MLflow metric, TensorBoard hparams metric.

        Equal values of several ranks are one entry, that of the lowest; one that differs is `<name>/rank_<r>`, decided
        at the end of the run.
        """
        _log_summary(self, values)

    def step(self, index: int, axis: str = DEFAULT_AXIS) -> AbstractContextManager[None]:
        """Make `index` the current step of this run inside a `with` block; see `otel_ml.step()`."""
        if self._scope.is_over:
            refuse(self, "step")
            return nullcontext()
        with Inside(self._scope):
            return step_block(index, axis)

    def steps(
        self, iterable: Iterable[T] | AsyncIterable[T], *, start: int | None = None, axis: str = DEFAULT_AXIS
    ) -> StepLoop[T]:
        """Iterate over `iterable`, each item in a step of its own of this run; see `otel_ml.steps()`."""
        return steps_of(iterable, start=start, axis=axis).of(self._scope)

    def timed(
        self,
        name: str,
        level: int = 1,
        reduce: Reduce = None,
        within: str | None = None,
        span: bool = True,
        device: str | None = None,
    ) -> RunTiming:
        """Time a `with` block, or every call of a function, into this run; see `otel_ml.timed()`."""
        return RunTiming(self._scope, name, level, reduce, within, span=span, device=device)

    def timer(
        self,
        name: str,
        level: int = 1,
        reduce: Reduce = None,
        within: str | None = None,
        span: bool = True,
        device: str | None = None,
    ) -> RunTimer:
        """Return a timer that is started and stopped by hand, for this run; see `otel_ml.timer()`."""
        return RunTimer(RunTiming(self._scope, name, level, reduce, within, span=span, device=device))

    def use(self) -> Inside:
        """Make it the current run inside a `with` block, for this context only: in a thread that has begun none.

        Leaving the block ends nothing.
        """
        return Inside(self._scope)

    def child_env(self) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins this run."""
        return self._lifecycle.child_env_of(self)

    def flush(self, timeout: float = 2.0) -> bool:
        """Send what was recorded into it; return whether all was acknowledged within `timeout` seconds."""
        return self._lifecycle.flush_run(self, timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """End it, and no other run; see `otel_ml.shutdown()`."""
        return self._lifecycle.end_run(self, timeout)

    def finish(self, timeout: float | None = None) -> bool:
        """End it as `shutdown()` does, under the name that W&B's runs have for it."""
        return self.shutdown(timeout)

    def __enter__(self) -> Run:
        self._lifecycle.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        is_fine = kind is None or (isinstance(error, SystemExit) and error.code in {None, 0})
        self._lifecycle.leave(self, "killed" if is_interrupted else "finished" if is_fine else "failed")

    def __repr__(self) -> str:
        return f"Run({self.experiment}/{self.id}, role={self.role!r}, rank={self.rank})"

    def _repr_html_(self) -> str:
        links = "".join(f"<li>{_shown(name)}: {_link(url)}</li>" for name, url in sorted(self.urls.items()))
        folder = f"<br><code>{_shown(str(self.dir))}</code>" if self.dir else ""
        title = f"<b>{_shown(self.experiment)}</b> / {_shown(self.name)}"
        return f"<div>otel_ml run {title}{folder}<ul>{links}</ul></div>"


_log_summary = in_run(events.log_summary)


def _shown(text: str) -> str:
    return html.escape(printable(text))


def _link(url: str) -> str:
    shown = _shown(url)
    return f'<a href="{shown}" target="_blank">{shown}</a>' if url.startswith(("http://", "https://")) else shown
