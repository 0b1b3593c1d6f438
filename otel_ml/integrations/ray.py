"""Ray: the tasks, actors and Ray Train workers of a driver's job join its run.

::

    driver                                             worker process
    instrument_ray()
      ├─ RAY_RUNTIME_ENV_HOOK ── ray.init() ──▶  env_vars of the run, worker_process_setup_hook
      └─ Ray's tracing ── f.remote(…) ─────────▶ trace context ── role and rank, before the first call runs

Ray's tracing adds a keyword argument of its own to what travels, so signatures stay as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Literal

from otel_ml import env
from otel_ml._internal.error_reporting import refusing
from otel_ml._internal.lifecycle.run_requested import is_run_requested
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.timers import spans
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError
from otel_ml.integrations import ray_end, ray_next_run, ray_place, ray_service, ray_tracing
from otel_ml.warn_once import reporter

__all__ = ["instrument_ray", "join_worker", "runtime_env"]

_HOOK = "RAY_RUNTIME_ENV_HOOK"
_OURS = f"{__name__}.runtime_env"
_SETUP_HOOK = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
"""Variable by which Ray tells a worker its hook."""

_OF_THE_DRIVER = (env.SERVICE_NAME, env.RANK, env.WORLD_SIZE, env.LOCAL_RANK)

_FOR_WORKERS = {
    # Each role has a rank 0, but the lines on stderr, git and the package list are the driver's business.
    env.CONSOLE.name: "off",
    env.CAPTURE.name: "off",
    # Workers of a cluster that the driver started inherit its variables: these say who the driver is.
    **{variable.name: "" for variable in _OF_THE_DRIVER},
}

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

    A trial of Ray Tune is a run of its own, with Tune's name of the trial and its configuration as parameters; what it
    starts is in that run. Its process is the role `trial`, and names of its metrics carry no role.

    Spans of remote calls are part of the run: of the call on the caller's side, and, once the callee has joined, of
    its execution; timers on both sides nest in them. Ray does not trace generators, static methods and class methods.

    An actor that ends by itself, because nobody has its handle anymore or by `__ray_terminate__`, sends its shutdown
    message to the run, as Ray Train's workers do when they are told to leave. One that Ray kills, as it does with those
    that are left at the driver's end, cannot: what it had recorded 200 ms before is delivered (`ray.shutdown()` waits
    so long), and the run ends as the driver does. Where the driver fails, or a process was killed before, it is told.

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
    _accompany()
    if ray.is_initialized():
        _tell_workers(ray.get_runtime_context().get_job_id())


def runtime_env(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return `given` with what makes workers join the run; for `ray.init(runtime_env=…)`, and called by Ray itself.

    What `given` says wins; its own `worker_process_setup_hook` runs after ours. Needed by hand only where Ray ignores
    `RAY_RUNTIME_ENV_HOOK`: under `uv run`.
    """
    found = dict(_given_by_others(given or _of_job_config()))
    ours = RUNTIME.child_env()
    if not ours:
        return found
    ray_end.end_others()
    ray_next_run.remember(ours)
    _accompany()  # also where nobody calls `instrument_ray()`
    users = found.get("worker_process_setup_hook")
    variables = {**_FOR_WORKERS, **ours, **(found.get("env_vars") or {})}
    # Of a submitted job Ray has the hook here, too, and refuses one that differs; ours runs it.
    if variables.get(_SETUP_HOOK) == users:
        variables.pop(_SETUP_HOOK, None)
    found["env_vars"] = variables
    found["worker_process_setup_hook"] = _setup_hook(users, is_hosted=ray_service.is_hosted())
    return found


def join_worker(*, is_hosted: bool = False) -> None:
    """Prepare this worker process: the first call that reaches it gives it a role and a rank.

    Args:
        is_hosted: whether an actor of the job hosts the service.
    """
    try:
        if is_hosted:
            ray_service.use_actor()
        ray_tracing.switch_on()
        spans.configure(spans.STATE.budget, otel_tracing=True)  # also of the timer that is open when the run begins
        ray_place.await_call()
    except Exception as error:  # noqa: BLE001 (Ray ends a worker whose setup fails, and with it every call of the job)
        ray_place.say_no_place(error)


def _tell_workers(job: str) -> None:
    """Say which run is active now to workers whose environment names the one before, as far as they have not joined."""
    if RUNTIME.is_active:
        ray_end.end_others()
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
    # Ours may be there from another driver whose child this is, or from the first call; it is not asked by itself.
    if os.environ.get(_HOOK) != _OURS:
        _before = os.environ.get(_HOOK)
        os.environ[_HOOK] = _OURS


def _accompany() -> None:
    """Have the calls of this driver carry a trace context, by which workers notice them, and its end wait."""
    ray_tracing.switch_on()
    ray_end.end_gently()


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


def _of_job_config() -> Mapping[str, Any] | None:
    """Return what `ray.init(job_config=…)` has, which Ray replaces by our answer and does not tell us."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (CPython's own)
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("ray._private.worker", "init"):
            return getattr(frame.f_locals.get("job_config"), "runtime_env", None)
        frame = frame.f_back
    return None


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
