"""What is recorded goes into the spool: metrics and spans by step, events, and the files of artifacts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.file_reader import FileReader
from otel_ml._internal.events.log_record import LogRecord, encode_scope_logs, sayable
from otel_ml._internal.messages.encode_metrics import scope_fields
from otel_ml._internal.messages.recorder import DEVICE_WAIT_S, Holds, Recorder
from otel_ml._internal.messages.sent import Left, Sent
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.transport.send import MAX_BYTES, Sender
from otel_ml._internal.transport.spool import Held, Lost, Spool
from otel_ml._internal.transport.spool_overflow import SpoolOverflow
from otel_ml.wire.protobuf import field as encode_field
from otel_ml.wire.spool_format import Frame, Kind

__all__ = ["SpoolWriter"]

_LOOK_S = 0.1
"""Seconds for which a file that is being read is waited for before what else was recorded is collected."""

FILES_SHARE, FILES_AT_EXIT = 0.6, 600.0
"""Share of the time that the end of a process may take, in which artifacts' files are read; seconds at most."""

REFERENCE_S = 0.5
"""Seconds in which those that are left are said to be where they are; as long may the rest take to be counted."""


class SpoolWriter:
    """Used by the run's background thread alone.

    Who has waited long enough for that thread goes on to another run: what is recorded from then on is not this one's.

    Args:
        extra_spans: returns spans of the program's own tracer, encoded.
        is_held_up: whether the spool fills although a receiver takes what is sent.
    """

    def __init__(
        self,
        recorder: Recorder,
        spool: Spool,
        sender: Sender,
        *,
        extra_spans: Callable[[], list[bytes]],
        is_held_up: Callable[[], bool],
    ) -> None:
        self._recorder = recorder
        # Of now: it grows when the run is left or forgotten, by which this writer knows that it is over.
        self._run_number = recorder.run_number
        # Those of this run, too: the recorder has others for the one after it.
        self._sent, self._sequence = recorder.sent, recorder.sequence
        self._spool = spool
        self._sender = sender
        self._extra_spans = extra_spans
        self._is_held_up = is_held_up
        self._files = FileReader()
        self._losses = SpoolOverflow(reporter)
        spool.on_lost = self._on_lost

    def collect(self, *, final: bool = False) -> None:
        """Write what was recorded until now; `final`: also what is still open, and is waited for.

        Raises:
            RunIsOverError: what there is to collect is another run's.
        """
        self._recorder.see_that_it_is(self._run_number)
        # At each look: while no file can be written, the spool holds less.
        self._recorder.bound(self._spool.bound)
        BACKPRESSURE.hold_up(is_held_up=self._is_held_up())
        batch = self._recorder.collect(sayable(time.time_ns()), final=final, run_number=self._run_number)
        frames = [*_frames("M", batch.scope_metrics, batch.holds), *_frames("S", batch.scope_spans)]
        with self._still():
            frames += _frames("S", self._extra_spans())
        if frames:
            self._spool.extend(frames)
        # Behind the write: of what is not noted here `Recorder.leave()` says that it was not written.
        self._sent.note_written()
        for _ in range(2):  # making the events may have had something to say: that is an event too
            self._take_events(final=final)
        if final:
            self._end_events()
        with self._still():
            for artifact in self._recorder.scope.events.take_files():
                self._files.read(artifact)
        self._take_files()

    def read_files(self, until: float) -> bool:
        """Wait for the files that are being read, and keep the spool up to date; return whether all are."""
        while not self._files.is_idle and time.monotonic() < until:
            self._take_files(timeout=_LOOK_S)
            self.collect()
        return self._files.is_idle

    def end_files(self, deadline: float) -> None:
        """Have files read while there is time; record where the others are, and count those that are too many."""
        # Three times, each for what the one before has left: contents, then places and sizes, then numbers.
        now, limit = time.monotonic(), self._files.limit
        if not self.read_files(now + min(FILES_AT_EXIT, FILES_SHARE * (deadline - now))):
            limit.read_no_further()
            if not self.read_files(time.monotonic() + REFERENCE_S):
                limit.end()
                self.read_files(time.monotonic() + REFERENCE_S)
        if self._files.left:
            _count_hanging(self._files.left)
        self._files.close()

    def append_record(self, record: LogRecord) -> None:
        """Write a log record with its running number.

        Raises:
            RunIsOverError: see `collect()`.
        """
        with self._still():
            # The number is taken while nobody can leave the run, and written without that: a disk that hangs is not to
            # hold up who leaves it.
            number = self._sequence.next()
        self._append(record, number)

    def append_late_end(self, end: Callable[[Sent, Left], LogRecord]) -> None:
        """Write the last record of a run that nobody has waited for, which `end` makes of what was counted then."""
        with self._recorder.still(None):  # who leaves the run has counted what it has
            left = self._sent.left
        if left is not None:
            self._append(end(self._sent, left), self._sequence.next())
            self._spool.secure()

    @property
    def is_left(self) -> bool:
        """Whether the run is over because nobody has waited for its end."""
        return self._sent.left is not None

    def wait_for_devices(self, until: float) -> None:
        """Wait for the values of devices that were recorded until now, not beyond `until` (of `time.monotonic()`).

        Raises:
            RunIsOverError: see `collect()`.
        """
        self._recorder.wait_for_devices(until, self._run_number)

    def append_notices(self) -> None:
        """Write what was said since everything was collected, such as what a receiver refused at the very end."""
        self._take_events(final=True)

    def settle(self) -> None:
        """Say what a full spool has lost until now."""
        self._losses.settle()

    def _take_events(self, *, final: bool = False) -> None:
        def has_space() -> bool:
            return final or not self._is_held_up()

        for record in self._recorder.scope.events.take(has_space, still=self._still):
            self._append_event(record)

    def _end_events(self) -> None:
        """Wait a moment for events that a device has yet to give."""
        events, until = self._recorder.scope.events, time.monotonic() + DEVICE_WAIT_S
        while events.on_their_way and time.monotonic() < until:
            time.sleep(0.002)
            self._take_events(final=True)
        with self._still():
            if events.on_their_way:
                events.give_up()

    def _take_files(self, timeout: float = 0.0) -> None:
        for record in self._files.take(timeout):
            self._append_event(record)

    def _append_event(self, record: LogRecord) -> None:
        self.append_record(record)
        self._sent.events += 1

    def _still(self) -> AbstractContextManager[None]:
        return self._recorder.still(self._run_number)

    def _append(self, record: LogRecord, number: int) -> None:
        self._spool.append(Frame("L", encode_field(2, encode_scope_logs(record, number))))

    def _on_lost(self, lost: Lost) -> None:
        """Count what a full spool dropped, and take it out of the watermarks."""
        # The request under way may hold frames that have just gone: it is formed anew from what is left.
        self._sender.abandon_batch()
        self._losses.add(lost)
        for axis, step, points in lost.steps:
            # A watermark that still counts points which no longer exist would make the service wait for them.
            self._recorder.points_dropped(axis, step, points)


def _count_hanging(artifacts: int) -> None:
    """Count artifacts of which nobody can say how many files they have: the first one's disk does not answer."""
    reporter.dropped["missing_artifact"] += artifacts
    reporter.say(
        "missing-artifact",
        f"log_artifact(): {artifacts:,} {'call' if artifacts == 1 else 'calls'} could not be served before the process "
        "ended: a disk does not answer. What they have not recorded by now is not in the run.",
    )


def _frames(kind: Kind, bodies: Sequence[bytes], holds: Sequence[Holds] = ()) -> list[Held]:
    """Return scope bodies as frames no larger than half a request, each with what it holds of which step."""
    if not bodies:
        return []
    payload = scope_fields(bodies)
    if len(payload) <= MAX_BYTES // 2 or len(bodies) == 1:
        steps = [(axis, step, n) for axis, step, n in holds if n and axis is not None and step is not None]
        return [(Frame(kind, payload, sum([n for _, _, n in holds])), steps)]
    half = len(bodies) // 2
    return _frames(kind, bodies[:half], holds[:half]) + _frames(kind, bodies[half:], holds[half:])
