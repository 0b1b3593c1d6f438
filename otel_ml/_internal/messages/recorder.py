"""The record path of one process, as the background thread sees it: collect, and what was counted."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.devices.non_blocking_copy import STAGING
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.encode_metrics import encoded_gauge, encoded_scopes
from otel_ml._internal.messages.heartbeat import Heartbeat
from otel_ml._internal.messages.sent import Left, Sent
from otel_ml._internal.messages.sequence_number import Sequence
from otel_ml._internal.messages.watermark import is_step_complete
from otel_ml._internal.native import native
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN, values_in
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.record.baseline import Baseline
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.repeated_steps import RepeatedSteps
from otel_ml._internal.run_scope import NOW, PROCESS, SCOPES, Scope
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.series.buffer import RECORDS
from otel_ml._internal.series.definition import DEFINITIONS, QUANTILE_COARSE
from otel_ml._internal.series.pending import StepPartials
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.stage import forget_stages, parts_of
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers import spans
from otel_ml._internal.timers.consumed import calls_left, forget_consumed, settle_consumed
from otel_ml._internal.timers.trailing_steps import TrailingSteps
from otel_ml._internal.yield_interpreter import yield_interpreter
from otel_ml.wire.attributes import EVENTS, POINTS, RECORDED, VALUES, WATERMARK

__all__ = ["DEVICE_WAIT_S", "Batch", "Holds", "RecordSettings", "Recorder", "RunIsOverError", "recorder"]


_RECORD_S, _SPAN_S = (0.5e-6 if native is None else 0.2e-6), 2e-6
"""What a record and a timer's span cost between steps of 50 ms, with cold caches; a tight loop says a third of it."""

DEVICE_WAIT_S = 1.0
"""Seconds that the end waits for values of a device."""


Holds = tuple[str | None, int | None, int]
"""(axis, step, points) of one ScopeMetrics; no axis and no step where a process has none. Watermarks hold no points."""


class RunIsOverError(Exception):
    """Nothing is left to be collected for a run: what is recorded now is of the one after it."""


class Batch(NamedTuple):
    """What one collection produced, ready to be wrapped into OTLP requests.

    Attributes:
        scope_metrics: each the body of an OTLP ScopeMetrics (without outer tag and length), `ml.seq` inside.
        scope_spans: each the body of an OTLP ScopeSpans.
        points: metric points in it; watermarks and positions are not counted.
        values: the user's values folded into it.
        holds: for each of `scope_metrics` its (axis, step, points): what is lost when the spool has to drop it.
    """

    scope_metrics: tuple[bytes, ...] = ()
    scope_spans: tuple[bytes, ...] = ()
    points: int = 0
    values: int = 0
    holds: tuple[Holds, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """What the record path needs to know of the configuration."""

    flush_interval_ns: int = 1_000_000_000
    allowed_lateness_ns: int = 10_000_000_000
    timer_level: int = 1
    traces: Literal["timers", "off"] = "timers"
    spans_per_step: int = 100
    strict: bool = False


class Recorder:
    """One of each run; the first is `recorder`, created at import. `configure()`, `enabled` are `init()`'s business."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.run_number = 0
        self.sequence = Sequence()
        self._settings = RecordSettings()
        self._unsaid: dict[Step, None] = {}
        self._heartbeat = Heartbeat(self.scope, self.sequence)
        self.sent = Sent()
        self._recorded_at_end: int | None = None
        self._taken: deque[tuple[Step, StepPartials]] = deque()
        self._trailing_steps, self._baseline, self._repeated_steps = TrailingSteps(), Baseline(), RepeatedSteps()

    def configure(self, settings: RecordSettings, *, otel_tracing: bool = False) -> None:
        """Use `settings`; with `otel_tracing`, timers are also OpenTelemetry's current span."""
        self._settings = settings
        reporter.strict = settings.strict
        NOW.level = settings.timer_level if self.enabled else -1
        spans.configure(settings.spans_per_step if settings.traces == "timers" else 0, otel_tracing=otel_tracing)

    @property
    def enabled(self) -> bool:
        """Whether recording calls do anything."""
        return not NOW.off and not AFTER_SHUTDOWN.is_now

    @enabled.setter
    def enabled(self, value: bool) -> None:
        NOW.off = not value
        NOW.level = self._settings.timer_level if value else -1
        wanted, STEPS.wanted = STEPS.wanted, {}
        for axis, step in wanted.items():
            set_step(step, axis=axis)  # type: ignore[call-overload] # not looked at until now

    def collect(self, now_ns: int, *, final: bool = False, run_number: int | None = None) -> Batch:
        """Take everything recorded so far as wire bytes. Called by the background thread only.

        With `final`, device values are waited for, at most a second, and every step gets its watermark.

        Raises:
            RunIsOverError: what there is to collect is not of this run: `run_number`.
        """
        # First, as it makes records of what was consumed.
        settle_consumed()
        with FOLDER.lock:
            self._fold(run_number)
            if FOLDER.deferred or CAPTURED.is_used:
                self._ask_devices(run_number, everything=final)
                if final:
                    self._wait_for_device(run_number)
                self._fold(run_number)
            values = self._take(run_number, final=final)
        BACKPRESSURE.took()
        scopes: list[bytes] = []
        holds: list[Holds] = []
        while self._taken:  # what is encoded is let go at once: training records meanwhile
            yield_interpreter()
            with FOLDER.taking:
                self.see_that_it_is(run_number)
                self._encode_or_count(*self._taken.popleft(), scopes, holds)
        points = sum([count for _, _, count in holds])
        yield_interpreter()
        with self.still(run_number):
            self._send_watermarks(now_ns, scopes, final=final)
            scopes += self._heartbeat.encoded(now_ns, self._settings.flush_interval_ns, self._totals, final=final)
            # Watermarks and heartbeats hold no points: a full spool that drops them takes nothing out of a step.
            holds += [(None, None, 0)] * (len(scopes) - len(holds))
            spans_taken = spans.collect(self._generation, settle_consumed)
        return Batch(tuple(scopes), spans_taken, points, values, tuple(holds))

    @contextmanager
    def still(self, run_number: int | None) -> Iterator[None]:
        """Hold what is recorded for as long as something is taken of it.

        Raises:
            RunIsOverError: another run than `run_number` may have begun; None is any.
        """
        with FOLDER.taking:
            self.see_that_it_is(run_number)
            yield

    def _fold(self, run_number: int | None) -> None:
        with self.still(run_number):
            FOLDER.fold()

    def _take(self, run_number: int | None, *, final: bool) -> int:
        """Take what the steps have gathered; return how many values were folded into it."""
        with self.still(run_number):
            steps = FOLDER.take_steps(self._generation)
            self._taken.extend((step, step.pending) for step in steps if step.pending is not None)
            for step in steps:
                step.pending = None
            values, FOLDER.values = FOLDER.values, 0
            self._recorded_at_end = self._recorded if final else None
        return values

    def leave(self) -> Left:
        """Have the run be over though its background thread has not ended it; count what that has not written.

        From here on that thread takes nothing, and nothing that is recorded is this run's.
        """
        with FOLDER.taking:
            # First: the thread that is left finds, as soon as it gets `taking`, that its run is over.
            self.run_number += 1
            FOLDER.fold()
            self._take(None, final=False)
            taken = [pending for _, pending in self._taken]
            on_device = sum([value.size for _, _, value, _ in FOLDER.let_go(self._generation)])
            unwritten = self.sent.values - self.sent.written[1]
            self.sent.left = Left(
                recorded=self.recorded,
                written=self.sent.written[1],
                unwritten=unwritten + sum([pending.values for pending in taken]),
                on_device=on_device,
                events=self.scope.events.take_late(),
                dropped=dict(self.dropped),
            )
            self._recorded_at_end = self._recorded
            return self.sent.left

    def see_that_it_is(self, run_number: int | None) -> None:
        """Raise `RunIsOverError` where another run than this may have begun; None is any."""
        if run_number not in {None, self.run_number}:
            raise RunIsOverError

    def bound(self, spool_bytes: int) -> None:
        """Let callers wait before they have recorded more than a spool of this size has room for."""
        FOLDER.bound(spool_bytes)

    def wait_for_devices(self, until: float, run_number: int | None) -> None:
        """Wait for the values of devices that were recorded until now, not beyond `until` (of `time.monotonic()`).

        Nobody else is held up meanwhile.

        Raises:
            RunIsOverError: see `collect()`.
        """
        awaited: set[int] | None = None
        while awaited is None or (awaited and time.monotonic() < until):
            if awaited is not None:
                time.sleep(0.002)
            with FOLDER.lock:
                self._fold(run_number)
                self._ask_devices(run_number, everything=True)
                waiting = set(map(id, FOLDER.deferred_of(self._generation)))
            awaited = waiting if awaited is None else awaited & waiting

    def _ask_devices(self, run_number: int | None, *, everything: bool) -> None:
        FOLDER.read_deferred(partial(self.see_that_it_is, run_number), everything=everything)

    def _wait_for_device(self, run_number: int | None) -> None:
        deadline = time.monotonic() + DEVICE_WAIT_S
        while FOLDER.deferred_of(self._generation) and time.monotonic() < deadline:
            time.sleep(0.002)
            self._ask_devices(run_number, everything=True)
        with self.still(run_number):
            FOLDER.drop_deferred(self._generation)

    def _encode_or_count(self, step: Step, pending: StepPartials, scopes: list[bytes], holds: list[Holds]) -> None:
        """Encode what a step has gathered; where that fails, it alone is lost, which is counted and said."""
        # Twice: the base of a step as a stage sees it is the step, and that of no step is the one that was left last.
        place = step.base or step
        place = place.base or place
        begun, points, values, of_step = len(scopes), self.sent.points, self.sent.values, place.points
        held = pending.values  # asked now: `parts()` takes it apart
        try:
            self._encode(step, place, pending, scopes, holds)
        except Exception as error:  # noqa: BLE001 (what cannot be encoded must not take the other steps with it)
            del scopes[begun:], holds[begun:]
            self.sent.points, self.sent.values, place.points = points, values, of_step
            self.dropped["not_encoded"] += held
            sentence = f"What was recorded at {step} cannot be encoded, and is lost (not_encoded): {text_of(error)}."
            reporter.say("not-encoded", sentence, kind="not-encoded")

    def _encode(self, step: Step, place: Step, pending: StepPartials, scopes: list[bytes], holds: list[Holds]) -> None:
        if step.stage is None:
            self._trailing_steps.look(step, pending)
            self._baseline.look(step, pending)
            self._repeated_steps.look(step, pending)
            self._encode_at(place, pending, scopes, holds)
        elif step.stage.name is None:
            # A stage of which nothing is to be recorded; these were counted when they came.
            FOLDER.uncount(step.generation, pending.records)
            if self._recorded_at_end is not None:
                self._recorded_at_end -= pending.records
        else:
            for part in parts_of(pending, step.stage):
                self._encode_at(place, part, scopes, holds)

    def _encode_at(self, step: Step, pending: StepPartials, scopes: list[bytes], holds: list[Holds]) -> None:
        axis = step.axis.name if step.axis is not None else None
        self.sent.values += pending.values
        sent = 0
        for part in pending.parts():
            if part.buckets and (coarse := sum(buckets.coarse for buckets in part.buckets.values())):
                part.moments[QUANTILE_COARSE] = (coarse, float(coarse), 1.0, 1.0)
            for points, body in encoded_scopes(part, step.index, axis, self.sequence.next):
                scopes.append(body)
                holds.append((axis, step.index, points))
                sent += points
        self.sent.points += sent
        step.points += sent
        step.last_ns = max(step.last_ns, pending.last_ns)
        if step.index is not None:
            self._unsaid[step] = None

    def _send_watermarks(self, now_ns: int, scopes: list[bytes], *, final: bool) -> None:
        lateness_ns = self._settings.allowed_lateness_ns
        for step in [step for step in self._unsaid if final or is_step_complete(step, now_ns, lateness_ns)]:
            del self._unsaid[step]
            if step.axis is not None and step.index is not None and step.points > step.said:
                step.said = step.points
                number = self.sequence.next()
                scopes.append(encoded_gauge(WATERMARK, step.axis.name, step.index, step.points, now_ns, number))

    def _totals(self) -> Mapping[str, int]:
        sent = self.sent
        return {RECORDED: self.recorded, POINTS: sent.points, VALUES: sent.values, EVENTS: sent.events}

    def step_boundary(self) -> int:
        """A number that grows at each boundary of `set_step()`, `step()` and `steps()`."""
        return self.scope.steps.boundaries

    def current_steps(self) -> Mapping[str, int]:
        """The steps that `set_step()` set, by axis."""
        current = {axis.name: axis.current for axis in list(self.scope.steps.axes.values()) if axis.explicit}
        return {name: step.index for name, step in current.items() if step is not None and step.index is not None}

    def points_dropped(self, axis: str, step: int, points: int) -> None:
        """Take points that the spool dropped out of the step's watermark."""
        known = self.scope.steps.axes.get(axis)
        dropped = known.steps.get(step) if known is not None else None
        if dropped is not None:
            dropped.points -= points

    @property
    def held(self) -> int:
        """Values and events that wait for a run, in a process in which none has begun."""
        deferred = sum([value.size for _, _, value, _ in FOLDER.deferred])
        return FOLDER.recorded + deferred + values_in([*RECORDS]) + self.scope.events.asked

    def take_late(self) -> int:
        """Return how many values were recorded after the final collection: they are in no run."""
        if self._recorded_at_end is None:
            return 0
        with FOLDER.taking:
            FOLDER.fold()
            deferred = sum([value.size for _, _, value, _ in FOLDER.deferred_of(self._generation)])
            return self._recorded - self._recorded_at_end + deferred + calls_left()

    def forget(self) -> None:
        """Be as in a process that has recorded nothing: empty buffers, new locks, `ml.seq` from 1, no current step.

        Where other runs go on, only what is this one's.
        """
        with FOLDER.taking:
            self._forget()

    def _forget(self) -> None:
        self.run_number += 1
        # A thread that was not waited for keeps those of its run.
        self.sequence = Sequence()
        self._unsaid, self._taken = {}, deque()
        self._heartbeat = Heartbeat(self.scope, self.sequence)
        self.sent = Sent()
        self._recorded_at_end = None
        self._trailing_steps, self._baseline, self._repeated_steps = TrailingSteps(), Baseline(), RepeatedSteps()
        # Buffers, fold and spans are the process's: of runs that go on something is in them.
        if SCOPES.active:
            FOLDER.refuse(self._generation)  # first, as `forget()` empties these steps
            self.scope.steps.forget()
            self.scope.dropped.clear()
            return
        NOW.several = False
        BACKPRESSURE.forget()
        RECORDS.clear()
        STAGING.forget()
        FOLDER.forget()
        STEPS.forget()
        DEFINITIONS.new_lock()
        reporter.forget()
        spans.forget()
        forget_consumed()
        forget_stages()

    @property
    def recorded(self) -> int:
        """Values the user recorded that were accepted; of a run that ends, until its final collection."""
        return self._recorded if self._recorded_at_end is None else self._recorded_at_end

    @property
    def _recorded(self) -> int:
        return FOLDER.recorded_of[self._generation] if NOW.several else FOLDER.recorded

    @property
    def _generation(self) -> int:
        return self.scope.steps.generation

    @property
    def dropped(self) -> Counter[str]:
        """Values not accepted or lost, by reason."""
        return self.scope.dropped

    @property
    def overhead_s(self) -> float:
        """Estimated seconds spent on the user's threads."""
        return self.recorded * _RECORD_S + spans.STATE.collected * _SPAN_S + FOLDER.caller_s


recorder = Recorder(PROCESS)
