"""The background thread of a run: collect → spool → send, and at last the end.

Only this thread touches the spool's writer, the spool, sender and link. Others hand it requests through a
`SimpleQueue`, whose `put` is reentrant: a signal handler may interrupt the main thread inside one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.identity.resource import encode_resource
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.clock_watch import ClockWatch
from otel_ml._internal.lifecycle.missed_signals import MISSED_SIGNALS
from otel_ml._internal.lifecycle.notices import run_status
from otel_ml._internal.lifecycle.receiver_connection import ReceiverConnection
from otel_ml._internal.lifecycle.run_printer import RunPrinter
from otel_ml._internal.lifecycle.shutdown import ShutdownSequence, Status
from otel_ml._internal.lifecycle.spool_writer import SpoolWriter
from otel_ml._internal.lifecycle.worker_request import Kind, Request
from otel_ml._internal.messages.recorder import DEVICE_WAIT_S, Recorder, RunIsOverError
from otel_ml._internal.messages.sent import Left, Sent
from otel_ml._internal.own_threads import begin_own_thread
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.run_scope import CURRENT, InScope
from otel_ml._internal.transport.background_link import BackgroundLink
from otel_ml._internal.transport.link import Link, Reached
from otel_ml._internal.transport.send import Sender
from otel_ml._internal.transport.spool import Spool
from otel_ml._internal.yield_interpreter import has_rested
from otel_ml.config import Config
from otel_ml.explanation import explained

__all__ = ["Status", "Worker"]

TICK = 0.1
"""Seconds between looks; what a `kill -9` may cost (docs/protocol.md §4.1: the spool is written every 100 ms)."""

STATUS_TIMEOUT_S = 5.0
"""Seconds for which a thread that has nothing else to do waits for what the service says of the run: a busy one takes
more than the 1 s of the background thread."""

ROUND = 5.0
"""Seconds one round may go on sending what waits; after that other requests are looked at first."""


class Worker:
    """One run of this process.

    Args:
        link: where the transport comes from; asked on a thread of its own (`BackgroundLink`), one thing at a time.
        recover: sends what dead writers of the job left, and says whether nothing is left; called from time to time
            once a receiver takes ours.
        is_last_chance: whether the service ends with this job.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        recorder: Recorder,
        spool: Spool,
        sender: Sender,
        link: Link,
        *,
        recover: Callable[[Reached, float], bool],
        extra_spans: Callable[[], list[bytes]],
        is_last_chance: bool,
    ) -> None:
        self.config = config
        self.identity = identity
        self.sender, self.spool = sender, spool
        self._recorder = recorder
        self._link = BackgroundLink(link)
        self._requests: SimpleQueue[Request] = SimpleQueue()
        self._printer = RunPrinter(config, identity, sender, run_id=lambda: self.identity.run_id)
        self._shutdown = ShutdownSequence(
            recorder,
            sender,
            self._link,
            self._printer,
            is_last_chance=is_last_chance,
            variable=config.endpoint.source if config.is_remote else "",
        )
        self._started = time.monotonic()
        self._last_send = self._started
        self._boundary = 0
        self._refused = 0
        self._writer = SpoolWriter(recorder, spool, sender, extra_spans=extra_spans, is_held_up=self._is_held_up)
        self._receiver = ReceiverConnection(
            sender,
            self._link,
            recover,
            found=self._found,
            settle=self._writer.settle,
            meanwhile=self._meanwhile,
            tick=TICK,
        )
        self._clock = ClockWatch(identity.place.local_rank, self._started)
        self._postponed: deque[Request] = deque()
        self._ending: Request | None = None
        self._is_kept = self._is_told = False
        self._status: Status = "killed"
        self._timeout: Callable[[], float] = time.monotonic
        self._new_config: Config | None = None
        self._thread = threading.Thread(target=self._run, name="otel_ml", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._recorder.bound(self.spool.bound)
        BACKPRESSURE.expect()
        try:
            self._thread.start()
        except RuntimeError:
            BACKPRESSURE.not_started()
            raise

    def request(self, kind: Kind, timeout: float, status: Status = "finished") -> bool:
        """Ask for something and wait for it; return whether it happened in time."""
        if not self._thread.is_alive():
            return False
        request = Request(kind, time.monotonic() + timeout, status)
        self._requests.put(request)
        # An end may take longer than its timeout, while acknowledgements arrive; the thread keeps to the deadline.
        # To what stands behind an end nobody comes: that is waited for while the thread lives.
        until = time.monotonic() + max(timeout, 0.0) + 0.5
        while not (is_done := request.done.wait(min(1.0, until - time.monotonic()))):
            if time.monotonic() >= until or not self._thread.is_alive():
                break
        if kind == "end" and not is_done and not self._is_told:
            self._leave(status)
        return request.is_complete

    def _leave(self, status: Status) -> None:
        """Wait no longer for the thread that is to end the run; on the caller's thread."""
        self._status = status
        self._shutdown.report_held_up(self.identity, None if self._is_kept else self._recorder.leave())

    def reconfigure(self, config: Config) -> None:
        """Use a configuration with more in it (topology, given after the process group was made)."""
        self._new_config = config

    def ask_status(self) -> Mapping[str, Any] | None:
        """Return what the service says of the run, or None; on the caller's thread, over a connection of its own."""
        reached = self._receiver.reached
        if reached is None or reached.fresh is None:
            return None
        with closing(reached.fresh()) as transport:
            return run_status(transport, self.identity.run_id, {}, STATUS_TIMEOUT_S)

    def forget(self) -> None:
        """In a forked child: let go of the parent's files and connections without touching them."""
        if self.sender.transport is not None:
            self.sender.transport.forget()
        self.spool.close()
        self._link.forget()

    def say(self, sentence: str) -> None:
        """Say something once for the job."""
        with InScope(self._recorder.scope):  # what is nobody's among several runs is said where somebody hears it
            self._printer.notices.say(sentence)

    def _run(self) -> None:
        begin_own_thread()
        CURRENT.set(self._recorder.scope)
        BACKPRESSURE.begin()
        try:
            self._loop()
        finally:
            BACKPRESSURE.leave()

    def _loop(self) -> None:
        while True:
            request = self._next_request()
            try:
                MISSED_SIGNALS.look()
                if self._handle(request):
                    return
            except BaseException as error:  # noqa: BLE001 (this thread must outlive any mistake; it is reported)
                if self._writer.is_left or isinstance(error, RunIsOverError):
                    self._let_go()
                    return
                reporter.failed("The background thread", error) if not reporter.strict else self._fail_loudly(error)
                self._tell_of_failure()
                if request is not None and request is self._ending:
                    return
            finally:
                if request is not None:
                    # Whatever happened: who asked must not wait for ever.
                    request.done.open()

    def _next_request(self) -> Request | None:
        """Return what is to be done next; None after a while of nothing."""
        if self._ending is not None:
            return self._ending
        if self._postponed:
            return self._postponed.popleft()
        try:
            return self._requests.get(timeout=TICK)
        except Empty:
            return None
        finally:
            has_rested()

    def _tell_of_failure(self) -> None:
        """Print what failed, though the round did not come to its end."""
        with suppress(BaseException):
            self._print_new(is_last=self._ending is not None)

    def _fail_loudly(self, error: BaseException) -> None:
        self._printer.console.line(
            explained(f"The background thread failed with {type(error).__name__}: {error}", "internal-error")
        )

    def _handle(self, request: Request | None) -> bool:
        """Do one round; return whether it was the last."""
        new, self._new_config = self._new_config, None  # in one line, as another thread may give the next one
        if new is not None:
            self._describe_anew(new)
        if request is not None and request.kind == "end":
            self._begin_to_end(request)
            self._end(request)
            return True
        if request is not None and request.kind == "flush":
            self._writer.wait_for_devices(min(request.deadline, time.monotonic() + DEVICE_WAIT_S))
        # Into the spool first, always: what is in the file survives a kill, whatever happens to the network below.
        self._writer.collect()
        self._reach()
        if request is not None and request.kind == "flush":
            self._writer.read_files(request.deadline)
            self.sender.hurry()
            request.is_complete = self._send_all(request.deadline, lambda: request.deadline)
        else:
            if self._is_due():
                self._receiver.send(time.monotonic() + ROUND, everything=False)
                self._look_at_clock()
            if request is not None:
                request.is_complete = True
        self._print_new()
        return False

    def _is_held_up(self) -> bool:
        """Whether the spool fills although a receiver takes what is sent: who is faster than it may wait for it."""
        is_away = self._receiver.is_away()  # answers are noted also while there is room
        return self.spool.is_nearly_full and not is_away

    def _meanwhile(self) -> bool:
        """Keep the spool up to date while a receiver does not answer; return whether to go on waiting for it."""
        if self._ending is None:
            self._writer.collect()
            self._hear()
        return self._ending is None or time.monotonic() < min(self._ending.deadline, self._timeout())

    def _hear(self) -> None:
        """Do what is asked for as far as it can be done while a request is under way: bring it into the spool."""
        # This runs inside of a send, between two looks at the socket. It must not send itself: a flush is put off until
        # that send is over.
        while self._ending is None:
            try:
                request = self._requests.get_nowait()
            except Empty:
                return
            if request.kind == "end":
                self._begin_to_end(request)
            elif request.kind == "flush":
                self._postponed.append(request)
            else:
                self._writer.collect()
                request.is_complete = True
                request.done.open()

    def _is_due(self) -> bool:
        now, interval = time.monotonic(), self.config.flush_interval
        since = now - self._last_send
        boundary = self._recorder.step_boundary()
        is_due = since >= interval or (boundary != self._boundary and since >= interval / 2)
        if is_due:
            self._last_send = now
            self._boundary = boundary
        return is_due

    def _reach(self) -> None:
        is_first = self._receiver.reached is None
        reached = self._receiver.reach()
        if reached is not None and is_first and self.identity.speaks:
            self._printer.print_beginning(reached)

    def _found(self, reached: Reached) -> None:
        """Be part of the run that a receiver says this one is."""
        if reached.run_id is not None and reached.run_id != self.identity.run_id:
            self.identity = replace(self.identity, run_id=reached.run_id)
            self._describe_anew(self.config)

    def _describe_anew(self, config: Config) -> None:
        self.config = config
        self.sender.resource = encode_resource(self.config, self.identity)
        self.spool.renew(self.sender.resource)

    def _send_all(self, deadline: float, timeout: Callable[[], float]) -> bool:
        """Send until all is acknowledged, or the time is over: `timeout` ends it, `deadline` whatever happens."""
        while not self._receiver.send(min(deadline, timeout()), everything=True):
            now = time.monotonic()
            if now >= min(deadline, timeout()):
                return False
            time.sleep(min(0.02, max(0.0, deadline - now)))
            self._reach()
        return True

    def _begin_to_end(self, request: Request) -> None:
        """Bring everything and the shutdown message into the spool: from now on only the receiver is waited for."""
        if self._ending is not None:
            return
        self._ending = request
        self._receiver.recover_soon()
        self._writer.settle()
        self._writer.collect()
        # Files before the last collect: each becomes an event, which the shutdown message has to count.
        self._writer.end_files(request.deadline)
        self._writer.collect(final=True)
        # Nobody may wait for this thread from here on: it will not collect again.
        BACKPRESSURE.leave()
        self._append_shutdown_message(request)

    def _append_shutdown_message(self, request: Request) -> None:
        self._refused = self._refused_by_now()
        duration_s = time.monotonic() - self._started
        self._writer.append_record(self._shutdown.message(request.status, duration_s=duration_s))
        self._is_kept = not self.spool.secure().frames
        self._timeout = self._shutdown.timeout(self.identity)

    def _refused_by_now(self) -> int:
        return self.sender.refused.total() + self.sender.refused_records.total()

    def _end(self, request: Request) -> None:
        self._reach()
        self.sender.hurry()
        is_complete = self._send_all(request.deadline, self._timeout)
        if self._refused_by_now() != self._refused:  # of what was sent with the shutdown message
            # Also where the time is over: who sends the rest from the spool has to bring the new counts with it.
            with suppress(RunIsOverError):  # where nobody has waited, these counts are gone
                self._writer.append_notices()
                self._append_shutdown_message(request)
            is_complete = is_complete and self._send_all(request.deadline, self._timeout)
        for other in self._postponed:  # flushes of other threads: what they wait for was sent, or is kept
            other.is_complete = is_complete
            other.done.open()
        if is_complete:
            self._timeout = lambda: request.deadline  # the run is waited for by rules of its own
        self._print_new(is_last=True)
        if is_complete:
            self._shutdown.wait_for_the_run(self.identity, self._receiver.reached, request.deadline, request.status)
            # Acknowledged and heard: nothing is left to recover.
            self.spool.delete()
            self.spool.remove_folder()
        else:
            self._shutdown.report_left_behind(self.identity)
        request.is_complete, self._is_told = is_complete, True
        self._close()

    def _let_go(self) -> None:
        """End though nobody has waited for it: say what that has cost, and send what is in the spool."""
        for other in (*self._postponed, *filter(None, [self._ending])):
            other.done.open()
        deadline = time.monotonic() + ROUND
        self._ending, self._timeout = Request("end", deadline), lambda: deadline
        with suppress(BaseException):  # what it has failed with would be said of the run after it
            self._writer.append_late_end(self._late_end)
            self._reach()
            self.sender.hurry()
            if self._send_all(deadline, self._timeout):
                self.spool.delete()
                self.spool.remove_folder()
        self._close()

    def _late_end(self, sent: Sent, left: Left) -> LogRecord:
        return self._shutdown.late_message(self._status, sent, left, time.monotonic() - self._started)

    def _close(self) -> None:
        self.spool.close()
        self._link.close()
        if self.sender.transport is not None:
            self.sender.transport.close()

    def _look_at_clock(self) -> None:
        """Ask the service what time it is there, as long as it answers: behind a Collector there is none to ask."""
        if self.sender.notices is not None and not self.sender.last_error:
            self._clock.look(self.sender.transport, time.monotonic())

    def _print_new(self, *, is_last: bool = False) -> None:
        self._printer.print_new(None if self._receiver.is_failing else self._receiver.reached, is_last=is_last)
