"""When a run is over, and how it ended (docs/protocol.md §5.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_exporters.records import RunStatus, Summary
from otel_ml_service.aggregation.killed import publish_killed, retract_killed, say_child_died
from otel_ml_service.aggregation.loss_account import lost_of, recorded_in, say_missing_at_end
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.role_ranks import of_newest_attempts, ranks_heard
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import PUBLISHED
from otel_ml_service.aggregation.stepless import WAITING_AXIS
from otel_ml_service.aggregation.steps import Steps
from otel_ml_service.aggregation.summaries import Summaries
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["RunEnd", "Status"]

Status = Literal["running", "finished", "failed", "killed"]
_WORST: dict[str, int] = {"finished": 0, "killed": 1, "failed": 2}


class RunEnd:
    """Ends the run when all have shut down or nobody was heard for long, and reopens it for later data.

    Attributes:
        state: how the run stands.
        last_shutdown_message: seconds since the epoch; or when it was noted that a writer had died without one.
        told: names of the counts that the run's last end has published, and that were not 0.
    """

    def __init__(self, run: RunState, steps: Steps, summaries: Summaries) -> None:
        self._run = run
        self._steps = steps
        self._summaries = summaries
        self.state: Status = "running"
        self.last_shutdown_message: float | None = None
        self.told: frozenset[str] = frozenset()

    def heard(self) -> None:
        """Reopen a run that had ended: one of its writers sent something new."""
        if self.state != "running":
            self.state = "running"
            self._run.output.emit(RunStatus, time=self._run.now, status="running")

    def heard_after_all(self, writer: WriterState) -> None:
        """Take back that a writer was killed, and reopen the run: it says now how it ended."""
        if self.state != "running":
            retract_killed(writer, self._run.output, self._run.step_streams)
        self.heard()

    def repeat(self) -> None:
        """Say how a run that has ended did, behind what it has of it since and that does not reopen it: spans, say.

        An exporter that begins anew for these opens its backend's run again, and ends it as the last record says.
        """
        records = self._run.output.records
        if self.state != "running" and records and not isinstance(records[-1], RunStatus):
            self._run.output.emit(RunStatus, time=self._run.now, status=self.state)

    def note_shutdown(self) -> None:
        """Note that a writer has shut down now, or that it was noted now that one had died."""
        self.last_shutdown_message = self._run.now

    def note_died(self, gone: Iterable[Writer], leaving: Iterable[Writer]) -> None:
        """Note whose processes are gone: all that they left behind has arrived, or, of those leaving, is on its way."""
        run = self._run
        for one in leaving:
            if (writer := run.writers.named(one.role, one.instance)) is not None:
                writer.go(run.now)
        for one in gone:
            writer = run.writers.named(one.role, one.instance)
            if writer is None or writer.has_left:
                continue
            writer.die(run.now)
            run.writers.dirty.add(writer.number)
            run.clock.forget(writer.number)
            run.step_streams.dirty.update(writer.attempts.values())
            if writer.child:
                say_child_died(writer.writer, run.output)
            else:
                self.note_shutdown()

    def restore(self, state: Status, last_shutdown_message: float | None, told: Sequence[str] | None) -> None:
        """Stand where the run stood; of a former version that did not store it, what an end has told is None."""
        self.state, self.last_shutdown_message = state, last_shutdown_message
        if told is not None:
            self.told = frozenset(told)
        elif state != "running":
            self.told = _not_zero(self._final_counts())

    def due(self) -> float | None:
        """Return the time at which the run ends if nobody is heard until then; None while its files are looked for.

        After the end it is now, where something is open: what another SDK sends beside a job does not reopen its run,
        and no time passes there in which it could close.
        """
        if self.state != "running":
            return self._run.now if self._is_something_open() else None
        heard_at = max((at for at in (self._run.clock.heard_at, self._run.beat_at) if at is not None), default=None)
        if heard_at is None or self._run.output.awaited:
            return None
        settings = self._run.settings
        if self.last_shutdown_message is None or not self._all_shut_down():
            return max(heard_at + settings.end_silence_s, self._senders_are_back())
        if self._is_something_under_way():
            return heard_at + min(settings.announced_wait_s, settings.end_silence_s)
        return self.last_shutdown_message + (0.0 if self._all_are_here() else settings.world_wait_s)

    def _senders_are_back(self) -> float:
        """Return until when those may come back who could not reach a service that was down."""
        settings, resumed_at = self._run.settings, self._run.resumed_at
        return 0.0 if resumed_at is None else resumed_at + min(settings.resume_wait_s, settings.end_silence_s)

    def advance(self) -> None:
        """End the run where that is due."""
        due = self.due()
        if due is None or self._run.now < due:
            return
        self._close_all()
        if self.state != "running":  # it had ended: what another SDK sent since is closed by now, and reopens nothing
            return
        # Findings, final values and who was killed come before the status: exporters end the run with that.
        self._run.stragglers.finish(list(self._run.step_streams.streams.values()))
        self.state = self._status()
        self._summaries.decide()
        publish_killed(self._killed(), self._run.output, self._run.newest_spans, self._run.step_streams)
        say_missing_at_end(self._run)
        self._summarize()
        self._run.output.emit(RunStatus, time=self._run.now, status=self.state)

    def _is_something_open(self) -> bool:
        return self._steps.late.are_waiting or any(
            attempt.order and attempt.stream.axis != WAITING_AXIS for attempt in self._run.step_streams
        )

    def _own(self) -> list[WriterState]:
        return list(filter(_is_own, self._run.writers))

    def _all_shut_down(self) -> bool:
        writers = self._own()
        return bool(writers) and all(writer.has_left or self._has_successor(writer) for writer in writers)

    def _has_successor(self, writer: WriterState) -> bool:
        """Whether another process took its place, even one that found nothing left to do and shut down."""
        if writer.replaced_at is not None:
            return True
        writers = self._run.writers
        return any(
            other.shutdown_message is not None and writers.began_after(other, writer)
            for other in filter(_is_own, writers.of_rank(writer.writer.role, writer.writer.rank))
        )

    def _is_something_under_way(self) -> bool:
        """Whether something sent before a shutdown message is missing: in the Collector, logs may overtake metrics."""
        return not all(writer.ended for writer in self._own() if writer.shutdown_message is not None)

    def _all_are_here(self) -> bool:
        """Whether no other rank is to be expected: all of the newest attempts were heard."""
        heard, expected = ranks_heard(self._own())
        return heard >= expected

    def _close_all(self) -> None:
        # First: an attempt closes nothing while an undecided restart holds it.
        self._steps.attempt_assignment.settle(at_end=True)
        self._steps.settle()
        for attempt in list(self._run.step_streams):
            while attempt.order and attempt.stream.axis != WAITING_AXIS:  # what waits there is put beside these
                self._steps.close_oldest(attempt)
        # When all rows have closed: what waits is put beside these, as late points, which go out last.
        self._steps.stepless.flush()
        self._steps.late.export_all()

    def _status(self) -> Status:
        said: list[Status] = [
            writer.shutdown_message.status
            for writer in of_newest_attempts(self._own())
            if writer.shutdown_message is not None and writer.replaced_at is None
        ]
        killed: list[Status] = ["killed" for _ in self._killed()]
        return max([*said, *killed], key=_WORST.__getitem__, default="finished")

    def _killed(self) -> list[WriterState]:
        """Return who ended without the shutdown message that it owed, and without a successor."""
        newest = of_newest_attempts(self._own())
        owing = (one for one in newest if one.shutdown_message is None and not one.dismissed)
        return [one for one in owing if not self._has_successor(one)]

    def has_told_killed(self, writer: WriterState) -> bool:
        """Whether the run has ended with this writer as one that was killed, because nobody heard of it."""
        return self.state != "running" and writer in self._killed()

    def _summarize(self) -> None:
        """Publish what the run lost and what recording cost, once it is over."""
        values = self._final_counts()
        # A backend keeps a final value: what an earlier end of the run has counted, and is no more, is taken back.
        gone = dict.fromkeys(sorted(self.told - values.keys()), 0.0)
        shown = {
            RESERVED_PREFIX + name: float(value)
            for name, value in (values | gone).items()
            if value or name == "recorded" or name in self.told
        }
        self.told = _not_zero(values)
        if shown:
            self._run.output.emit(Summary, time=self._run.now, values=shown)

    def _final_counts(self) -> dict[str, float]:
        """Return what the run counted, by name; what is 0 may be left out."""
        values: dict[str, float] = {}
        if self._run.native:
            values["recorded"] = recorded_in(self._run)
        lost = lost_of(self._run, self._run.writers, at_end=True)
        # What came too late is a count of its own, at the end.
        values |= {f"dropped/{reason}": count for reason, count in lost.items() if reason != "too_late"}
        heard, expected = ranks_heard(self._own())
        values["ranks_unheard"] = expected - heard
        for writer in self._run.writers:
            if writer.shutdown_message is not None:
                values["overhead_s"] = values.get("overhead_s", 0.0) + writer.shutdown_message.overhead_s
        for stream in self._run.step_streams.streams.values():
            for name in PUBLISHED:
                values[name] = values.get(name, 0.0) + getattr(stream.tally, name)
        # A point may hold many values, and the account is one of values.
        return values | {"superseded": self._run.superseded, "too_late": self._run.too_late}


def _is_own(writer: WriterState) -> bool:
    return writer.native and not writer.child


def _not_zero(values: Mapping[str, float]) -> frozenset[str]:
    return frozenset(name for name, value in values.items() if value)
