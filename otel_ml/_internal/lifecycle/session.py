"""One run of this process, from its beginning to its end: its worker, its recorder, and who it is."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from _thread import get_ident
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from otel_ml._internal.console import Console
from otel_ml._internal.error_reporting import Say, reporter
from otel_ml._internal.events.code_capture import Capture
from otel_ml._internal.events.config_values import readable
from otel_ml._internal.events.event_calls import log_params
from otel_ml._internal.events.event_queue import EVENTS, EventQueue
from otel_ml._internal.events.failure import record_failure
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.identity.ranks import unusable_rank
from otel_ml._internal.identity.resource import encode_resource
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.init_arguments import contradicted
from otel_ml._internal.lifecycle.run import Lifecycle, Run
from otel_ml._internal.lifecycle.run_of_trial import TrialParams, named_after_trial
from otel_ml._internal.lifecycle.service_lifetime import ends_with_job
from otel_ml._internal.lifecycle.unknown_settings import misspelled
from otel_ml._internal.lifecycle.worker import Status, Worker
from otel_ml._internal.messages.recorder import Recorder, RecordSettings, recorder
from otel_ml._internal.one_time_event import OneTimeEvent
from otel_ml._internal.own_threads import on_another_thread
from otel_ml._internal.run_scope import NOW, PROCESS, SCOPES, Scope
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.steps.axes import STEPS, Steps
from otel_ml._internal.timers.spans import name_traces
from otel_ml._internal.transport.choose_link import choose_link, host_folder
from otel_ml._internal.transport.link import Link, Reached
from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml._internal.transport.send import Sender, spans_interval
from otel_ml._internal.transport.spool import Spool
from otel_ml.config import Config
from otel_ml.explanation import explained
from otel_ml.quantities import seconds
from otel_ml.wire import attributes as keys
from otel_ml.wire.readable_name import readable_name
from otel_ml.wire.rendezvous import Rendezvous, passed_over, rendezvous_of, run_folder

__all__ = ["EXIT_TIMEOUT", "LinkMaker", "Session", "record_settings"]

LinkMaker = Callable[[Config, Identity, Say], Link]

CAPTURE_TIMEOUT = 1.0
"""Seconds a program that ends at once waits for git."""

EXIT_TIMEOUT = 5.0
"""Seconds the process waits at its end at most, and only while acknowledgements arrive (docs/protocol.md §3.7): where
the service goes on without it, and nothing else was set."""


_HEARTBEAT_S = 1.0
"""A service expects to hear a process as often; half of what it takes for the silence of a dead one."""


class Session:
    """A run that this process records into.

    Attributes:
        arguments: those of the `init()` that began it.
        params: what its `init()` calls have said.
        trial_params: what a search has said of it, where it is a trial's.
        scope: what calls for it go to.
        worker: its background thread; None before a forked child records, where recording is disabled, and at its end.
        blocks: `with` blocks of the run that are open.
        is_explicit: an `init()` began it.
        is_left_for_init: begun by what was recorded before any `init()`, and nobody else was told of it (ADR 0023).
        is_asleep: of a forked child that has not recorded yet: most data loaders' workers never do.
        is_ending: it is being ended, which takes as long as its timeout.
        ends_others: processes with a place of their own that this one started end with it, by a kill.
        ender: the thread that ends it; a signal handler may end a run while the main thread does.
        ended: open when it has.
        was_fine: everything was acknowledged in time; False before it has ended.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        arguments: Mapping[str, object],
        lifecycle: Lifecycle,
        make_link: LinkMaker,
    ) -> None:
        self.config = config = named_after_trial(config, identity.place, arguments)
        self.identity = identity
        self.arguments = dict(arguments)
        self.params: Mapping[str, object] = {}
        self.trial_params = TrialParams()
        self.worker: Worker | None = None
        self.blocks = 0
        self.is_explicit = True
        self.is_left_for_init = self.is_asleep = self.is_ending = self.ends_others = False
        # A run that another thread has begun is not what contexts without a run record into (docs/protocol.md §2.2).
        self.is_of_process = threading.current_thread() is threading.main_thread()
        self.ended = OneTimeEvent()
        self.was_fine = False
        self.ender = 0
        self.scope = _scope()
        self.scope.place = (config.role, identity.place.rank)
        self.recorder = recorder if self.scope.steps is STEPS else Recorder(self.scope)
        self.recorder.scope = self.scope
        self._make_link = make_link
        self._capture: Capture | None = None
        self.run = Run(
            id=identity.run_id,
            name=config.name or readable_name(identity.run_id),
            experiment=config.experiment,
            dir=None if config.is_remote else run_folder(config.dir, config.experiment, identity.run_id),
            role=config.role,
            rank=identity.place.rank,
            _lifecycle=lifecycle,
            _status=self.status,
            _scope=self.scope,
        )

    @property
    def given(self) -> Mapping[str, object]:
        """The arguments that were given."""
        return {key: value for key, value in self.arguments.items() if value not in (None, ())}

    @property
    def is_running(self) -> bool:
        """Whether it goes on: also one of which nothing is recorded, or not yet."""
        return not self.is_ending and (self.worker is not None or self.config.disabled or self.is_asleep)

    def begin(self, extra_spans: Callable[[], list[bytes]]) -> None:
        """Start the background thread."""
        self.is_asleep = False
        if self.scope.steps is STEPS:
            # The ids of traces are the process': of runs beside each other the one that the fast paths are bound to
            # gives its role.
            name_traces(self.config.role)
        self.worker = self._made_worker(extra_spans)
        self.scope.say = self.worker.say
        try:
            self.worker.start()
        except RuntimeError as error:
            self._be_disabled(error)
            return
        self.trial_params.record(self.identity.place, self.scope)
        if self.config.capture != "off" and self.identity.speaks:
            self._capture = Capture(self.config.role, self.scope.events)
            self._capture.start()

    def _be_disabled(self, why: RuntimeError) -> None:
        """Record nothing where the system gives no thread that would send it: it would fill the memory."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.forget()
        self.scope.say = None
        self.config = replace(self.config, disabled=True)
        recorder.enabled = NOW.several  # those of others go on
        console = Console(is_quiet=self.config.is_quiet)
        console.line(explained(f"Nothing is recorded: {text_of(why)}.", "nothing-recorded"))

    def say_misspelled(self) -> None:
        """Say which variables may mean others: as who speaks for the job, whose processes have the same ones."""
        place = self.identity.place
        wrong = unusable_rank(os.environ) if place.is_alone and place.rank == 0 else ""
        if wrong:  # each process is a job of its own then
            reporter.say("wrong-setting", f"{wrong} It is not used: this process is the only rank of its job.")
        if self.identity.speaks:
            for sentence in misspelled(os.environ):
                reporter.say("unknown-setting", sentence)

    def describe(self, **said: Any) -> None:
        """Have the service told from now on what fields of the configuration say anew: name, tags, notes, topology."""
        self.config = replace(self.config, **said)
        if self.worker is not None:
            self.worker.reconfigure(self.config)

    def add_params(self, params: object) -> None:
        """Record those of an `init()`; say where one before had others: folds that nothing else tells apart."""
        found, _ = readable(params)
        given = found if isinstance(found, dict) else {}
        if names := contradicted(self.params, given):
            reporter.say(
                "init-again",
                f"init(params=…) with another value of {', '.join(map(repr, names[:3]))} goes on with the run that is "
                f"active, {self.run.experiment}/{self.run.id}: what follows is recorded into it, too. For a run of its "
                "own give each a name=, or call shutdown() before.",
                kind="init(params=…)",
            )
        self.params = {**self.params, **given}
        log_params(params)

    def status(self) -> Mapping[str, Any] | None:
        """Return what the service says of the run, or None."""
        worker = self.worker
        return None if worker is None else worker.ask_status()

    @on_another_thread
    def flush(self, timeout: float) -> bool:
        """Send what is recorded; return whether all of it was acknowledged in time."""
        worker = self.worker
        self._mark_boundary()
        return True if worker is None else worker.request("flush", timeout)

    def dismiss_others(self) -> None:
        """Tell the service to expect no shutdown message of what this process started: that is ended by a kill."""
        self.scope.events.put("dismiss_others()", lambda: (LogRecord(keys.EVENT_STARTED_END),))

    def begin_to_end(self) -> bool:
        """Be who ends it; return False where somebody else is, or has been."""
        thread = get_ident()
        # No call from here on: Python runs handlers and finalizers after one, and who ends the same run in them has to
        # find that this thread does already, or waits for itself for ever.
        if self.is_ending:
            return False
        self.ender = thread
        self.is_ending = True
        return True

    def end(self, timeout: float, status: Status, error: BaseException | None = None) -> None:
        """Send what it failed with, and the shutdown message; note whether everything was acknowledged in time."""
        deadline = time.monotonic() + timeout
        self._mark_boundary()
        if self.identity.parent is not None and isinstance(error, SystemExit):
            error = None  # the exit code of a child is for its parent: it may mean anything
        if status == "finished" and self.ends_others:
            self.dismiss_others()
        if status == "failed" and error is not None and self.worker is not None and self.config.capture != "off":
            record_failure(error)
        # None first: who flushes or ends while this one waits has nothing to ask of a thread that is at its end.
        worker, self.worker = self.worker, None
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.end(min(CAPTURE_TIMEOUT, timeout))
        self.was_fine = worker is None or worker.request("end", deadline - time.monotonic(), status)

    @staticmethod
    def _mark_boundary() -> None:
        """Have what captured graphs have recorded until now waited for."""
        if NOW.boundary is not None:
            NOW.boundary()

    def forget_worker(self) -> Worker | None:
        """In a forked child: let go of the parent's thread, and return it."""
        self.ended = OneTimeEvent()
        worker, self.worker = self.worker, None
        self._capture = None
        self.is_ending = self.is_left_for_init = False
        return worker

    def sleep_as(self, identity: Identity) -> None:
        """In a forked child: be a writer of its own, with what fast paths are bound to, once something is recorded."""
        self.identity = identity
        self.is_asleep = True
        self.scope.steps, self.scope.events, self.scope.dropped = STEPS, EVENTS, PROCESS.dropped
        self.scope.say = None
        self.recorder = recorder
        recorder.scope = self.scope

    def exit_timeout(self) -> float:
        """Return how long its end may take where nobody says."""
        if self.config.exit_wait is not None:
            return self.config.exit_wait
        # Without a bound of its own: `ShutdownSequence` ends the wait where nothing gets on.
        return math.inf if self._is_last_chance() else EXIT_TIMEOUT

    def _is_last_chance(self) -> bool:
        """Whether the service ends with this job: one that the job has started, unless Ray hosts it."""
        return not self.config.is_remote and self._make_link is choose_link and ends_with_job(os.environ)

    def _made_worker(self, extra_spans: Callable[[], list[bytes]]) -> Worker:
        config, identity = self.config, self.identity
        resource = encode_resource(config, identity)
        if identity.place.local_rank == 0:
            _say_passed_over()
            _say_rare_heartbeats(config.flush_interval)
        folder = _spool_folder(rendezvous_of(identity.run_id))
        # Where another link is used, as on Ray, the service may be on another host and does not see the folder.
        self.scope.events.run_folder = host_folder(config, identity) if self._make_link is choose_link else None
        spool = Spool(
            folder,
            identity.instance,
            resource,
            limit=config.spool_max,
            say=reporter.say,
            # It stands in every file: without a word `otel-ml recover` sends it nowhere else (ADR 0064).
            endpoint=config.endpoint.shown if config.is_remote else "",
            variable=config.endpoint.source,
        )
        return Worker(
            config,
            identity,
            self.recorder,
            spool,
            Sender(spool, resource, say=reporter.say, spans_interval=self._spans_interval()),
            self._make_link(config, identity, reporter.say),
            recover=lambda reached, deadline: _recover(folder, reached, deadline),
            extra_spans=extra_spans,
            is_last_chance=self._is_last_chance(),
        )

    def _spans_interval(self) -> float:
        if self._make_link is not choose_link:  # Ray hosts the service: nobody brings what a killed actor had not sent
            return 0.0
        return spans_interval(self.config.flush_interval, self.identity.place.world_size)


def _scope() -> Scope:
    """Return the scope of a new run: with what fast paths are bound to, unless another run has that."""
    scope = Scope()
    if any(other.steps is STEPS for other in SCOPES.active):
        scope.steps, scope.events = Steps(), EventQueue()
    else:
        scope.steps, scope.events, scope.dropped = STEPS, EVENTS, PROCESS.dropped
    return scope


def record_settings(config: Config) -> RecordSettings:
    """Return what the record path needs to know of the configuration."""
    return RecordSettings(
        flush_interval_ns=int(config.flush_interval * 1e9),
        timer_level=config.timer_level,
        traces="off" if config.traces == "off" else "timers",
        spans_per_step=config.spans_per_step,
        strict=config.strict,
    )


def _say_rare_heartbeats(interval: float) -> None:
    if interval > _HEARTBEAT_S:
        reporter.say(
            "rare-heartbeats",
            f"OTEL_ML_FLUSH_INTERVAL={interval * 1000:.0f}: this process says that it lives every {seconds(interval)}, "
            f"and a service may take it for dead. Set {_HEARTBEAT_S * 1000:.0f} or less.",
        )


def _say_passed_over() -> None:
    passed = passed_over(os.environ)
    if passed is not None:
        own = passed / str(os.getuid())
        reporter.say(
            "rendezvous-folder",
            f"{passed} belongs to user {passed.stat().st_uid}, and is not used; another folder of this host is. "
            f"Make one of this user there: mkdir -m 700 {own}, and set XDG_RUNTIME_DIR={own}",
        )


def _spool_folder(rendezvous: Rendezvous) -> Path:
    try:
        rendezvous.create()
    except OSError as error:
        # What is not sent yet must not lie where others put their files; nobody else finds this one after a crash.
        folder = Path(tempfile.mkdtemp(prefix="otel-ml-"))
        reporter.say(
            "rendezvous-folder",
            f"The rendezvous folder cannot be used: {error}. What is not sent yet is kept in {folder}, and "
            "`otel-ml recover` does not look there. Set XDG_RUNTIME_DIR to a folder of this user.",
        )
        return folder
    return rendezvous.spool


def _recover(folder: Path, reached: Reached, deadline: float) -> bool:
    return recover_spools(folder, reached.transport, deadline, reporter.say)
