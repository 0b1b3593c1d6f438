"""The runs of this process: `init()`, the implicit start, `shutdown()`, fork. Mostly there is one."""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from otel_ml._internal.console import Console
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.resource import resource_attributes
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.after_fork import forget_parent, sleeps_on
from otel_ml._internal.lifecycle.child_environment import child_environ, own_arguments, own_environ
from otel_ml._internal.lifecycle.exit_code import status_of_error
from otel_ml._internal.lifecycle.exit_hooks import ExitHooks
from otel_ml._internal.lifecycle.implicit_start import ImplicitStart
from otel_ml._internal.lifecycle.init_arguments import checked, exporters_unused
from otel_ml._internal.lifecycle.join_parent import CHILDREN, environ_here
from otel_ml._internal.lifecycle.repeated_init import RepeatedInit
from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.lifecycle.run_ids import RunIds
from otel_ml._internal.lifecycle.session import EXIT_TIMEOUT, LinkMaker, Session, record_settings
from otel_ml._internal.lifecycle.sessions import Sessions
from otel_ml._internal.lifecycle.tell_others import TellOthers
from otel_ml._internal.lifecycle.worker import Status
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.own_threads import is_own_thread, on_another_thread
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN, values_in
from otel_ml._internal.record.fold import FOLDER, NO_RUN
from otel_ml._internal.run_scope import CURRENT, NOBODY, NOW, InScope
from otel_ml._internal.series import buffer
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.timers.user_spans import Tracing
from otel_ml._internal.transport.choose_link import choose_link
from otel_ml.config import Config
from otel_ml.explanation import explained

__all__ = ["RUNTIME", "Runtime"]

_SHARE_AT_EXIT = 0.5
"""Seconds each of several runs has at least at the exit of the process, whatever those before it took."""


class Runtime:
    """The runs of this process.

    Attributes:
        make_link: how the service is reached; `otel_ml.testing` puts its own here.
        others: who may join the run, and what they are told of it.
    """

    def __init__(self) -> None:
        self.make_link: LinkMaker = choose_link
        self._lock = threading.RLock()  # reentrant: a signal handler may end the run while the main thread starts one
        self._sessions = Sessions(self.end)
        self._ids = RunIds(self._sessions)
        self._implicit = ImplicitStart(self, self._sessions, self._ids)
        self._repeated = RepeatedInit(self, self._sessions)
        self._has_begun = False
        self.others = TellOthers()
        self._exit = ExitHooks(self._at_exit, self._at_preemption, self._say_now)
        self._tracing = Tracing(self._resource, self._use_tracing)
        self._pid = os.getpid()
        os.register_at_fork(
            before=self._exit.before_fork,
            after_in_parent=self._exit.after_fork,
            after_in_child=self._after_fork_in_child,
        )

    # --- start ---------------------------------------------------------------------------------------------------

    def init(self, arguments: Mapping[str, Any], params: object = None) -> Run:
        """Start a run, or return the one that is meant: the current one, unless another is asked for.

        Raises:
            ConfigError: arguments are wrong, or under `OTEL_ML_STRICT=true` variables; all of them in one message.
        """
        # Outside of the lock: the thread that ends the run needs it to finish.
        self._wait_for_an_end()
        with self._lock:
            session = self._repeated.session_of(arguments)
            with InScope(session.scope):
                if params is not None:
                    session.add_params(params)
            self._sessions.make_current(session)
            return session.run

    def begin(self, arguments: Mapping[str, Any]) -> Run:
        """Start another run beside those there are.

        Raises:
            ConfigError: see `init()`.
        """
        with self._lock:
            session = self.begin_session(arguments)
            self._sessions.make_current(session)
            return session.run

    def begin_session(self, arguments: Mapping[str, Any]) -> Session:
        """Begin a run of this process; the lock is held by the caller."""
        if self._sessions.running:
            self.others.no_more()  # it names one run, and there will be several
        surroundings = environ_here()
        asked = arguments if self._has_begun else own_arguments(arguments, surroundings)
        self._has_begun = True
        environ = own_environ(asked, surroundings)
        config = checked(asked, environ)
        if config.id and not arguments.get("id"):
            config = replace(config, id=self._ids.of_environment(config))
        session = self.started(config, self._ids.identify(config, environ), arguments)
        session.say_misspelled()
        if config.is_remote and arguments.get("exporters"):
            reporter.say("exporters-unused", exporters_unused(config, arguments["exporters"]))
        return session

    def begin_where_asked(self) -> bool:
        """Begin a run where the environment asks for it; return whether there is a run, or one that ends."""
        if self._pid == os.getpid() and self._has_worker():
            return True
        if self._implicit.is_waiting:
            return True
        if any(session.is_ending for session in self._sessions):
            # Which takes as long as its timeout: nobody waits for that to record something. It is in the last look, or
            # counted as too late.
            return True
        with self._lock:
            if recorder.enabled:  # and has not ended meanwhile: an end is not the beginning of another run
                self._start_implicitly()
        return self._implicit.is_waiting or self._has_worker()

    def _has_worker(self) -> bool:
        return any(session.worker is not None for session in self._sessions)

    def _start_implicitly(self) -> None:
        self._implicit.start()
        if self._implicit.is_waiting:
            self._exit.install()

    def _sleep(self) -> None:
        recorder.enabled = True
        buffer.sleep()

    def started(self, config: Config, identity: Identity, arguments: Mapping[str, object]) -> Session:
        if not self._sessions:
            AFTER_SHUTDOWN.leave()
        else:
            FOLDER.share_out(STEPS)
        self._implicit.begun()
        session = Session(config, identity, arguments, self._sessions, self.make_link)
        self.run_it(session)
        if config.disabled:
            return session
        self.others.of_begun(session)
        return session

    def run_it(self, session: Session) -> None:
        config = session.config
        buffer.stay_awake()
        reporter.strict = config.strict
        if session not in self._sessions:
            self._sessions.add(session)
        if config.disabled:
            session.is_asleep = False
            recorder.enabled = len(self._sessions) > 1
            return
        session.recorder.configure(record_settings(config))
        self.others.of_beginning(session)
        recorder.enabled = True
        with InScope(session.scope):
            session.begin(self._tracing.take if session.scope.steps is STEPS else list)
            reporter.connect(session.worker.say if session.worker is not None else None)
        self._exit.install()
        self._tracing.activate()

    # --- while it runs -------------------------------------------------------------------------------------------

    @property
    def lock(self) -> threading.RLock:
        """Held while a run begins."""
        return self._lock

    @property
    def current(self) -> Session | None:
        """The run that calls are for, here; None where there is none, or none that goes on."""
        return self._sessions.current

    @property
    def is_active(self) -> bool:
        """Whether a run was started and not ended."""
        return self.current is not None

    @property
    def is_chosen(self) -> bool:
        """Whether a run is active that an `init()` with other arguments would not leave (ADR 0023)."""
        return (session := self.current) is not None and not session.is_left_for_init

    def is_current(self, run_ids: Container[str]) -> bool:
        """Whether the current run is one of these."""
        return (session := self.current) is not None and session.run.id in run_ids

    def make_current(self, run: Run) -> None:
        """Have calls in this context be for `run`, if it goes on."""
        if (session := self._sessions.of(run)) is not None:
            self._sessions.make_current(session)

    def flush(self, timeout: float) -> bool:
        """Send what is recorded; return whether all of it was acknowledged in time."""
        session = self.current
        return True if session is None else session.flush(timeout)

    def child_env(self) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins this run, which is not left for another one then."""
        if not self._sessions:
            with self._lock:
                self._start_implicitly()
        session = self.current
        if session is None:
            return {}
        session.is_left_for_init = False
        return child_environ(session.config, session.identity, os.environ)

    def status(self) -> Mapping[str, Any] | None:
        """Return what the service says of the current run, or None."""
        session = self.current
        return None if session is None else session.status()

    def _resource(self) -> dict[str, Any]:
        session = self._sessions.first
        assert session is not None
        return resource_attributes(session.config, session.identity)

    def _use_tracing(self) -> None:
        if (session := self._sessions.first) is not None:
            recorder.configure(record_settings(session.config), otel_tracing=True)

    # --- end -----------------------------------------------------------------------------------------------------

    @on_another_thread
    def shutdown(self, timeout: float | None = None) -> bool:
        """End the current run; return whether everything was acknowledged in time. Safe to call again.

        Args:
            timeout: seconds it may take; None: what the settings say, or as long as is usual here.
        """
        session = self.current
        if session is not None:
            error = sys.exc_info()[1]  # in `finally`: the program is about to fail
            return self.end(session, timeout, status_of_error(error), error)
        if NOW.several:
            return True
        was_fine = self._wait_for_an_end()
        with self._lock:
            self._forget_if_last()
        return was_fine

    @on_another_thread
    def end(
        self,
        session: Session,
        timeout: float | None = None,
        status: Status = "finished",
        error: BaseException | None = None,
    ) -> bool:
        """End one run; where another thread does so already, wait for it.

        Args:
            session: the run.
            timeout: as for `shutdown`.
            status: how the run of this process ends.
            error: the exception on whose account it ends; where it has failed, it is recorded.
        """
        # Two threads may end the same run (a signal, and `atexit`): the first does it, the other waits.
        with self._exit.signals_held():
            with self._lock:
                is_first = session in self._sessions and session.begin_to_end()
            if not is_first:
                return self._wait_for(session)
            try:
                with InScope(session.scope):
                    session.end(session.exit_timeout() if timeout is None else timeout, status, error)
            finally:
                try:  # what others wait for without a timeout is opened whatever happens
                    with self._lock:
                        self._forget(session)
                finally:
                    session.ended.open()
        if self._sessions:
            self._exit.install()
        return session.was_fine

    def _wait_for(self, session: Session) -> bool:
        """Wait until another thread has ended it; return whether everything was acknowledged in time."""
        if session in self._sessions and session.ender != get_ident() and not is_own_thread():
            session.ended.wait(None)
        return session.was_fine

    def _forget(self, session: Session) -> None:
        self._sessions.remove(session)
        is_last = not self._sessions
        if is_last:
            self._forget_if_last()
            reporter.connect(None)
        if not session.config.disabled:
            self._forget_records(session, is_last=is_last)
        elif is_last:
            recorder.enabled = False
        if (other := self._sessions.first) is not None and other.worker is not None:
            reporter.connect(other.worker.say)

    def _forget_records(self, session: Session, *, is_last: bool) -> None:
        """Have a new init() be a new run: from ml.seq 1, and with no step. What is too late for this one is counted."""
        if is_last:
            is_told = session.identity.place.local_rank == 0 and not session.config.is_quiet
            AFTER_SHUTDOWN.enter(self._say_now if is_told else None)  # what is recorded from here on counts itself
            AFTER_SHUTDOWN.refuse(session.recorder.take_late() + session.scope.events.take_late())
        elif late := session.scope.events.take_late():  # values count when another run takes what is nobody's
            NOBODY.dropped["no_run"] += late
            reporter.say("no-run", NO_RUN)
        session.recorder.forget()

    def _forget_if_last(self) -> None:
        if not self._sessions:
            self._tracing.deactivate()
            self.others.no_more()
            if not AFTER_SHUTDOWN.is_now:  # a further shutdown(): what comes too late goes on being counted
                buffer.stay_awake()

    def _wait_for_an_end(self) -> bool:
        """Wait until the run that another thread ends has ended; return whether all of it was acknowledged in time."""
        ending = [] if NOW.several else [session for session in self._sessions if session.is_ending]
        outcomes = [self._wait_for(session) for session in ending]
        return all(outcomes)

    def _wait_for_a_beginning(self) -> None:
        """Wait until the run that another thread is beginning has begun: it has what was recorded until now."""
        if self._lock.acquire(timeout=EXIT_TIMEOUT):
            self._lock.release()
        elif not self._has_worker() and (lost := values_in([*buffer.RECORDS])):
            said = f"The process ends, and its run has not begun within {EXIT_TIMEOUT:g} s. Values lost: {lost:,}."
            self._say_now(explained(said, "nothing-recorded"))

    def _at_exit(self, status: Status, error: BaseException | None) -> None:
        """End the runs, or wait until another thread has."""
        if self._pid != os.getpid():
            return
        self._implicit.end()
        self._wait_for_a_beginning()
        began = time.monotonic()
        for session in self._sessions:
            if session.worker is not None or session.is_ending:
                left = session.exit_timeout() - (time.monotonic() - began)
                self.end(session, max(left, _SHARE_AT_EXIT), status, error)
        AFTER_SHUTDOWN.sum_up()

    def _say_now(self, sentence: str) -> None:
        Console(is_quiet=any(session.config.is_quiet for session in self._sessions)).line(sentence)

    def _at_preemption(self) -> None:
        for session in self._sessions:
            if (worker := session.worker) is not None:
                worker.request("collect", 0.5)

    def _after_fork_in_child(self) -> None:
        """Become a writer of our own: nothing of the parent's threads, locks, sockets and buffers is left."""
        # Another thread may have held the parent's lock at the moment of the fork; that thread does not exist here, and
        # the lock would never be released.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._exit.forget()
        self._implicit.forget()
        CHILDREN.forget()
        # The child starts nothing yet. Most forked children are data loader workers that never record: a thread and a
        # connection for each would cost a job with many of them more than training does.
        session = self.current or self._sessions.first
        sessions = self._sessions.clear(session)
        workers = [other.forget_worker() for other in sessions]
        self._tracing.forget()
        forget_parent(workers)
        if session is None:
            self._sleep()
            return
        if not sleeps_on(session, workers[sessions.index(session)]) and not session.config.disabled:
            return
        session.is_of_process = True
        self._sessions.add(session)
        CURRENT.set(session.scope)
        if session.is_asleep:
            self._sleep()


RUNTIME = Runtime()
"""The runtime of this process."""

buffer.begin_with(RUNTIME.begin_where_asked)
