"""What a run hands to other processes: the environment variables by which they join it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from otel_ml import env
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.forks import (
    creator_by_multiprocessing,
    is_imported_again,
    launch_variables,
    parent_of_program,
)
from otel_ml._internal.identity.ranks import BY_HAND, JobPlace, detect
from otel_ml._internal.identity.run_identity import (
    ANYWHERE,
    Identity,
    Parent,
    launcher_id,
)
from otel_ml._internal.lifecycle.init_arguments import another_run
from otel_ml.config import Config

__all__ = [
    "JOINED_BY",
    "child_environ",
    "handed_on",
    "inherited_environ",
    "is_launch_of_its_own",
    "own_arguments",
    "own_environ",
    "run_environ",
]

_OF_A_RUN = (env.EXPERIMENT_NAME, env.RUN_NAME, env.EXPERIMENT_ID)

_OF_ALL_RANKS = frozenset({"torchrun", "slurm", "mpi", "flux", "submitit"})
"""Launchers that start every rank: whoever calls one is none of them. Others are called by what is rank 0 itself."""

_BY_RANK_0 = "lightning"
"""The launcher that starts a script again for its other ranks: a name that is made of the time is another one there."""


_OF_ONE_PROCESS = frozenset(
    variable.name for variable in (env.RANK, env.WORLD_SIZE, env.LOCAL_RANK, env.SERVICE_NAME, env.RESOURCE_ATTRIBUTES)
)


JOINED_BY = frozenset(variable.name for variable in (*_OF_A_RUN, env.DIR, env.MODE, env.EXPORTERS))
"""Variables by which a process joins a run: those of `run_environ`."""


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
    """Return what makes a process elsewhere (Ray, ssh, a scheduler) a writer of this run.

    The endpoint travels too. Rank and role are the other process' own; one that has neither is a child of this one.
    """
    variables = run_environ(config, identity)
    for variable in (*env.VARIABLES, *env.STANDARD):
        if variable.name in environ and variable.name not in _OF_ONE_PROCESS:
            variables.setdefault(variable.name, environ[variable.name])
    giver = Parent(identity.instance, ANYWHERE, identity.place.rank, config.role, is_id_given=True)
    return {**variables, env.PARENT.name: str(giver)}


def inherited_environ(config: Config, identity: Identity, given: Mapping[str, str]) -> dict[str, str]:
    """Return what makes child processes (fork, spawn, subprocess) join the run as children of this one.

    `given` is the environment without what runs have set in it, here or in a process that this one is a fork of.
    """
    parent = _parent(config, identity, identity.instance, given)
    return {**run_environ(config, identity), env.PARENT.name: str(parent)}


def handed_on(
    config: Config, identity: Identity, environ: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a forked child as a spawned one would have it; `given` as for `inherited_environ()`."""
    # What a spawned child is told is written by the process that made it; here the child writes it itself.
    parent = replace(_parent(config, identity, identity.parent or "", given), pid=os.getppid())
    return {**environ, **run_environ(config, identity), env.PARENT.name: str(parent)}


def _parent(config: Config, identity: Identity, instance: str, given: Mapping[str, str]) -> Parent:
    before = Parent.parse(config.parent)
    is_id_given = given.get(env.EXPERIMENT_ID.name) == identity.run_id
    return Parent(
        instance,
        os.getpid(),
        identity.place.rank,
        config.role,
        identity.place.launcher,
        before.is_id_given if before is not None else is_id_given,
    )


def own_arguments(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what the first `init()` of a process asks for: without the name where its script has made up another one.

    A script that is run again for another rank of its own launch, or imported again for a spawned child, makes up a
    name anew, with the time of day perhaps. The launch is one run, and rank 0 has named it.
    """
    parent = Parent.parse(environ.get(env.PARENT.name, ""))
    if parent is None or arguments.get("id") or not another_run(arguments, *_run_of(environ)):
        return arguments
    if not is_imported_again() and not _is_run_again(parent, environ):
        return arguments
    experiment, name, _ = _run_of(environ)
    asked = {key: arguments[key] for key in ("experiment", "name") if arguments.get(key)}
    reporter.say(
        "other-name",
        f"init({', '.join(f'{key}={value!r}' for key, value in asked.items())}) has another name than the run of rank "
        f"{parent.rank}, which has started this process with the same script: {experiment}/{name}. It is recorded into "
        "that run. Make the name up once, where rank 0 alone comes by.",
    )
    return {key: value for key, value in arguments.items() if key not in asked}


def _is_run_again(parent: Parent, environ: Mapping[str, str]) -> bool:
    place = detect(environ)
    return place.launcher == _BY_RANK_0 and parent.pid == os.getppid() and place.rank != parent.rank


def own_environ(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment as an `init()` with these arguments has to see it.

    A start is a run. What a parent's run wrote into the environment makes a process join it where it is not a start of
    its own: a fork or a child of `multiprocessing`, another rank of its launch, or what was given `child_env()`; and
    where the `init()` does not explicitly ask for another experiment, name or id. One that asks for the parent's id
    joins, too.
    """
    written = environ.get(env.PARENT.name)
    if written is None:
        return environ
    parent, place = Parent.parse(written), detect(environ)
    is_other = another_run(arguments, *_run_of(environ))
    has_number = parent is not None and not place.launcher and _has_number_of(parent, environ)
    is_of_launch = has_number or bool(parent and place.launcher and _is_of_launch(place, parent, environ))
    is_of_same_place = is_of_launch and parent is not None and place.rank == parent.rank
    is_asked_for = bool(arguments.get("id")) and not is_other
    # `child_env()` of versions that named no parent left it empty.
    is_handed = parent is None or parent.pid == ANYWHERE
    # A rank of the parent's launch, or one that the parent has started, as Lightning does. In the parent's own place it
    # is a program that the parent has started.
    is_rank = place.launcher != "" and (is_of_launch or place.launcher not in _OF_ALL_RANKS) and not is_of_same_place
    if (is_asked_for or is_handed or creator_by_multiprocessing() or is_rank) and not is_other:
        return environ
    hidden = {env.PARENT.name}
    # An id that the environment had before any run of ours is the job's: who is started in it is in that run, too.
    if is_other or (parent is not None and not parent.is_id_given):
        # Experiment and folder stay, for a run of its own takes them over (docs/protocol.md §2.2), and so do mode and
        # exporters.
        hidden |= {env.EXPERIMENT_ID.name, env.RUN_NAME.name}
    own = {name: value for name, value in environ.items() if name not in hidden}
    handed = environ.get(env.EXPERIMENT_ID.name, "")
    if is_of_launch and env.EXPERIMENT_ID.name in hidden:
        # A program that a rank has started has the variables of its launch, and is not a rank of it.
        return {name: value for name, value in own.items() if name not in launch_variables(own)}
    # The launch's own id is that of the parent's run: all its ranks make another one of what they ask for.
    if place.launcher and is_other and launcher_id(place, parent_of_program(), 0) == handed:
        asked = "\0".join(str(arguments.get(name)) for name in ("experiment", "name"))
        own[env.EXPERIMENT_ID.name] = f"{handed}-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    return own


def is_launch_of_its_own(environ: Mapping[str, str]) -> bool:
    """Whether this is a rank of a launch that a process with a run has started, whose run the environment names."""
    parent, place = Parent.parse(environ.get(env.PARENT.name, "")), detect(environ)
    if parent is None or parent.pid == ANYWHERE or parent.is_id_given or creator_by_multiprocessing():
        return False
    return place.launcher in _OF_ALL_RANKS and not _is_of_launch(place, parent, environ)


def _is_of_launch(place: JobPlace, parent: Parent, environ: Mapping[str, str]) -> bool:
    """Whether this process is in the launch of the process whose run the environment names, as far as can be told.

    `sbatch` and `srun` hand a rank's environment to a job or a step of its own. A run that is called as a step of SLURM
    says which step it began in.
    """
    if place.launcher != parent.launcher:
        return False
    step = re.match(r"slurm-\d+(?:_\d+)?\.[^-]+", environ.get(env.EXPERIMENT_ID.name, ""))
    return place.launcher != "slurm" or parent.is_id_given or step is None or step[0] == place.job


def _run_of(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Return experiment, name and id of the run that the environment names."""
    experiment, name, run_id = (environ.get(variable.name, "") for variable in _OF_A_RUN)
    return experiment, name, run_id


def _has_number_of(parent: Parent, environ: Mapping[str, str]) -> bool:
    """Whether the rank that our variables say is the parent's own, which it was given by hand."""
    return parent.launcher == BY_HAND and environ.get(env.RANK.name, "").strip() == str(parent.rank)
