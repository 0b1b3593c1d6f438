"""Which role and rank a worker process of Ray has: found out just before the first call that reaches it runs."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from otel_ml import env
from otel_ml._internal.identity.trials import trainable
from otel_ml._internal.lifecycle.run_of_trial import ROLE as _TRIAL
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.recording import arm
from otel_ml.integrations import ray_next_run, ray_store, ray_trial
from otel_ml.warn_once import reporter

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["await_call", "say_no_place"]

_TASKS = "task"
"""Role of a process that runs tasks: Ray gives a process to any of them."""

_OF_RAY_TRAIN = frozenset({"RayTrainWorker", "RayTrainWorkerActor", "TrainWorker"})
"""Actors whose rank Ray Train sets before it runs the user's function."""

_RUN = "otel-ml-run"
"""What carries the run of a trial from its process to those that it calls."""

_LEAVE_S = 2.0
"""Seconds for what a process recorded as a task, when it becomes an actor, or another trial's."""


def await_call() -> None:
    """Have the next call that reaches this process decide who it is."""
    from opentelemetry import propagate
    from opentelemetry.propagators.composite import CompositePropagator

    if not _PLACE.is_awaited:
        _PLACE.is_awaited = True
        # Ours first: it returns the context as it was given, and the next one puts the caller's span into it.
        both: list[Any] = [_Arrival(), propagate.get_global_textmap()]
        propagate.set_global_textmap(CompositePropagator(both))


def say_no_place(error: Exception) -> None:
    """Say once why this process is not told apart from others."""
    reporter.say("ray-place", f"This Ray worker has no role and rank of its own: {type(error).__name__}: {error}.")


class _Arrival:
    """An OpenTelemetry propagator that notices a call just before the call runs.

    What it carries is the run of the trial that calls, or for which who calls works.
    """

    fields: frozenset[str] = frozenset()

    def extract(
        self, carrier: Mapping[str, str], context: Context | None = None, getter: object = None
    ) -> Context | None:
        """Find out who this process is."""
        try:
            _PLACE.take(carrier.get(_RUN, ""))
        except Exception as error:  # noqa: BLE001 (a user's call runs, whatever Ray's interfaces have become)
            say_no_place(error)
        return context

    def inject(self, carrier: dict[str, str], context: Context | None = None, setter: object = None) -> None:
        """Say in which run of a trial the work is done."""
        try:
            told = _PLACE.told or ray_trial.run_of_trial()
        except Exception as error:  # noqa: BLE001 (a user's call is made, whatever Ray's interfaces have become)
            say_no_place(error)
        else:
            if told:
                carrier[_RUN] = told


class _Place:
    """What Ray made of this process: of task workers it may make an actor's later.

    Attributes:
        is_awaited: the next call decides.
        told: the run of the trial that this process works for, as its caller says it; empty where that is the driver.
    """

    def __init__(self) -> None:
        self.is_awaited = False
        self.told = ""
        self._taken_for: str | None = None
        self._set_here: set[str] = set()
        # Guards all of it: calls of a threaded actor arrive at the same time, and the first decides for all.
        self._lock = threading.RLock()  # a signal handler may be the first to record

    def take(self, told: str = "") -> None:
        """Set role and rank for `init()` or the first record, where nobody said them.

        Args:
            told: the run of the trial that calls. An actor stays in that of who has made it.
        """
        import ray

        context = ray.get_runtime_context()
        actor = context.get_actor_id()
        who = actor or context.get_worker_id()
        if actor and _ends_training(context.get_task_function_name()):
            RUNTIME.shutdown(_LEAVE_S)
            return
        with self._lock:
            # An actor is made once, and stays what it is; a worker for tasks may work for another trial with each
            # call.
            if who != self._taken_for or (not actor and told != self.told):
                self._leave()
                self._become(context, who, told, _role(context.get_task_function_name() if actor else None))
                self._taken_for, self.told = who, told
            elif actor and trainable() is not None:
                ray_trial.follow()
                if context.get_task_function_name().endswith(".stop"):
                    ray_trial.end_after_cleanup()

    def _leave(self) -> None:
        """End what the process was before."""
        for name in self._set_here:
            os.environ.pop(name, None)
        if self._set_here and RUNTIME.is_active:
            RUNTIME.shutdown(_LEAVE_S)
        self._set_here.clear()

    def _become(self, context: Any, who: str, told: str, role: str | None) -> None:
        ray_next_run.follow(context.get_job_id())
        ray_trial.join(told)
        if trainable() is not None:
            self._be(_TRIAL, 0)  # of a run of its own, also in the next process in which it goes on
        elif role is not None:
            of_role = os.environ.get(env.SERVICE_NAME.name) or role
            # Before anything is set: where Ray's store does not answer, the next call begins anew.
            self._be(role, None if _is_given_a_rank(context) else _claimed_rank(context.get_job_id(), of_role, who))
        arm()

    def _be(self, role: str, rank: int | None) -> None:
        self._set(env.SERVICE_NAME.name, role)
        if rank is not None:
            self._set(env.RANK.name, str(rank))
            if "WORLD_SIZE" in os.environ:  # inherited, as `RANK` is: how many drivers there are
                self._set(env.WORLD_SIZE.name, "1")

    def _set(self, name: str, value: str) -> None:
        if not os.environ.get(name):
            os.environ[name] = value
            self._set_here.add(name)


_PLACE = _Place()


def _is_given_a_rank(context: Any) -> bool:
    """Whether somebody has given this process a rank: the user, or a framework as verl in the actor's `runtime_env`.

    A `RANK` that only the environment has was inherited, from a driver that torchrun has started or from a node of the
    cluster: all processes there have the same.
    """
    return bool(os.environ.get(env.RANK.name)) or "RANK" in (context.runtime_env.get("env_vars") or {})


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
    rank = len(ray_store.names(f"{of_role}at/"))  # where to begin: those below are taken
    # True means that somebody had it before: the next rank is tried.
    while ray_store.put(f"{of_role}at/{rank}", who, overwrite=False):
        rank += 1
    ray_store.put(mine, str(rank))
    return rank
