"""Ray: the tasks, actors and Ray Train workers of a driver's job join its run.

::

    driver                                             worker process
    instrument_ray()
      ├─ RAY_RUNTIME_ENV_HOOK ── ray.init() ──▶  env_vars of the run, worker_process_setup_hook
      └─ Ray's tracing ── f.remote(…) ─────────▶ trace context ── role and rank, before the first call runs

Ray's tracing adds a keyword argument of its own to what travels, so signatures stay as they are.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from otel_ml import env
from otel_ml._internal.error_reporting import refusing
from otel_ml._internal.lifecycle.run_requested import is_run_requested
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.recording import arm
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.timers import spans
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError
from otel_ml.integrations import ray_next_run, ray_service, ray_store
from otel_ml.warn_once import reporter

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["instrument_ray", "join_worker", "runtime_env"]

_HOOK = "RAY_RUNTIME_ENV_HOOK"
_OURS = f"{__name__}.runtime_env"
_TASKS = "task"
"""Role of a process that runs tasks: Ray gives a process to any of them."""

_OF_THE_DRIVER = (env.SERVICE_NAME, env.RANK, env.WORLD_SIZE, env.LOCAL_RANK)

_FOR_WORKERS = {
    # Each role has a rank 0, but the lines on stderr, git and the package list are the driver's business.
    env.CONSOLE.name: "off",
    env.CAPTURE.name: "off",
    # Workers of a cluster that the driver started inherit its variables: these say who the driver is.
    **{variable.name: "" for variable in _OF_THE_DRIVER},
}

_OF_RAY_TRAIN = frozenset({"RayTrainWorker", "RayTrainWorkerActor", "TrainWorker"})
"""Actors whose rank Ray Train sets before it runs the user's function."""

_LEAVE_S = 2.0
"""Seconds for what a process recorded as a task, when it becomes an actor."""

_ON_DISK_S = 0.25
"""Seconds after which what any process recorded is in its spool, which is written every 0.1 s."""

_before: str | None = None


@refusing(ConfigError)
def instrument_ray(*, service: Literal["actor"] | None = None) -> None:
    """Make all tasks, actors (async and threaded ones too) and Ray Train workers of this driver join its run.

    Call it once on the driver, after `otel_ml.init()` and before `ray.init()` or the first `.remote()`::

        otel_ml.init("grpo")
        otel_ml.instrument_ray()

    A further run of the driver needs the call again, after its `init()`: actors that are started from then on, and
    processes in which no task has recorded yet, are in it.

    A process joins with its first record. Its role is the class of its actor in snake case (`RolloutWorker` →
    `rollout_worker`), or `task`; Ray Train's workers are the role `trainer` with Ray Train's ranks. Its rank is the
    next one that is free among those of its role in the job; an actor that Ray restarts keeps its rank. `init(role=…)`
    in a process, or `OTEL_SERVICE_NAME` and `OTEL_ML_RANK` in the `runtime_env` of an actor, win.

    Spans of remote calls are part of the run: of the call on the caller's side, and, once the callee has joined, of
    its execution; timers on both sides nest in them. Calls of generators carry no trace context: Ray traces none.

    An actor that ends by itself, because nobody has its handle anymore or by `__ray_terminate__`, sends its shutdown
    message to the run, as Ray Train's workers do when they are told to leave. One that Ray kills, as it does with those
    that are left at the driver's end, cannot: what it had recorded 200 ms before is delivered (`ray.shutdown()` waits
    so long), but the run then ends by silence, with the status `killed`.

    Args:
        service: where the job has no service to send to: None starts it beside the driver, for its host and those that
            share `OTEL_ML_DIR`; `"actor"` on the head node, by a detached actor `otel_ml-<run id>` of the namespace
            `otel_ml`, for all nodes of the cluster. The run lies on the head node then. Call it before `init()`::

                otel_ml.instrument_ray(service="actor")
                otel_ml.init("grpo")
                ray.init()

    Raises:
        ConfigError: there is no run yet, or with `service="actor"` one already; Ray is initialized already; an endpoint
            names another service.
        ImportError: Ray is not installed.
    """
    import ray

    problems = _actor_problems(service) if service is not None else []
    if service is None and not RUNTIME.is_active and not is_run_requested():
        problems.append("instrument_ray() found no run. Call otel_ml.init() first.")
    if ray.is_initialized() and os.environ.get(_HOOK) != _OURS:
        problems.append(
            "instrument_ray() came after ray.init(), when workers have their environment already. "
            "Call it before, or pass ray.init(runtime_env=otel_ml.integrations.ray.runtime_env())."
        )
    if problems:
        raise ConfigError(*problems)
    if service is not None:
        ray_service.use_actor()
    _chain()
    _trace()
    _end_gently()
    if ray.is_initialized():
        _tell_workers(ray.get_runtime_context().get_job_id())


def runtime_env(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return `given` with what makes workers join the run; for `ray.init(runtime_env=…)`, and called by Ray itself.

    What `given` says wins; its own `worker_process_setup_hook` runs after ours. Needed by hand only where Ray ignores
    `RAY_RUNTIME_ENV_HOOK`: under `uv run`.
    """
    found = dict(_given_by_others(given))
    ours = RUNTIME.child_env()
    if not ours:
        return found
    ray_next_run.remember(ours)
    found["env_vars"] = {**_FOR_WORKERS, **ours, **(found.get("env_vars") or {})}
    found["worker_process_setup_hook"] = _setup_hook(
        found.get("worker_process_setup_hook"), is_hosted=ray_service.is_hosted()
    )
    return found


def join_worker(*, is_hosted: bool = False) -> None:
    """Prepare this worker process: the first call that reaches it gives it a role and a rank.

    Args:
        is_hosted: whether an actor of the job hosts the service.
    """
    from opentelemetry import propagate
    from opentelemetry.propagators.composite import CompositePropagator

    if is_hosted:
        ray_service.use_actor()
    _trace()
    spans.configure(spans.STATE.budget, otel_tracing=True)  # also of the timer that is open when the run begins
    if not _PLACE.is_awaited:
        _PLACE.is_awaited = True
        both: list[Any] = [_Arrival(), propagate.get_global_textmap()]
        propagate.set_global_textmap(CompositePropagator(both))


def _tell_workers(job: str) -> None:
    """Say which run is active now to workers whose environment names the one before, as far as they have not joined."""
    if RUNTIME.is_active:
        ray_next_run.announce(job, RUNTIME.child_env())
        return
    reporter.say(
        "ray-next-run",
        "instrument_ray() came after ray.init() and before the init() of a run: workers that Ray starts join the run "
        "before. Call instrument_ray() again after init().",
    )


def _chain() -> None:
    """Put our hook in front of the one that is there."""
    global _before
    if os.environ.get(_HOOK) != _OURS:
        _before = os.environ.get(_HOOK)
        os.environ[_HOOK] = _OURS


def _end_gently() -> None:
    """Wait, before Ray kills what is left of the job, until what it recorded last is on its disks."""
    import ray

    if getattr(ray.shutdown, "waits_for_otel_ml", False):
        return
    shutdown = ray.shutdown

    def wait() -> None:
        if ray.is_initialized():
            time.sleep(_ON_DISK_S + (_sent_after_s() if ray_service.is_hosted() else 0.0))

    @functools.wraps(shutdown)
    def gentle(*arguments: Any, **options: Any) -> Any:
        wait()
        return shutdown(*arguments, **options)

    gentle.waits_for_otel_ml = True  # type: ignore[attr-defined]
    ray.shutdown = gentle
    atexit.register(wait)  # before Ray's own, which was registered earlier


def _sent_after_s() -> float:
    """Wait for the hosted service, and return the seconds after which everything is sent to it.

    On nodes where Ray kills every process of the job nobody is left who could bring what is on their disks.
    """
    if RUNTIME.is_active:  # else to ask for its id would begin a run
        ray_service.wait_for_service(RUNTIME.child_env()[env.EXPERIMENT_ID.name])
    return Config.from_env().flush_interval


def _actor_problems(service: object) -> list[str]:
    problems = []
    if not isinstance(service, str) or service != "actor":
        problems.append(f"instrument_ray(service=): expected 'actor', or nothing, got {safe_repr(service)}.")
    if RUNTIME.is_active and not ray_service.is_hosted():
        problems.append(
            "instrument_ray(service='actor') came after otel_ml.init(), which has begun to start a service. "
            "Call it before."
        )
    config = Config.from_env()
    if config.is_remote and not RUNTIME.is_active:
        problems.append(
            f"instrument_ray(service='actor') found that {config.endpoint.source} names a service already. "
            "Unset it, or leave service= out."
        )
    return problems


def _given_by_others(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if not _before:
        return given or {}
    from ray._common.utils import load_class

    found: Mapping[str, Any] = load_class(_before)(given) or {}
    return found


def _setup_hook(users: Callable[[], None] | str | None, *, is_hosted: bool = False) -> Callable[[], None]:
    """Return a function that Ray ships by value: a worker without otel_ml goes on without it."""

    def otel_ml_setup() -> None:
        try:
            from otel_ml.integrations.ray import join_worker
        except ImportError:
            pass
        else:
            join_worker(is_hosted=is_hosted)
        if isinstance(users, str):
            from ray._common.utils import load_class

            load_class(users)()
        elif users is not None:
            users()

    return otel_ml_setup


def _trace() -> None:
    """Switch on Ray's tracing in this process, which otherwise only the cluster's start can."""
    from ray.util.tracing import tracing_helper

    tracing_helper._enable_tracing()  # noqa: SLF001 (the only switch that is not the cluster's)


class _Arrival:
    """An OpenTelemetry propagator that carries nothing: it notices a call just before the call runs."""

    fields: frozenset[str] = frozenset()

    def extract(self, carrier: object, context: Context | None = None, getter: object = None) -> Context | None:
        """Find out who this process is."""
        try:
            _PLACE.take()
        except Exception as error:  # noqa: BLE001 (a user's call runs, whatever Ray's interfaces have become)
            reporter.say(
                "ray-place", f"This Ray worker has no role and rank of its own: {type(error).__name__}: {error}."
            )
        return context

    def inject(self, carrier: object, context: Context | None = None, setter: object = None) -> None:
        """Add nothing."""


class _Place:
    """What Ray made of this process: of task workers it may make an actor's later.

    Attributes:
        is_awaited: the next call decides.
    """

    def __init__(self) -> None:
        self.is_awaited = False
        self._taken_for: str | None = None
        self._set_here: set[str] = set()
        # Guards all of it: calls of a threaded actor arrive at the same time, and the first decides for all.
        self._lock = threading.RLock()  # a signal handler may be the first to record

    def take(self) -> None:
        """Set role and rank for `init()` or the first record, where nobody said them."""
        import ray

        context = ray.get_runtime_context()
        actor = context.get_actor_id()
        who = actor or context.get_worker_id()
        if actor and _ends_training(context.get_task_function_name()):
            RUNTIME.shutdown(_LEAVE_S)
            return
        with self._lock:
            if who != self._taken_for:
                self._taken_for = who
                self._leave()
                self._become(context, who, _role(context.get_task_function_name() if actor else None))

    def _leave(self) -> None:
        """End what the process was before."""
        for name in self._set_here:
            os.environ.pop(name, None)
        if self._set_here and RUNTIME.is_active:
            RUNTIME.shutdown(_LEAVE_S)
        self._set_here.clear()

    def _become(self, context: Any, who: str, role: str | None) -> None:
        ray_next_run.follow(context.get_job_id())
        if role is not None:
            self._set(env.SERVICE_NAME.name, lambda: role)
            if "RANK" not in os.environ:
                of_role = os.environ[env.SERVICE_NAME.name]
                self._set(env.RANK.name, lambda: str(_claimed_rank(context.get_job_id(), of_role, who)))
        arm()

    def _set(self, name: str, value: Callable[[], str]) -> None:
        if not os.environ.get(name):
            os.environ[name] = value()
            self._set_here.add(name)


_PLACE = _Place()


def _role(function: str | None) -> str | None:
    """Return the role of an actor that runs `function` first, of a task where there is none; None: Ray Train says.

    Examples:
        >>> _role("train.RolloutWorker.__init__"), _role("A.step"), _role(None)
        ('rollout_worker', 'a', 'task')
    """
    if function is None:
        return _TASKS
    name = function.rpartition(".")[0].rpartition(".")[2]
    if name in _OF_RAY_TRAIN:
        return None
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().strip("_") or _TASKS


def _ends_training(function: str) -> bool:
    """Whether a call of `function` tells a worker of Ray Train to leave; it is killed when the call has returned.

    Examples:
        >>> _ends_training("RayTrainWorker.shutdown"), _ends_training("Learner.shutdown")
        (True, False)
    """
    owner, _, name = function.rpartition(".")
    return name == "shutdown" and owner.rpartition(".")[2] in _OF_RAY_TRAIN


def _claimed_rank(job: str, role: str, who: str) -> int:
    """Return the first rank of the role that nobody has in the run; the same again for who has one.

    Ray's key-value store decides: a key is put by the first who puts it.
    """
    of_role = f"{job}/{os.environ.get(env.EXPERIMENT_ID.name, '')}/{role}/"
    mine = f"{of_role}of/{who}"
    known = ray_store.kept(mine)
    if known is not None:
        return int(known)
    rank = len(ray_store.names(f"{of_role}at/"))
    while ray_store.put(f"{of_role}at/{rank}", who, overwrite=False):
        rank += 1
    ray_store.put(mine, str(rank))
    return rank
