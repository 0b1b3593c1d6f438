"""The service as a named actor of Ray: one run of several nodes that share no folder, and nothing to start by hand.

::

    any process of the job                          head node
    ActorLink ── get or create ─────────────────▶  actor `otel_ml-<run id>`, detached
       ▲  ◀── address and token: Ray's store ────────┤ starts, watches
       └──────────── OTLP/HTTP ──────────────────▶  service: a process of its own, and nobody's child

Ray kills the children of its workers, and all actors at the end of a cluster: the service outlives both, so that what
was acknowledged is delivered.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from otel_ml import env
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.child_environment import run_environ
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.transport.choose_link import choose_link
from otel_ml._internal.transport.embedded import EmbeddedLink, answers, endpoint_of
from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.link import Link, Reached
from otel_ml._internal.transport.python_command import python_command
from otel_ml.config import Config
from otel_ml.exceptions import VersionError, WireError
from otel_ml.explanation import explained
from otel_ml.integrations import ray_store
from otel_ml.warn_once import Say
from otel_ml.wire.rendezvous import Service, rendezvous_of

__all__ = ["ActorLink", "ServiceHost", "is_hosted", "use_actor", "wait_for_service"]

_HEAD = "node:__internal_head__"
"""Resource that only the head node has: without it there is no cluster, so the service lives as long as can be."""

_ASK_EVERY_S = 5.0
"""Seconds between looks whether the actor is there: it may just be leaving, its run having ended."""

_LOOK_EVERY_S = 0.25

_SILENT_S = 1.0
"""Seconds without an answer after which the actor has the service started again, by who waits as long once more."""

_START_S = 60.0
"""Seconds the service may need to start, as in embedded mode."""

_FIRST_S = 20.0
"""Seconds the end of a short job waits for the service that is starting: with Ray goes the one who starts it."""

_KEPT = "What is recorded is kept on this host, and sent once a service runs."

_sought: set[str] = set()
"""Runs whose service this process looks for: none that is disabled, or that an endpoint serves."""

_known: dict[str, Service] = {}
"""Run → where its service was reached last; a forked child, which cannot use Ray, has it from its parent."""

_is_forked = threading.Event()
"""Set in a child of a process that was connected to Ray: it seems connected, and is not."""


def use_actor() -> None:
    """From now on the service of a run in this process is hosted by an actor, unless an endpoint is named."""
    RUNTIME.make_link = _link


def is_hosted() -> bool:
    """Whether `use_actor` was called in this process."""
    return RUNTIME.make_link is _link


def wait_for_service(run_id: str) -> None:
    """Wait until this process has reached the service of the run, if it looks for one; 20 s at most."""
    deadline = time.monotonic() + _FIRST_S
    while run_id in _sought and run_id not in _known and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _link(config: Config, identity: Identity, say: Say) -> Link:
    return choose_link(config, identity, say) if config.is_remote else ActorLink(config, identity, say=say)


class ActorLink:
    """Finds the service of the run in Ray's store, or has an actor made that starts it."""

    def __init__(self, config: Config, identity: Identity, *, say: Say) -> None:
        self._say = say
        self._environ = run_environ(config, identity)
        self._run_id = identity.run_id
        _sought.add(identity.run_id)
        self._reached: Service | None = None
        self._ask_at = 0.0
        self._written: list[str] = []

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        """Return the way to a service that differs from the last one; without one, see that there is an actor."""
        del failing_s
        service = self._announced()
        # A service that is known already was given up by who calls this; only another one is news.
        if service is not None and service != self._reached and answers(service):
            return self._arrived(service)
        if now >= self._ask_at and _is_connected():
            self._ask_at = now + _ASK_EVERY_S
            self._ask()
        return None

    @property
    def is_starting(self) -> bool:
        """Whether the actor is still to say where the service is."""
        return self._reached is None and _is_connected()

    @property
    def is_served(self) -> bool:
        """Whether it lives: nobody asks, since it does not end with the job."""
        return False

    @property
    def serves_here(self) -> bool:
        """Whether the service takes up what this process leaves: it may be on another host."""
        return False

    def close(self) -> None:
        """Take back what children of this process were told."""
        for name in self._written:
            os.environ.pop(name, None)
        self._written.clear()

    def _announced(self) -> Service | None:
        if not _is_connected():
            return _known.get(self._run_id)
        try:
            content = ray_store.kept(_announcement(self._run_id))
            return None if content is None else Service.from_json(content.decode())
        except (UnicodeDecodeError, VersionError, WireError):
            return None
        except Exception as error:  # noqa: BLE001 (the cluster may go at any time; what was reached may be there still)
            self._say("service-not-started", f"Ray does not say where the service is: {_shown(error)}. {_KEPT}")
            return _known.get(self._run_id)

    def _ask(self) -> None:
        try:
            _make_host(self._run_id, self._environ)
        except Exception as error:  # noqa: BLE001 (the same)
            self._say("service-not-started", f"Ray makes no actor for the service: {_shown(error)}. {_KEPT}")

    def _arrived(self, service: Service) -> Reached:
        self._reached = _known[self._run_id] = service
        endpoint = endpoint_of(service)
        # What this process starts is not connected to Ray: it joins by the endpoint, as in remote mode.
        for name, value in ((env.ENDPOINT.name, service.endpoint), (env.TOKEN.name, service.token)):
            # What the user has set stays. What was written here before may be of a service that is gone.
            if name in self._written or not os.environ.get(name):
                os.environ[name] = value
                self._written.append(name)
        where = f"{service.run_dir} at {service.endpoint}"
        return Reached(HttpTransport(endpoint), where, service.exporters, fresh=lambda: HttpTransport(endpoint))


def _is_connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and not _is_forked.is_set() and bool(ray.is_initialized())


def _after_fork_in_child() -> None:
    if _is_connected():
        _is_forked.set()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".rstrip(".")


def _announcement(run_id: str) -> str:
    return f"service/{run_id}"


def _make_host(run_id: str, environ: Mapping[str, str]) -> None:
    """Make the actor of the run, if there is none: whoever comes first."""
    import ray
    from opentelemetry import trace

    # The run is not about how it is recorded: a parent that is not sampled keeps the call out of its traces.
    unseen = trace.SpanContext(1, 1, is_remote=False, trace_flags=trace.TraceFlags(0))
    with trace.use_span(trace.NonRecordingSpan(unseen)):
        ray.remote(ServiceHost).options(
            name=f"otel_ml-{run_id}",
            namespace="otel_ml",
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            resources={_HEAD: 0.001},
        ).remote(dict(environ))


class ServiceHost:
    """The actor: starts the service of a run, says where it is, and leaves when it has ended.

    Args:
        environ: the variables of the run.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        os.environ.update(environ)
        self._run_id = environ[env.EXPERIMENT_ID.name]
        self._announced: Service | None = None
        self._heard_at = 0.0
        self._trouble = ""
        threading.Thread(target=self._keep, name="otel_ml_service", daemon=True).start()

    def _keep(self) -> None:
        # Leaving is tried again, too: who misses the service finds an actor that stays by its name, and makes no other.
        for is_done in (self._is_over, self._is_left):
            while not self._tried(is_done):
                time.sleep(_LOOK_EVERY_S)

    def _tried(self, is_done: Callable[[], bool]) -> bool:
        try:
            return is_done()
        except Exception as error:  # noqa: BLE001 (the next try may succeed; nobody else looks after the service)
            if _shown(error) != self._trouble:
                self._trouble = _shown(error)
                sentence = f"The actor that hosts the service cannot look after it: {self._trouble}. It tries again."
                sys.stderr.write(f"otel_ml: {explained(sentence, 'service-not-started')}\n")
            return False

    def _is_left(self) -> bool:
        import ray

        ray_store.forget(_announcement(self._run_id))
        ray.kill(ray.get_runtime_context().current_actor)
        return True

    def _is_over(self) -> bool:
        """Look after the service; return whether it has ended by itself: then it has taken its address away."""
        service = rendezvous_of(self._run_id).read_service()
        now = time.monotonic()
        if service is not None and answers(service):
            self._heard_at = now
            if service != self._announced:
                ray_store.put(_announcement(self._run_id), service.to_json())
                self._announced = service
        elif service is None and self._announced is not None:
            return True
        elif self._announced is None or now - self._heard_at >= _SILENT_S:
            _have_it_started()
            self._heard_at = time.monotonic()
        return False


def _have_it_started() -> None:
    """Start the service by a process that leaves, so that the service is not a child of a Ray worker."""
    import ray

    # Not the loopback: workers on other nodes send here.
    address = ray.util.get_node_ip_address()
    listen = f"[{address}]:0" if ":" in address else f"{address}:0"
    subprocess.run(python_command(__name__, listen), stdin=subprocess.DEVNULL, check=False)


def start_service(listen: str) -> None:
    """Start the service of the run that the environment names, and wait until it answers or has failed."""
    config = Config.from_env()
    failures: list[str] = []

    def say(slug: str, sentence: str) -> None:
        failures.append(sentence)
        sys.stderr.write(f"otel_ml: {explained(sentence, slug)}\n")  # which Ray shows the driver

    link = EmbeddedLink(config, config.id, say=say, listen=listen)
    deadline = time.monotonic() + _START_S
    while link.reach(time.monotonic(), failing_s=0.0) is None and not failures and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S / 5)
    link.close()


if __name__ == "__main__":
    start_service(sys.argv[1])
