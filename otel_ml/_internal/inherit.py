"""What a run hands to other processes: the environment variables by which they join it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_ml import env
from otel_ml._internal.identity import Identity, Parent
from otel_ml.config import Config

__all__ = ["child_environ", "inherited_environ", "run_environ"]


_OF_ONE_PROCESS = frozenset(
    variable.name for variable in (env.RANK, env.WORLD_SIZE, env.LOCAL_RANK, env.SERVICE_NAME, env.RESOURCE_ATTRIBUTES)
)


def run_environ(config: Config, identity: Identity) -> dict[str, str]:
    """Return the variables by which any process joins the run."""
    variables = {
        env.EXPERIMENT_ID.name: identity.run_id,
        env.EXPERIMENT_NAME.name: config.experiment,
        env.DIR.name: str(config.dir),
        env.MODE.name: config.mode,
    }
    if config.name:
        variables[env.RUN_NAME.name] = config.name
    if config.exporters:
        variables[env.EXPORTERS.name] = ",".join(config.exporters)
    return variables


def child_environ(config: Config, identity: Identity, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what makes a process elsewhere (Ray, ssh, a scheduler) a writer of its own in this run.

    The endpoint travels too; rank and role are the other process' own, and it is nobody's child.
    """
    variables = run_environ(config, identity)
    for variable in (*env.VARIABLES, *env.STANDARD):
        if variable.name in environ and variable.name not in _OF_ONE_PROCESS:
            variables.setdefault(variable.name, environ[variable.name])
    variables[env.PARENT.name] = ""
    return variables


def inherited_environ(config: Config, identity: Identity) -> dict[str, str]:
    """Return what makes child processes (fork, spawn, subprocess) join the run as children of this one."""
    parent = Parent(identity.instance, os.getpid(), identity.place.rank, config.role)
    return {**run_environ(config, identity), env.PARENT.name: str(parent)}
