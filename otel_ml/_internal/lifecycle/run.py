"""What `init()` returns."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Protocol, TypeVar, overload

from otel_ml._internal.error_reporting import answered
from otel_ml._internal.events import artifact_calls
from otel_ml._internal.events import event_calls as events
from otel_ml._internal.lifecycle.run_methods import RunTimer, RunTiming, asked_of_run, in_run, inside
from otel_ml._internal.lifecycle.timeout_argument import timeout_of
from otel_ml._internal.record import log as recording
from otel_ml._internal.run_scope import InScope, Scope
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.series.reduction_arguments import Reduce
from otel_ml._internal.signature import MISSING, public, publish
from otel_ml._internal.steps.current import current_step
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.steps.step import step as step_block
from otel_ml._internal.timers.consumed import consumed
from otel_ml._internal.timers.context import NOWHERE, context
from otel_ml._internal.timers.manual_timer import timer_of
from otel_ml._internal.timers.step_loop import StepLoop
from otel_ml._internal.timers.step_loop import steps as steps_of
from otel_ml.printable import printable
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["Lifecycle", "Run"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Lifecycle(Protocol):
    """Who ends the run."""

    def enter(self, run: Run) -> None:
        """Note that a block of the run begins; within it, a library's `with init()` ends nothing."""

    def leave(self, run: Run, error: BaseException | None) -> None:
        """End the run with its outermost block, which an exception has left if there is one, if it is still active."""

    def is_going_on(self, run: Run) -> bool:
        """Whether the run has not ended."""

    def end_run(self, run: Run, timeout: float | None = None) -> bool:
        """End the run, if it goes on."""

    def flush_run(self, run: Run, timeout: float) -> bool:
        """Send what is recorded into it."""

    def child_env_of(self, run: Run) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins it."""


@public
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

    @overload
    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        *,
        axis: str | None = None,
        prefix: str | None = None,
        reduce: Reduce = None,
        within: str | None = None,
        over: str | None = None,
        weight: Any = None,
        attributes: Mapping[str, object] | None = None,
        commit: bool | None = None,
    ) -> None: ...
    @overload
    def log(self, name: str, value: Any, step: int | None = None, /, **options: Any) -> None: ...
    @overload
    def log(self, *, step: int | None = None, axis: str | None = None, **values: Any) -> None: ...
    @in_run(recording.log)  # type: ignore[misc] # of several forms a checker takes the first one for all
    def log(self) -> None:
        """Record values into this run; see `otel_ml.log()`."""

    @overload
    def record(
        self,
        name: str,
        value: Any,
        step: int | None = None,
        *,
        axis: str | None = None,
        prefix: str | None = None,
        reduce: Reduce = None,
        within: str | None = None,
        over: str | None = None,
        weight: Any = None,
        attributes: Mapping[str, object] | None = None,
    ) -> None: ...
    @overload
    def record(self, values: Mapping[str, Any], step: int | None = None, /, **options: Any) -> None: ...
    @in_run(recording.record)  # type: ignore[misc] # the same
    def record(self) -> None:
        """Record one value into this run; see `otel_ml.record()`."""

    @asked_of_run(define_metric, None)
    def define_metric(self) -> None:
        """Say once how a metric is reduced in this run; see `otel_ml.define_metric()`."""

    @asked_of_run(set_step, None)
    def set_step(self) -> None:
        """Make a step the current one of this run; see `otel_ml.set_step()`."""

    @asked_of_run(context, NOWHERE)
    def context(self) -> None:
        """Return what names this moment of this run for others; see `otel_ml.context()`."""

    @in_run(consumed)
    def consumed(self) -> None:
        """Say what a step of this run is made of; see `otel_ml.consumed()`."""

    @asked_of_run(current_step, None)
    def current_step(self) -> None:
        """Return the number of the current step of this run; see `otel_ml.current_step()`."""

    @in_run(events.event)
    def event(self) -> None:
        """Record that something happened in this run; see `otel_ml.event()`."""

    @in_run(events.log_params)
    def log_params(self) -> None:
        """Record hyper-parameters of this run; see `otel_ml.log_params()`."""

    @in_run(events.log_text)
    def log_text(self) -> None:
        """Record a text in this run; see `otel_ml.log_text()`."""

    @in_run(events.log_table)
    def log_table(self) -> None:
        """Record a table in this run; see `otel_ml.log_table()`."""

    @in_run(events.log_image)
    def log_image(self) -> None:
        """Record an image in this run; see `otel_ml.log_image()`."""

    @in_run(events.log_figure)
    def log_figure(self) -> None:
        """Record a matplotlib figure as an image in this run; see `otel_ml.log_figure()`."""

    @in_run(events.log_audio)
    def log_audio(self) -> None:
        """Record a sound in this run; see `otel_ml.log_audio()`."""

    @in_run(events.log_histogram)
    def log_histogram(self) -> None:
        """Record a distribution in this run; see `otel_ml.log_histogram()`."""

    @in_run(artifact_calls.log_artifact)
    def log_artifact(self) -> None:
        """Record a file or a folder in this run; see `otel_ml.log_artifact()`."""

    @in_run(artifact_calls.log_checkpoint)
    def log_checkpoint(self) -> None:
        """Record a checkpoint in this run; see `otel_ml.log_checkpoint()`."""

    @in_run(events.log_summary)
    def summary(self) -> None:
        """Record final scalars: W&B summary, MLflow metric, TensorBoard hparams metric.

        Equal values of several ranks are one entry, that of the lowest; one that differs is `<name>/rank_<r>`, decided
        at the end of the run.
        """

    @property
    def is_active(self) -> bool:
        """Whether it goes on."""
        return self._lifecycle.is_going_on(self)

    @property
    def urls(self) -> Mapping[str, str]:
        """Where to look, by exporter; empty while the service does not answer. Asks the service."""
        exporters = (self._status() or {}).get("exporters") or {}
        return {name: str(state["url"]) for name, state in exporters.items() if state.get("url")}

    @overload
    def step(self, index: int, axis: str = DEFAULT_AXIS) -> AbstractContextManager[None]: ...
    @overload
    def step(self, *, step: int, axis: str = DEFAULT_AXIS) -> AbstractContextManager[None]: ...
    @publish("self", "index", "axis", required=2)  # type: ignore[misc] # `step=` is among `unknown`
    def step(
        self, index: Any = MISSING, axis: str = DEFAULT_AXIS, /, *more: NoReturn, **unknown: NoReturn
    ) -> AbstractContextManager[None]:
        """Make `index` the current step of this run inside a `with` block; see `otel_ml.step()`."""
        if self._scope.is_over:
            # The body of the block runs all the same.
            return nullcontext()
        with InScope(self._scope):
            return step_block(index, axis, *more, **unknown)

    @publish("self", "iterable", "start")
    @answered
    def steps(
        self,
        iterable: Iterable[T] | AsyncIterable[T],
        start: int | None = None,
        *,
        axis: str = DEFAULT_AXIS,
    ) -> StepLoop[T]:
        """Iterate over `iterable`, each item in a step of its own of this run; see `otel_ml.steps()`."""
        return steps_of(iterable, start, axis=axis).of(self._scope)

    @overload
    def timed(self, name: F, /) -> F: ...
    @overload
    def timed(
        self,
        name: str | None = None,
        /,
        *,
        level: int = 1,
        reduce: Reduce = None,
        within: str | None = None,
        span: bool = True,
        device: str | None = None,
        kind: Literal["work", "wait"] | None = None,
    ) -> RunTiming: ...
    @publish("self", "name")
    @answered
    def timed(
        self,
        name: Any = None,
        level: int = 1,
        reduce: Reduce = None,
        within: str | None = None,
        span: bool = True,
        device: str | None = None,
        kind: Literal["work", "wait"] | None = None,
    ) -> Any:
        """Time a `with` block, or every call of a function, into this run; see `otel_ml.timed()`."""
        # In the body of a class `@run.timed` is given what `@classmethod` has made, which cannot be called.
        is_function = callable(name) or isinstance(name, (staticmethod, classmethod))
        options = {"level": level, "reduce": reduce, "within": within, "span": span, "device": device, "kind": kind}
        timing = RunTiming(self._scope, None if is_function else name, options)
        return timing(name) if is_function else timing

    @publish("self", "name")
    @answered
    def timer(
        self,
        name: str,
        level: int = 1,
        reduce: Reduce = None,
        within: str | None = None,
        span: bool = True,
        device: str | None = None,
        kind: Literal["work", "wait"] | None = None,
    ) -> RunTimer:
        """Return a timer that is started and stopped by hand, for this run; see `otel_ml.timer()`."""
        made = timer_of(self.id, name, level, reduce, within, span=span, device=device, kind=kind)
        return RunTimer(self._scope, made)

    @answered
    def use(self) -> AbstractContextManager[None]:
        """Make it the current run inside a `with` block, for this context only: in a thread that has begun none.

        Leaving the block ends nothing. What is recorded in the block of a run that has ended is in no run, and said.
        """
        return inside(self._scope)

    @answered
    def child_env(self) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins this run."""
        return self._lifecycle.child_env_of(self)

    @publish("self", "timeout")
    @answered
    def flush(self, timeout: float = 2.0) -> bool:
        """Send what was recorded into it; return whether all was acknowledged within `timeout` seconds."""
        return self._lifecycle.flush_run(self, timeout_of("flush", timeout, 2.0))

    @publish("self", "timeout")
    @answered
    def shutdown(self, timeout: float | None = None) -> bool:
        """End it, and no other run; see `otel_ml.shutdown()`."""
        return self._lifecycle.end_run(self, timeout_of("shutdown", timeout, None))

    @publish("self", "timeout")
    @answered
    def finish(self, timeout: float | None = None) -> bool:
        """End it as `shutdown()` does, under the name that W&B's runs have for it."""
        return self._lifecycle.end_run(self, timeout_of("finish", timeout, None))

    def __enter__(self) -> Run:
        self._lifecycle.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lifecycle.leave(self, error)

    def __repr__(self) -> str:
        return f"Run({self.experiment}/{self.id}, role={self.role!r}, rank={self.rank})"

    def _repr_html_(self) -> str:
        links = "".join(f"<li>{_shown(name)}: {_link(url)}</li>" for name, url in sorted(self.urls.items()))
        folder = f"<br><code>{_shown(str(self.dir))}</code>" if self.dir else ""
        title = f"<b>{_shown(self.experiment)}</b> / {_shown(self.name)}"
        return f"<div>otel_ml run {title}{folder}<ul>{links}</ul></div>"


def _shown(text: str) -> str:
    import html  # in a notebook: most programs never load it

    return html.escape(printable(text))


def _link(url: str) -> str:
    # An address is what an exporter says: no link is made of `javascript:` and the like.
    shown = _shown(url)
    return f'<a href="{shown}" target="_blank">{shown}</a>' if url.startswith(("http://", "https://")) else shown
