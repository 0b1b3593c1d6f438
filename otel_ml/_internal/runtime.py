"""The life of a run in this process: `init()`, the implicit start, `flush()`, `shutdown()`, fork. One per process."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from otel_ml._internal import buffer
from otel_ml._internal.asked import changes, checked, exporters_unused, new_arguments, of_a_writer, say_problems, shown
from otel_ml._internal.boot import boot_time
from otel_ml._internal.capture import Capture
from otel_ml._internal.console import Console
from otel_ml._internal.events import EVENTS, log_params
from otel_ml._internal.exit import ExitHooks
from otel_ml._internal.guard import Say, guard
from otel_ml._internal.identity import Identity, identify, new_instance
from otel_ml._internal.inherit import child_environ, inherited_environ
from otel_ml._internal.lifetime import ends_with_job
from otel_ml._internal.link import Link, Reached
from otel_ml._internal.link_for import folder_here, link_for
from otel_ml._internal.recorder import RecordSettings, recorder
from otel_ml._internal.recover import recover_spools
from otel_ml._internal.resource import encode_resource, resource_attributes
from otel_ml._internal.run import Run
from otel_ml._internal.send import Sender, spans_interval
from otel_ml._internal.set_variables import SetVariables
from otel_ml._internal.spool import Spool
from otel_ml._internal.step import set_step
from otel_ml._internal.tracing import Tracing
from otel_ml._internal.trials import trial
from otel_ml._internal.unknown_settings import misspelt
from otel_ml._internal.wake import is_asked_for
from otel_ml._internal.worker import Status, Worker
from otel_ml.config import Config
from otel_ml.exceptions import OtelMLError
from otel_ml.wire.rendezvous import Rendezvous, rendezvous_of, run_folder

__all__ = ["RUNTIME", "Runtime"]

LinkMaker = Callable[[Config, Identity, Say], Link]


class Runtime:
    """The one run of this process, if any.

    Attributes:
        make_link: how the service is reached; `otel_ml.testing` puts its own here.
    """

    def __init__(self) -> None:
        self.make_link: LinkMaker = link_for
        self._lock = threading.RLock()  # reentrant: a signal handler may end the run while the main thread starts one
        self._worker: Worker | None = None
        self._run: Run | None = None
        self._blocks = 0  # `with` blocks of the run that are open
        self._config: Config | None = None
        self._identity: Identity | None = None
        self._arguments: Mapping[str, object] = {}
        self._capture: Capture | None = None
        self._is_implicit = False  # begun by what was recorded before any init(), and nobody else was told of it
        self._runs_without_id = 0
        self._is_asleep = False  # a forked child that has not recorded yet: most DataLoader workers never do
        self._is_ending = False
        self._environment = SetVariables()
        self._exit = ExitHooks(self._at_exit, self._at_preemption, self._say_now)
        self._tracing = Tracing(self._resource, self._use_tracing)
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._after_fork_in_child)

    # --- start ---------------------------------------------------------------------------------------------------

    def init(self, arguments: Mapping[str, Any], params: object = None) -> Run:
        """Start a run, or return the active one.

        Raises:
            ConfigError: arguments are wrong, or under `OTEL_ML_STRICT=true` variables; all of them in one message.
        """
        with self._lock:
            if self._is_asleep and (place := of_a_writer(arguments)):
                self._take_place(place)
            if self._is_of_another_trial():
                self.shutdown(EXIT_TIMEOUT)
            if self._run is None or not self._is_running():
                self._begin(arguments)
            elif self._is_implicit and self._changes(arguments):
                self._begin_anew(arguments)
            else:
                self._again(arguments)
            if params is not None:
                log_params(params)
            assert self._run is not None
            return self._run

    def _is_of_another_trial(self) -> bool:
        """Whether the process does another trial of a search than the one whose run is active: nobody has ended it."""
        now = trial() if self._identity is not None else ""
        return self._identity is not None and now not in {"", self._identity.place.trial}

    def _begin(self, arguments: Mapping[str, Any]) -> None:
        config = checked(arguments)
        self._start(config, self._identify(config), arguments)
        self._say_misspelt()
        if config.is_remote and arguments.get("exporters"):
            guard.say("exporters-unused", exporters_unused(config, arguments["exporters"]))

    def _take_place(self, arguments: Mapping[str, Any]) -> None:
        """In a forked child: where it says a place of its own, join the parent's run as a spawned child does."""
        config = checked(arguments)
        identity = identify(config, os.environ)
        if identity.parent is None:
            self._start(config, identity, arguments)

    def _begin_anew(self, arguments: Mapping[str, Any]) -> None:
        """End the run that the environment had asked for, and begin the one that the program asks for (ADR 0023)."""
        assert self._run is not None
        checked(arguments)  # who is told that something is wrong keeps the run
        asked, before = shown(arguments, self._changes(arguments)), f"{self._run.experiment}/{self._run.id}"
        steps = recorder.current_steps()
        self.shutdown(EXIT_TIMEOUT)
        for axis, step in steps.items():
            set_step(step, axis=axis)
        self._begin(arguments)
        guard.say(
            "init-late",
            f"init({asked}) came after something was recorded, for which the environment had asked for a run: what was "
            f"recorded before is in run {before}. Call init() first.",
        )

    def _say_misspelt(self) -> None:
        """Say which variables may mean others: as who speaks for the job, whose processes have the same ones."""
        if self._identity is not None and self._identity.speaks:
            for sentence in misspelt(os.environ):
                guard.say("unknown-setting", sentence)

    def _identify(self, config: Config) -> Identity:
        before = self._runs_without_id
        self._runs_without_id += not config.id
        return identify(config, os.environ, before=before)

    def wake(self) -> bool:
        """Start implicitly where the environment asks for it; return whether there is a run that goes on."""
        if self._worker is not None and self._pid == os.getpid():
            return True
        if self._is_ending:  # which takes as long as its timeout: nobody waits for that to record something
            return False
        with self._lock:
            if recorder.enabled:  # and has not ended meanwhile: an end is not the beginning of another run
                self._start_implicitly()
        return self._worker is not None

    def _start_implicitly(self) -> None:
        if self._worker is not None:
            return
        if self._config is not None and self._identity is not None and self._is_asleep:
            self._start(self._config, self._identity, self._arguments)
        elif self._run is None and is_asked_for():
            self._start_from_environment()

    def _sleep(self) -> None:
        recorder.enabled = True
        buffer.sleep(self.wake)

    def _start_from_environment(self) -> None:
        try:
            config = Config.from_env()
            say_problems(config)
            identity = self._identify(config)
            self._start(config, identity, {})
            self._is_implicit = not config.id and not config.parent and identity.place.is_alone
            self._say_misspelt()
        except (OtelMLError, OSError) as error:
            recorder.enabled = False
            guard.say("nothing-recorded", f"Nothing is recorded: {error}")

    def _start(self, config: Config, identity: Identity, arguments: Mapping[str, object]) -> None:
        self._config, self._identity, self._arguments = config, identity, dict(arguments)
        self._run, self._blocks = self._run_of(config, identity), 0
        self._is_asleep = self._is_implicit = False
        buffer.stay_awake()
        guard.strict = config.strict
        if config.disabled:
            recorder.enabled = False
            return
        recorder.configure(_record_settings(config))
        self._worker = self._make_worker(config, identity)
        self._environment.set(inherited_environ(config, identity))
        recorder.enabled = True
        self._worker.start()
        guard.connect(self._worker.say)
        self._exit.install()
        self._tracing.activate()
        if config.capture != "off" and identity.speaks:
            self._capture = Capture(config.role)
            self._capture.start()

    def _make_worker(self, config: Config, identity: Identity) -> Worker:
        resource = encode_resource(config, identity)
        rendezvous = rendezvous_of(identity.run_id)
        folder = _spool_folder(rendezvous)
        EVENTS.run_folder = folder_here(config, identity) if self.make_link is link_for else None
        spool = Spool(
            folder,
            identity.instance,
            resource,
            limit=config.spool_max,
            say=guard.say,
        )
        return Worker(
            config,
            identity,
            recorder,
            spool,
            Sender(spool, resource, say=guard.say, spans_interval=self._spans_interval(config, identity)),
            self.make_link(config, identity, guard.say),
            recover=lambda reached, deadline: _recover(folder, reached, deadline),
            extra_spans=self._tracing.take,
            is_last_chance=self._is_last_chance(config),
        )

    def _spans_interval(self, config: Config, identity: Identity) -> float:
        if self.make_link is not link_for:  # Ray hosts the service: nobody brings what a killed actor had not sent
            return 0.0
        return spans_interval(config.flush_interval, identity.place.world_size)

    def _again(self, arguments: Mapping[str, Any]) -> None:
        """A second `init()`: the same is nothing, what was missing is added, the rest is reported."""
        assert self._config is not None
        new = new_arguments(arguments, self._arguments)
        if "topology" in new:
            addition = Config.from_env(topology=new["topology"])
            self._config = replace(self._config, topology={**self._config.topology, **addition.topology})
            if self._worker is not None:
                self._worker.reconfigure(self._config)
        changed = self._changes(arguments)
        if changed:
            guard.wrong(
                "init-again",
                f"init({shown(new, changed)}) while a run is active changes nothing. Expected the same arguments as "
                "before; call shutdown() first to begin a new run.",
            )

    def _changes(self, arguments: Mapping[str, Any]) -> list[str]:
        assert self._config is not None and self._identity is not None  # noqa: PT018
        return changes(new_arguments(arguments, self._arguments), self._config, self._identity.place)

    def _run_of(self, config: Config, identity: Identity) -> Run:
        return Run(
            id=identity.run_id,
            name=config.name or identity.run_id,
            experiment=config.experiment,
            dir=None if config.is_remote else run_folder(config.dir, config.experiment, identity.run_id),
            role=config.role,
            rank=identity.place.rank,
            _lifecycle=self,
            _status=self._status,
        )

    # --- while it runs -------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether a run was started and not ended."""
        return self._run is not None

    @property
    def is_chosen(self) -> bool:
        """Whether a run is active that an `init()` with other arguments would not leave (ADR 0023)."""
        return self._run is not None and not self._is_implicit

    def _is_running(self) -> bool:
        return self._worker is not None or (self._config is not None and (self._config.disabled or self._is_asleep))

    def flush(self, timeout: float) -> bool:
        """Send what is recorded; return whether all of it was acknowledged in time."""
        worker = self._worker
        return True if worker is None else worker.request("flush", timeout)

    def child_env(self) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins this run, which is not left for another one then."""
        if self._config is None or self._identity is None:
            with self._lock:
                self._start_implicitly()
        if self._config is None or self._identity is None:
            return {}
        self._is_implicit = False
        return child_environ(self._config, self._identity, os.environ)

    def _status(self) -> Mapping[str, Any] | None:
        worker = self._worker
        return None if worker is None else worker.ask_status()

    def _resource(self) -> dict[str, Any]:
        assert self._config is not None and self._identity is not None  # noqa: PT018
        return resource_attributes(self._config, self._identity)

    def _use_tracing(self) -> None:
        if self._config is not None:
            recorder.configure(_record_settings(self._config), otel_tracing=True)

    # --- end -----------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float | None = None, status: Status = "finished") -> bool:
        """End the run; return whether everything was acknowledged in time. Safe to call again.

        Args:
            timeout: seconds it may take; None: what the settings say, or as long as is usual here.
            status: how the run of this process ends.
        """
        with self._lock, self._exit.goodbye():
            self._is_ending = True
            timeout = self._exit_timeout() if timeout is None else timeout
            worker, self._worker = self._worker, None
            was_fine = True
            deadline = time.monotonic() + timeout
            capture, self._capture = self._capture, None
            if capture is not None:
                capture.end(min(CAPTURE_TIMEOUT, timeout))
            if worker is not None:
                was_fine = worker.request("end", deadline - time.monotonic(), status)
            recorder.enabled = False
            guard.connect(None)
            if worker is not None:
                recorder.forget()  # a new init() is a new run: from ml.seq 1, and with no step
            self._tracing.deactivate()
            self._environment.undo()
            self._run = self._config = self._identity = None
            self._arguments = {}
            self._is_asleep = self._is_implicit = self._is_ending = False
            buffer.stay_awake()
            return was_fine

    def enter(self, run: Run) -> None:
        """Note that a `with` block of `run` begins."""
        self._blocks += self._run is run

    def leave(self, run: Run, status: str) -> None:
        """End `run` with its outermost block, if it is the active one: a block may outlive its run."""
        self._blocks -= self._run is run
        if self._run is run and self._blocks <= 0:
            self.shutdown(status=_status_of(status))

    def _at_exit(self, status: str) -> None:
        """End the run, or wait until another thread has."""
        if self._pid == os.getpid() and (self._worker is not None or self._is_ending):
            self.shutdown(status=_status_of(status))

    def _exit_timeout(self) -> float:
        config = self._config
        if config is None:
            return EXIT_TIMEOUT
        if config.exit_wait is not None:
            return config.exit_wait
        return math.inf if self._is_last_chance(config) else EXIT_TIMEOUT

    def _is_last_chance(self, config: Config) -> bool:
        """Whether the service ends with this job: one that the job has started, unless Ray hosts it."""
        return not config.is_remote and self.make_link is link_for and ends_with_job(os.environ)

    def _say_now(self, sentence: str) -> None:
        Console(is_quiet=self._config is not None and self._config.is_quiet).line(sentence)

    def _at_preemption(self) -> None:
        if (worker := self._worker) is not None:
            worker.request("collect", 0.5)

    def _after_fork_in_child(self) -> None:
        """Become a writer of our own: nothing of the parent's threads, locks, sockets and buffers is left."""
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._is_ending = self._is_implicit = False
        worker, self._worker = self._worker, None
        self._capture = None
        recorder.forget()
        EVENTS.forget()
        guard.forget()
        guard.connect(None)
        self._tracing.forget()
        if worker is not None and self._config is not None and self._identity is not None:
            worker.forget()
            parent = worker.identity
            self._identity = replace(
                parent, instance=new_instance(), parent=parent.instance, starter=parent.instance, born=boot_time()
            )
            self._is_asleep = True
            self._sleep()


CAPTURE_TIMEOUT = 1.0
"""Seconds a program that ends at once waits for git."""

EXIT_TIMEOUT = 5.0
"""Seconds the process waits at its end at most, and only while acknowledgements arrive (CONTRACT §3): where the service
goes on without it, and nothing else was set."""


def _record_settings(config: Config) -> RecordSettings:
    return RecordSettings(
        flush_interval_ns=int(config.flush_interval * 1e9),
        timer_level=config.timer_level,
        traces="off" if config.traces == "off" else "timers",
        spans_per_step=config.spans_per_step,
        strict=config.strict,
    )


def _status_of(status: str) -> Literal["finished", "failed", "killed"]:
    return "failed" if status == "failed" else "killed" if status == "killed" else "finished"


def _spool_folder(rendezvous: Rendezvous) -> Path:
    try:
        rendezvous.create()
    except OSError as error:
        guard.say("rendezvous-folder", f"The rendezvous folder cannot be used: {error}")
        # What is not sent yet must not lie where others put their files; nobody else finds this one after a crash.
        return Path(tempfile.mkdtemp(prefix="otel-ml-"))
    return rendezvous.spool


def _recover(folder: Path, reached: Reached, deadline: float) -> bool:
    return recover_spools(folder, reached.transport, deadline, guard.say)


RUNTIME = Runtime()
"""The runtime of this process."""
