"""A further run of a Ray driver: workers have the variables of the one that was active in `ray.init()`.

::

    driver                                       worker process that Ray starts from then on
    init("b"), instrument_ray() ── the job's ──▶ before its first call: what it has of run a becomes run b's
                                   key-value store
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from otel_ml import env
from otel_ml.integrations import ray_store

__all__ = ["announce", "follow", "remember"]

_given_to_workers: dict[str, str] = {}

_followed: dict[str, str] = {}
"""In a worker: the variables that it has of a run which came after `ray.init()`."""


def remember(variables: Mapping[str, str]) -> None:
    """Note, as a driver in `ray.init()`, by which variables the workers of the job join."""
    _given_to_workers.clear()
    _given_to_workers.update(variables)


def announce(job: str, variables: Mapping[str, str]) -> None:
    """Have workers that come from now on join the run of `variables`."""
    if _given_to_workers:
        ray_store.put(_key(job), json.dumps([_given_to_workers, dict(variables)]))


def follow(job: str) -> None:
    """Take, as a worker before its first call, the variables of the newest run; what its own `env_vars` say wins.

    A process of tasks that Ray makes an actor of has followed before.
    """
    said = ray_store.kept(_key(job))
    if said is None:
        return
    given, newest = json.loads(said)
    before = _followed or given
    # A run of the user's own, in the `env_vars` of an actor, stays.
    if os.environ.get(env.EXPERIMENT_ID.name) != before[env.EXPERIMENT_ID.name]:
        return
    # What differs from the earlier run's was set by somebody else, and stays.
    for name in [name for name, value in before.items() if os.environ.get(name) == value]:
        del os.environ[name]
    for name, value in newest.items():
        os.environ.setdefault(name, value)
    _followed.clear()
    _followed.update(newest)


def _key(job: str) -> str:
    return f"{job}/run"
