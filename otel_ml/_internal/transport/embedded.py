"""Embedded mode: the job's processes on a host agree on one service, and start it (docs/protocol.md §3.3).

::

    look for service.json, ask /healthz ──answers──▶ reached
        │ nothing (there was one: for 1 s)
        ▼
    take the lock ──busy──▶ another process is starting it: look again
        │ got it
        ▼
    start the service, wait for service.json ──▶ reached, give the lock back

`reach` never waits: each call does the next small thing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from otel_ml import env
from otel_ml._internal.console import is_watched, shown_path
from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.file_descriptor import OwnDescriptor
from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.link import Reached
from otel_ml._internal.transport.python_command import python_command
from otel_ml.config import Config, Endpoint
from otel_ml.exceptions import VersionError
from otel_ml.quantities import seconds
from otel_ml.wire.folder_ownership import claim
from otel_ml.wire.readable_name import readable_name
from otel_ml.wire.rendezvous import Home, Rendezvous, Service, rendezvous_of, run_folder

__all__ = ["HEALTH_TIMEOUT", "EmbeddedLink", "answers", "endpoint_of", "service_command", "service_environ"]

TIMEOUT = 1.0
"""Seconds a service that was there may be silent before another is started, unless it lives (docs/protocol.md §3.3)."""

START_TIMEOUT = 60.0
"""Seconds a service may need to start: importing W&B and MLflow on a cold network disk takes tens."""

HEALTH_TIMEOUT = 0.25
"""Seconds for which a look at a service may hold up what the worker's thread does."""

_STARTER_S = 1.0
"""Seconds that the process we have started may take to end once the service, no child of ours, is announced."""

_ANOTHER_FOLDER = "Make the folder usable, or choose another one with OTEL_ML_DIR."

_LAST_BYTES = 4_096
"""Of `service.log`, in which the reason is looked for why a service did not start."""


def service_command(rendezvous: Rendezvous, *further: str) -> Sequence[str]:
    """Return the command that starts the service."""
    return python_command("otel_ml_service", "serve", "--embedded", "--rendezvous", str(rendezvous.folder), *further)


def _beside_ray(command: Sequence[str]) -> Sequence[str]:
    """Return a command that lives on where this process is one of Ray's.

    Ray kills the children of its workers with them: it may be the shell, which waits, and its child goes on.
    """
    is_connected = getattr(sys.modules.get("ray"), "is_initialized", None)  # another thread may be importing it
    if is_connected is None or not is_connected():
        return command
    return ("/bin/sh", "-c", '"$@"; exit $?', "sh", *command)


def service_environ(config: Config, run_id: str, environ: Mapping[str, str], listen: str = "") -> dict[str, str]:
    """Return the environment the service is started with: ours, and the run's identity."""
    identity = {
        env.EXPERIMENT_ID.name: run_id,
        env.EXPERIMENT_NAME.name: config.experiment,
        env.RUN_NAME.name: config.name or readable_name(run_id),
        env.DIR.name: str(config.dir),
        env.EXPORTERS.name: ",".join(config.exporters),
        env.PARENT.name: "",
    }
    if listen:
        identity["OTEL_ML_LISTEN_HTTP"] = listen
    # The service is not a rank, and must not take the GPU or the tracing of the trainer that happens to start it.
    return {**environ, **identity, "CUDA_VISIBLE_DEVICES": "", "OTEL_SDK_DISABLED": ""}


class EmbeddedLink:
    """Finds or starts the service of `run_id` on this host.

    Args:
        say: told if the service does not start.
        on_started: called with each service this process has started.
        listen: `host:port` for the service instead of a free loopback port.
    """

    def __init__(
        self,
        config: Config,
        run_id: str,
        *,
        say: Say,
        on_started: Callable[[Service], None] = lambda service: None,
        listen: str = "",
    ) -> None:
        self.rendezvous = rendezvous_of(run_id)
        self.dir = run_folder(config.dir, config.experiment, run_id)
        self._config = config
        self._run_id = run_id
        self._say = say
        self._on_started = on_started
        self._listen = listen
        self._lock: OwnDescriptor | None = None
        self._is_locked_out = False
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._not_before = 0.0
        self._silent_since: float | None = None
        self._failures = 0
        self._reached: Service | None = None

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        try:
            return self._reach(now, failing_s)
        except VersionError as error:
            self._say("other-version", f"{error.sentence} What is recorded is kept on this host until then.")
            return None

    def _reach(self, now: float, failing_s: float) -> Reached | None:
        service = self.rendezvous.read_service()
        if service is not None and service != self._reached and answers(service):
            return self._arrived(service)
        if self._process is not None:
            self._watch(self._process, now)
        elif self._is_gone(service, now, failing_s):
            self._start(now, service)
        return None

    @property
    def is_starting(self) -> bool:
        """Whether the service was started, by this process or by another one that holds the lock."""
        return self._process is not None or self._is_locked_out

    @property
    def is_served(self) -> bool:
        return self.rendezvous.is_served()

    @property
    def serves_here(self) -> bool:
        return self.is_starting or self._reached is not None

    def close(self) -> None:
        self._release()

    def _is_gone(self, service: Service | None, now: float, failing_s: float) -> bool:
        """Whether no service is there, or the one announced has been silent for long enough."""
        if service is None:
            # Its file is gone. As long as the service that was reached takes what is sent, it is there all the same.
            return self._reached is None or failing_s >= TIMEOUT
        if self._silent_since is None:
            self._silent_since = now
        # Silence alone is not death: while a backend's library is imported, a service may not answer. A second one
        # would be refused by the files of the first.
        silent_s = now - self._silent_since if self._reached is None else failing_s
        if silent_s < TIMEOUT or (self.is_served and silent_s < START_TIMEOUT):
            return False
        return not (service == self._reached and answers(service))

    def _arrived(self, service: Service) -> Reached:
        # Who holds the lock has started it: the others have only found it.
        if self._lock is not None:
            self._on_started(service)
        self._release()
        self._reached = service
        self._is_locked_out = False
        self._failures = 0
        self._silent_since = None
        folder = Path(service.run_dir)
        endpoint = endpoint_of(service)
        return Reached(
            HttpTransport(endpoint),
            shown_path(folder),
            service.exporters,
            run_id=self._run_id,
            fresh=lambda: HttpTransport(endpoint),
            page=service.page,
        )

    def _start(self, now: float, gone: Service | None) -> None:
        if now < self._not_before or not self._has_lock(now):
            return
        # With the lock held, look again: between our last look and the lock another process may have started it.
        service = self.rendezvous.read_service()
        if service is not None and (service != gone or answers(service)):
            self._silent_since = None  # it may not answer yet
            self._release()  # another process was quicker; the next look finds it
            return
        try:
            claim(self.dir)
            # It may never get so far as to say this itself; `otel-ml recover` then goes by it.
            self.rendezvous.ask_for(Home(str(self.dir), self._config.exporters))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            log_file = os.open(self.dir / "service.log", flags, 0o600)
            with os.fdopen(log_file, "ab") as log:
                self._process = subprocess.Popen(
                    # Somebody is there who can open the address; jobs of a cluster open no further port.
                    _beside_ray(service_command(self.rendezvous, *(["--page"] if is_watched() else ()))),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=service_environ(self._config, self._run_id, os.environ, self._listen),
                    # In a session of its own: Ctrl-C in the terminal, and a launcher that kills its process group, must
                    # not end the service before it has written the run.
                    start_new_session=True,
                )
            self._started_at = now
        except OSError as error:
            self._failed(now, f"{error}", _ANOTHER_FOLDER)

    def _watch(self, process: subprocess.Popen[bytes], now: float) -> None:
        """Look after the service we started until it answers, ends, or takes too long."""
        code = process.poll()
        service = self.rendezvous.read_service() if code == 0 else None  # what we started ends once it is announced
        if code is not None and service is None:
            words = _last_words(self.dir / "service.log")
            refused = "" if words else _refusal(self.dir / "service.log")
            self._failed(now, f"exit code {code}{words or refused}", _ANOTHER_FOLDER if refused else "")
        elif now - self._started_at > START_TIMEOUT:
            with suppress(ProcessLookupError):
                if service is not None:
                    os.kill(service.pid, signal.SIGKILL)
                else:
                    os.killpg(process.pid, signal.SIGKILL)  # its session: all that was started
            process.wait()
            self._failed(now, f"no answer within {seconds(START_TIMEOUT)}")

    def _failed(self, now: float, reason: str, remedy: str = "") -> None:
        remedy = remedy or f"Look into {self.dir / 'service.log'}."
        self._process = None
        self._failures += 1
        # The exponent is bounded: after 1,024 failures, a night of them, no float would be as large.
        self._not_before = now + min(30.0, 2.0 ** min(self._failures, 5))
        self._release()
        self._say(
            "service-not-started",
            f"The service did not start ({reason}). {remedy} "
            "Training goes on; what is recorded is kept on this host, and sent once a service runs.",
        )

    def _has_lock(self, now: float) -> bool:
        if self._lock is None:
            try:
                lock = self.rendezvous.acquire()
            except OSError as error:
                self._failed(now, f"{error}")
                return False
            self._lock = None if lock is None else OwnDescriptor(lock)
        # Then another process is starting the service, which is as good as if this one were (`is_starting`).
        self._is_locked_out = self._lock is None
        return self._lock is not None

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._process is not None:
            try:
                self._process.wait(_STARTER_S)
            except subprocess.TimeoutExpired:
                self._process.returncode = 0  # else subprocess warns that we do not wait for it
            self._process = None


def _last_words(log: Path) -> str:
    """Return why a service that has just ended says it did; "" where it does not."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            last = file.read().decode("utf-8", "replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    name, _, sentence = last.partition(": ")
    return f": {sentence.partition(' (otel-ml explain ')[0]}" if name == "otel-ml" else ""


def _refusal(log: Path) -> str:
    """Return why a service could not write what it ended with, as on a full disk; "" where it could."""
    try:
        with log.open("ab", buffering=0) as file:
            file.write(b"\n")
    except OSError as error:
        return f": {error.strerror}: {str(log)!r}"
    return ""


def endpoint_of(service: Service) -> Endpoint:
    """Return where and how to send to an announced service."""
    return Endpoint(url=service.endpoint, headers={"authorization": f"Bearer {service.token}"})


def answers(service: Service) -> bool:
    """Whether the service is alive; waits a quarter of a second at most."""
    transport = HttpTransport(endpoint_of(service))
    try:
        return transport.get("/healthz", HEALTH_TIMEOUT) is not None
    finally:
        transport.close()
