"""Tasks and actors that a trial of Ray Tune starts, Ray Train's among them: they work in the trial's run.

::

    driver ── its run ──▶ trial's process ── the trial's run ──▶ Ray Train's controller ── the same ──▶ ranks
"""

from __future__ import annotations

import functools
import json
import os

from otel_ml import env
from otel_ml._internal.identity.trials import is_work_for_trial, trainable, trial, work_for_trial
from otel_ml._internal.lifecycle.child_environment import JOINED_BY
from otel_ml._internal.lifecycle.run_of_trial import is_of_another_trial
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.recording import arm

__all__ = ["end_after_cleanup", "follow", "join", "run_of_trial"]

_OF_THE_RUN = (*sorted(JOINED_BY), env.PARENT.name)

_of_driver: dict[str, str | None] = {}
"""What the environment says of the driver's run: that of a trial is in it, too, once it has begun."""


def run_of_trial() -> str:
    """Return what makes a process join the run of the trial that this process does; empty where it does none.

    The run begins by it: without its trial's process nobody would record the trial's parameters.
    """
    if trainable() is None or not trial():
        return ""
    variables = RUNTIME.child_env()
    said = {name: variables[name] for name in _OF_THE_RUN if name in variables}
    return json.dumps([_of_driver.get(env.EXPERIMENT_ID.name), said]) if said else ""


def follow() -> None:
    """In a process that Ray Tune uses again: leave the run of another trial, and record what is new in this one's."""
    session = RUNTIME.current
    if session is None:
        return
    if is_of_another_trial(session.identity.place):
        RUNTIME.end(session)
        arm()
    else:
        session.trial_params.record(session.identity.place, session.scope)


def end_after_cleanup() -> None:
    """Before Ray Tune has the trial stop, for good or for a while: end its run when the trial has cleaned up.

    Its process is killed with the resources of the trial then, mostly before it has come to its end.
    """
    actor = trainable()
    cleanup = actor.cleanup

    @functools.wraps(cleanup)
    def last() -> None:
        try:
            cleanup()
        finally:
            RUNTIME.shutdown()

    actor.cleanup = last


def join(told: str) -> None:
    """Take the variables of the run that a caller's `run_of_trial()` says; without one, go back to the driver's."""
    if is_work_for_trial():
        for name, value in _of_driver.items():
            _put(name, value)
    work_for_trial(is_so=False)
    # Only here is the environment the driver's for certain: before a trial's variables are put in, and after those of
    # one before were taken back.
    _of_driver.update({name: os.environ.get(name) for name in _OF_THE_RUN})
    if not told:
        return
    of_driver, variables = json.loads(told)
    # A run of the user's own, in the `env_vars` of an actor, stays.
    if of_driver == _of_driver[env.EXPERIMENT_ID.name]:
        for name in _OF_THE_RUN:
            _put(name, variables.get(name))
        work_for_trial(is_so=True)


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
