"""The end of a writer: its shutdown message, waiting for the run if it leaves last, and what a person is told."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from shlex import quote
from typing import Any, Literal

from otel_ml._internal.console import Console
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.last_line import CLOSED, acknowledged_line, finished_line, unwritten_line, waiting_line
from otel_ml._internal.lifecycle.run_printer import RunPrinter
from otel_ml._internal.messages.recorder import Recorder
from otel_ml._internal.messages.sent import Left, Sent
from otel_ml._internal.transport.link import Link, Reached
from otel_ml._internal.transport.send import Sender
from otel_ml._internal.transport.spool import SPOOL_FULL, SPOOL_UNREADABLE
from otel_ml.explanation import explained
from otel_ml.wire import attributes as keys

__all__ = ["ShutdownSequence", "Status"]

Status = Literal["finished", "failed", "killed"]

USUAL_WAIT = 5.0
"""Seconds the end of a process takes at most, unless there is a reason to wait longer."""

TIMEOUT_AT_EXIT = 2.0
"""Seconds the process waits at its end for a receiver that does not answer, or does not get on (docs/protocol.md §3.7).

A service that is being started answers soon: it is waited for as long as acknowledgements arrive, to the deadline.
"""

TIMEOUT_WITH_DELIVERY = 10.0
"""The same where the service ends with the job: it is busy with the backends' libraries, and nobody comes after it."""

TIMEOUT_WITH_STARTS = 60.0
"""The same while an exporter starts, which imports its backend's library, or a large file is hashed."""

BUSY_AFTER = 0.9
"""Seconds without an answer after which a service cannot answer: one that has nothing to say says so at once."""

HELD_UP = "held_up"
"""Why what a background thread that hangs had not written is lost."""

TOLD_AFTER = 2.0
"""Seconds of waiting for delivery after which it says what for."""

BUSY = (
    "waiting for the service, which is alive and does not get on, as while a backend's library is imported: "
    "it ends with this job."
)
"""What is said of a service that takes nothing, or does not answer."""


class ShutdownSequence:
    """What a worker's thread does after the last collect.

    Args:
        printer: of the run; it asks the service for its account, too.
        is_last_chance: whether the service ends with this job: who leaves last waits for it.
        variable: in which a user has named the service, elsewhere: the commands of this host do not find the run then.
    """

    def __init__(
        self,
        recorder: Recorder,
        sender: Sender,
        link: Link,
        printer: RunPrinter,
        *,
        is_last_chance: bool,
        variable: str,
    ) -> None:
        self._recorder = recorder
        self._sender = sender
        self._link = link
        self._printer = printer
        self._notices = printer.notices
        self._exporter_lines = printer.exporter_lines
        self._console = printer.console
        self._ask = printer.ask
        self._is_last_chance = is_last_chance
        self._variable = variable
        self._least_timeout = TIMEOUT_WITH_DELIVERY if is_last_chance else TIMEOUT_AT_EXIT
        self._told: set[Literal["an answer", "delivery", "what is kept"]] = set()
        """What a person knows: what this process waits for, and that it leaves something on this host."""

    def message(self, status: Status, *, duration_s: float) -> LogRecord:
        """Return the last record of this writer: how it ended, and what it has counted."""
        sent = self._recorder.sent
        return LogRecord(
            keys.EVENT_WRITER_END,
            None,
            {
                keys.STATUS: status,
                keys.RECORDED: self._recorder.recorded,
                keys.POINTS: sent.points,
                keys.VALUES: sent.values,
                keys.EVENTS: sent.events,
                keys.DROPPED: dict(self._dropped()),
                # Points among these that had a running number already, and will not come.
                keys.GIVEN_UP: dict(self._given_up()),
                keys.OVERHEAD: self._overhead_s(),
                keys.DURATION: duration_s,
            },
        )

    def late_message(self, status: Status, sent: Sent, left: Left, duration_s: float) -> LogRecord:
        """Return the last record of a run whose end nobody has waited for: what it had, and what that has cost."""
        points, values = sent.written
        unwritten = {
            # `left` was counted when the caller went on; what the thread has written since then is not a loss.
            HELD_UP: left.unwritten - (values - left.written),
            f"events_{HELD_UP}": left.events,
            "device_not_done": left.on_device,
        }
        refused = {f"events_and_spans: {reason}": count for reason, count in self._sender.refused_records.items()}
        lost = Counter(left.dropped) + self._sender.refused + Counter(unwritten) + Counter(refused)
        given_up = {reason: left.dropped.get(reason, 0) for reason in (SPOOL_FULL, SPOOL_UNREADABLE)}
        return LogRecord(
            keys.EVENT_WRITER_END,
            None,
            {
                keys.STATUS: status,
                keys.RECORDED: left.recorded,
                keys.POINTS: points,
                keys.VALUES: values,
                keys.EVENTS: sent.events,
                keys.DROPPED: dict(lost),
                keys.GIVEN_UP: dict(Counter(given_up) + self._sender.refused),
                keys.DURATION: duration_s,
            },
        )

    def timeout(self, identity: Identity) -> Callable[[], float]:
        """Return a function that says until when to wait: longer with each acknowledgement, from now on.

        Where the service ends with this job, longer also while it lives: it cannot answer while a library is imported.
        """
        answers, quiet_since, timeout = self._sender.answers, time.monotonic(), self._least_timeout

        def until() -> float:
            nonlocal answers, quiet_since, timeout
            now = time.monotonic()
            is_starting = self._link.is_starting and not self._link.is_served  # no second one beside it
            # The receiver gets on, so the time without progress begins anew.
            if self._sender.answers != answers or is_starting:
                answers, quiet_since, timeout = self._sender.answers, now, self._least_timeout
            # It lives and does not answer: it gets as much time again whenever that is over, up to that of a start.
            elif now >= quiet_since + timeout and timeout < TIMEOUT_WITH_STARTS and self._is_busy():
                timeout += self._least_timeout  # then it is asked again
            if now >= quiet_since + USUAL_WAIT and identity.speaks and self._is_busy():
                self._tell("an answer", BUSY)
            return quiet_since + timeout

        return until

    def wait_for_the_run(self, identity: Identity, reached: Reached | None, deadline: float, status: Status) -> None:
        """Wait until the service has the shutdown message; as the last writer, also while exporters drain. Report."""
        if self._sender.notices is None:  # a Collector, or gRPC: what acknowledged it gives no account of the run
            self._say(
                partial(acknowledged_line, refused=self._sender.refused, records=self._sender.refused_records),
                identity,
                reached,
                status,
            )
            return
        run = self._account_at_the_end(identity, deadline)
        is_last = run is not None and bool(run.get("last")) and self._has_starter_left(identity)
        self._exporter_lines.print_rest(reached, identity.run_id, is_last=is_last)
        # Who leaves last prints what came after the process that speaks of the run had left.
        if is_last or self._notices.query:
            self._notices.print_of(run, is_last=is_last)
        if run is not None and is_last:
            is_remote = bool(self._variable)
            line = finished_line(run, status, outlived=not self._is_last_chance, is_remote=is_remote)
            self._printer.print_end(line, run)
        elif run is None or not run.get("left"):
            on_its_way = partial(unwritten_line, is_remote=bool(self._variable))
            self._say(on_its_way, identity, reached, status)  # nobody may be left who could say more

    def _has_starter_left(self, identity: Identity) -> bool:
        """Whether who started this process leaves no later; a service that has not heard of it yet cannot know."""
        return identity.starter is None or bool((self._ask(writer=identity.starter) or {}).get("left"))

    def _account_at_the_end(self, identity: Identity, deadline: float) -> Mapping[str, Any] | None:
        """Return the account with the shutdown message and, for the last writer, everything; or what comes in time."""
        known: object = None
        heard: Mapping[str, Any] | None = None
        began = quiet_since = time.monotonic()
        is_host = self._is_last_chance and identity.place.hosts > 1 and identity.place.rank == 0
        while True:
            asked = time.monotonic()
            run = self._ask(writer=identity.instance)
            now = time.monotonic()
            if run is not None and is_host:  # with this one the service ends, which the other hosts still need
                run = {**run, "last": run.get("left")}
            if run is not None:
                heard = run
                # It has the shutdown message. Only the last writer waits for the delivery of the run, too.
                if run.get("left") and (not run.get("last") or self._is_done(run)):
                    return run
                if (progress := _progress(run)) != known:
                    known, quiet_since = progress, now
                if run.get("last") and deadline - began > USUAL_WAIT and now - began >= TOLD_AFTER:
                    self._tell("delivery", waiting_line(run, outlived=not self._is_last_chance))
            is_busy = run is None and now - asked >= BUSY_AFTER and self._is_busy()
            if is_busy and identity.speaks and deadline - began > USUAL_WAIT and now - quiet_since >= TOLD_AFTER:
                self._tell("an answer", BUSY)
            if now >= deadline or now - quiet_since >= self._timeout(heard, deadline - began, is_busy=is_busy):
                return run
            time.sleep(0.05)

    def _tell(self, what_for: Literal["an answer", "delivery"], line: str) -> None:
        """Say what this process waits for, once."""
        if what_for not in self._told:
            self._told.add(what_for)
            self._console.line(line)

    def _is_busy(self) -> bool:
        """Whether the service, which ends with this job, lives: then what it does not answer it cannot answer."""
        return self._is_last_chance and self._link.is_served

    def _is_done(self, run: Mapping[str, Any]) -> bool:
        """Whether nothing is pending; where nobody could do it later, whether run and exporters have ended, too."""
        if int(run.get("pending", 0)):
            return False
        states = {exporter.get("state") for exporter in (run.get("exporters") or {}).values()}
        return not self._is_last_chance or (run.get("status") != "running" and states <= CLOSED)

    def _timeout(self, run: Mapping[str, Any] | None, wait: float, *, is_busy: bool) -> float:
        """Return for how long a service may not get on.

        Args:
            run: its newest account, or None.
            wait: seconds that this process may wait in all.
            is_busy: it cannot answer: a backend's library, while it is imported, holds its interpreter.
        """
        # A service that cannot answer does not say who is last: it may be this process.
        is_last = run.get("last") if run is not None else is_busy
        if wait <= USUAL_WAIT or not is_last:
            return self._least_timeout
        # Somebody has said how long: by OTEL_ML_EXIT_WAIT, or `shutdown(timeout=…)`.
        if wait != math.inf:
            return wait
        is_long = is_busy or run is None or run.get("starting") or run.get("files") or run.get("writers_live")
        return TIMEOUT_WITH_STARTS if is_long else TIMEOUT_WITH_DELIVERY

    def report_left_behind(self, identity: Identity) -> None:
        """Say what was not acknowledged, and what becomes of it."""
        gone = self._sender.spool.secure()
        pending = self._sender.spool.pending
        # Those in `gone` are in memory and end with this process: they are said by themselves.
        points = sum(frame.points for frame in pending) - gone.points
        why = f" ({self._sender.last_error})" if self._sender.last_error else ""
        rank = identity.place.rank
        if gone.frames:  # each rank by itself: nobody else knows
            sentence = (
                f"{_points_of(gone.points, rank)} lost with this process: {_are(gone.points)} not acknowledged{why}, "
                "and its spool cannot be written. The run does not know of them"
            )
            self._console.line(explained(sentence, "lost-with-process"))
        if identity.place.local_rank == 0 and gone.frames.total() < len(pending) and "what is kept" not in self._told:
            self._told.add("what is kept")
            lost, sender = self._refused(), self._brought_by(identity.run_id)
            what = _points_of(points, rank) if points else f"The last messages of rank {rank} are"
            they_are = _are(points)
            sentence = f"{what} not acknowledged{why}; {they_are} kept on this host. {lost}{sender}"
            self._console.line(explained(sentence, "not-acknowledged"))

    def _refused(self) -> str:
        """Return what is not kept: what the receiver has refused for good."""
        refused = self._sender.refused + self._sender.refused_records
        if not refused:
            return ""
        return f"{refused.total():,} points, events or spans were refused ({', '.join(refused)}): lost. "

    def _brought_by(self, run_id: str) -> str:
        """Return who sends what is kept on this host."""
        if self._link.serves_here and not self._is_last_chance:
            return f"The service on this host brings them into the run; if it does not: {_recover(run_id)}"
        if self._variable:  # without it, `recover` leaves it alone
            return f"The next start of this run sends them, or, with {self._variable} set as it was: {_recover(run_id)}"
        return f"The next start of this run sends them, or: {_recover(run_id)}"

    def report_held_up(self, identity: Identity, left: Left | None) -> None:
        """Say that a run is left while its background thread has not come to its end; on the caller's thread.

        Args:
            identity: of the rank that leaves.
            left: what is not in the spool; None where everything is.
        """
        begin = f"Rank {identity.place.rank} of the run has not ended in time: its background thread is held up"
        if left is not None:  # each rank by itself: nobody else knows
            besides = (
                ", and what is in memory because no file can be written" if self._sender.spool.is_in_memory else ""
            )
            sentence = (
                f"{begin}, by a device, a disk or a machine that is too busy. What it has not written to its spool is "
                f"lost: {_what_of(left)}{besides}. The next start of this run sends the rest, or: "
                f"{_recover(identity.run_id)}"
            )
        elif identity.place.local_rank == 0 and "what is kept" not in self._told:
            self._told.add("what is kept")
            sentence = (
                f"{begin}. All it recorded is kept on this host. The next start of this run sends what the service "
                f"does not have yet, or: {_recover(identity.run_id)}"
            )
        else:
            return
        # On a console of its own: that of the run is the background thread's.
        Console(is_quiet=self._console.is_quiet).line(explained(sentence, "held-up"))

    def _say(
        self, line: Callable[[Status, int, str], str], identity: Identity, reached: Reached | None, status: Status
    ) -> None:
        if identity.speaks and reached is not None:
            self._printer.print_end(line(status, self._recorder.recorded, reached.where))

    def _dropped(self) -> Mapping[str, int]:
        """Return values and points that will not arrive, by reason."""
        records = {f"events_and_spans: {reason}": count for reason, count in self._sender.refused_records.items()}
        counted = {**self._recorder.dropped, **self._sender.refused, **records}
        return {reason: count for reason, count in counted.items() if count}

    def _given_up(self) -> Mapping[str, int]:
        """Return points that were encoded and will not arrive, by reason."""
        gone = {reason: self._recorder.dropped.get(reason, 0) for reason in (SPOOL_FULL, SPOOL_UNREADABLE)}
        counted = {**gone, **self._sender.refused}
        return {reason: count for reason, count in counted.items() if count}

    def _overhead_s(self) -> float:
        """Return seconds recording has cost this process: on the callers' threads, and on this one."""
        return self._recorder.overhead_s + time.thread_time()


def _what_of(left: Left) -> str:
    """Return how much is lost of a run that is left.

    Examples:
        >>> _what_of(Left(recorded=9, written=6, unwritten=3, on_device=0, events=1, dropped={}))
        '3 of 9 values, 1 text, table or file'
        >>> _what_of(Left(recorded=9, written=9, unwritten=0, on_device=0, events=0, dropped={}))
        '0 of 9 values'
    """
    values = f"{left.unwritten + left.on_device:,} of {left.recorded + left.on_device:,} values"
    events = f", {left.events:,} {'text, table or file' if left.events == 1 else 'texts, tables or files'}"
    return f"{values}{events if left.events else ''}"


def _points_of(count: int, rank: int) -> str:
    """Return the subject of a sentence and its verb.

    Examples:
        >>> _points_of(1, 0), _points_of(1204, 3)
        ('1 point of rank 0 is', '1,204 points of rank 3 are')
    """
    return f"{count:,} {'point' if count == 1 else 'points'} of rank {rank} {'is' if count == 1 else 'are'}"


def _are(count: int) -> str:
    return "it is" if count == 1 else "they are"


def _progress(run: Mapping[str, Any]) -> object:
    """Return what changes as long as a service gets on."""
    exporters: Mapping[str, Mapping[str, Any]] = run.get("exporters") or {}
    states = [(exporter.get("delivered_seq"), exporter.get("state")) for exporter in exporters.values()]
    return run.get("left"), run.get("pending", 0), run.get("last_seq"), states


def _recover(run_id: str) -> str:
    """Return the command that sends what is left of one run; without the id, it sends what other jobs left, too.

    Examples:
        >>> _recover("one run")
        "otel-ml recover 'one run'"
    """
    return f"otel-ml recover {quote(run_id)}"
