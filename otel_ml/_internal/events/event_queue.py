"""Events on their way from the calls to the background thread, which encodes, draws, hashes and reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from otel_ml._internal.devices.arrays import NotYetError
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.artifacts import ArtifactError
from otel_ml._internal.events.file_reader import Read, ReadLimit
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.record.fold import NO_RUN
from otel_ml._internal.run_scope import NOBODY, NOW, PROCESS, current_scope
from otel_ml._internal.safe_repr import text_of

__all__ = ["EVENTS", "NOTICE", "EventQueue", "Make", "current_events", "refuse"]

T = TypeVar("T")

Make = Callable[[], Iterable[LogRecord]]

NOTICE = "notice"
"""What asks for an event that otel_ml itself has to say; else it is a call."""

MAX_QUEUED = 1000
"""Events from which callers wait for the background thread to encode some."""

FEW_QUEUED = 10
"""The same while the receiver is slower than the loop: a hundred a second, which is a loop that does nothing else."""


class EventQueue:
    """What the background thread has yet to encode. `deque` operations are atomic: no lock that a fork could hold.

    Attributes:
        run_folder: where large files are kept for the service of this host; None where it may be elsewhere.
        on_their_way: events that the last `take()` left, because a device has yet to give them.
    """

    def __init__(self) -> None:
        self.on_their_way: int = 0
        self.run_folder: Path | None = None
        self._queued: deque[tuple[str, Make]] = deque()
        self._files: deque[tuple[str, Read]] = deque()

    def put(self, call: str, make: Make) -> None:
        """Queue an event that `call` asked for; where too many wait and nobody takes any, it is dropped and counted."""
        if self._has_space(self._queued, call):
            self._queued.append((call, make))

    def put_file(self, call: str, read: Read) -> bool:
        """Queue files that `call` asked for; the same. Return whether they will be read, and closed."""
        if has_space := self._has_space(self._files, call):
            self._files.append((call, read))
        return has_space

    def take(
        self,
        has_space: Callable[[], bool] = lambda: True,
        *,
        still: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Iterator[LogRecord]:
        """Yield the records of what was queued, made now; what cannot be made is counted and said.

        Args:
            has_space: what there is no room for stays in the queue.
            still: entered for each that is taken; raises where the run is over whose these are.
        """
        self.on_their_way = 0
        # As many as there are now: what a device has not given is put back, and would be asked for without an end.
        for _ in range(len(self._queued)):
            if not has_space():
                return
            # Nothing is yielded in this block, so what `still` holds is held for as long as it takes to pop one event.
            with still():
                if (queued := _popped(self._queued)) is None:
                    return
            call, make = queued
            # A caller that waits in `_has_space()` looks again.
            BACKPRESSURE.took()
            try:
                yield from make()
            except NotYetError:
                # At the end: what is behind it does not wait for the device.
                self._queued.append((call, make))
                self.on_their_way += 1
            except GeneratorExit:  # whoever takes has had enough
                raise
            except BaseException as error:  # noqa: BLE001 (users' arrays and objects fail in any way; this is our thread)
                refuse(call, error)

    def give_up(self) -> None:
        """Drop what a device has not given: it is too late."""
        for _ in range(len(self._queued)):
            if (queued := _popped(self._queued)) is None:
                return
            reporter.dropped["device_not_done"] += 1
            reporter.say("device-not-done", f"{queued[0]}: the device did not give a value before the process ended.")

    def take_late(self) -> int:
        """Drop what was queued after the last look of a run that has ended; return how much of it a call asked for."""
        late = self.asked
        self.forget()
        return late

    @property
    def asked(self) -> int:
        """How much of what is queued a call asked for."""
        # Copied first: a deque that another thread appends to cannot be iterated.
        return sum(call != NOTICE for call, _ in (*self._queued, *self._files))

    def take_files(self) -> Iterator[Read]:
        """Yield what reads the files that were queued, and counts and says what it cannot read."""
        for _ in range(len(self._files)):
            if (queued := _popped(self._files)) is None:
                return
            yield partial(_guarded, *queued)

    def forget(self) -> None:
        """Drop what is queued: it is of a run that has ended, or the parent's, after a fork."""
        self._queued = deque()
        self._files = deque()

    @staticmethod
    def _has_space(queued: Sized, call: str) -> bool:
        # Until there is room; `wait()` is false where nobody takes any, or this is the thread that would.
        while len(queued) >= (FEW_QUEUED if BACKPRESSURE.is_held_up else MAX_QUEUED) and BACKPRESSURE.wait():
            pass
        # Behind a slow receiver callers wait earlier; nothing is dropped for that.
        if len(queued) < MAX_QUEUED:
            return True
        reporter.drop("events_queue_full", f"{call}: more than {MAX_QUEUED} events at once; the rest is dropped.")
        return False


class _NoQueue(EventQueue):
    """Of a context without a run, while others have several: nobody would ever take what it holds."""

    def put(self, call: str, make: Make) -> None:
        del make
        reporter.drop("no_run", NO_RUN, kind=f"no run: {call}")

    def put_file(self, call: str, read: Read) -> bool:
        del read
        reporter.drop("no_run", NO_RUN, kind=f"no run: {call}")
        return False


EVENTS = PROCESS.events = EventQueue()
NOBODY.events = _NoQueue()


def current_events() -> EventQueue:
    """Return the queue of the run that a call is for."""
    return current_scope().events if NOW.several else EVENTS


def _popped(queue: deque[T]) -> T | None:
    """Return what is next; None where nothing is there anymore: `forget()` waits for nobody who is at it."""
    try:
        return queue.popleft()
    except IndexError:
        return None


def _guarded(call: str, read: Read, limit: ReadLimit) -> Iterator[LogRecord]:
    try:
        yield from read(limit)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 (users' files fail in any way; this is our thread)
        refuse(call, error)


def refuse(call: str, error: BaseException) -> None:
    """Count an event that cannot be made, and say why."""
    reporter.dropped["bad_event"] += 1
    said = text_of(error)
    shown = said if isinstance(error, (ValueError, ArtifactError)) else f"{type(error).__name__}: {said}"
    reporter.say("bad-event", shown if shown.startswith("log_") else f"{call}: {shown}")
