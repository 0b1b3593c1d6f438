"""The run of a trial of a search, as W&B's and MLflow's callbacks of Ray Tune have it: the trial's name and parameters.

What the program says itself, a name or another value of a parameter, comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from otel_ml._internal.events.config_values import readable
from otel_ml._internal.events.event_calls import log_params
from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.trials import searched_trial, trial
from otel_ml._internal.run_scope import InScope, Scope
from otel_ml.config import Config

__all__ = ["ROLE", "TrialParams", "is_of_another_trial", "named_after_trial"]

ROLE = "trial"
"""The role that `instrument_ray()` gives to the process of a trial; names of its metrics do not carry it."""


def named_after_trial(config: Config, place: JobPlace, arguments: Mapping[str, object]) -> Config:
    """Return the settings of a run that begins; a trial's run is called as the trial where the program says no name."""
    if not place.trial:
        return config
    # In this order: the name that `init()` was given, the trial's, the one of the environment.
    name = config.name if arguments.get("name") else searched_trial().name or config.name
    prefix = "" if config.role == ROLE else config.prefix
    return replace(config, name=name, prefix=prefix)


def is_of_another_trial(place: JobPlace) -> bool:
    """Whether the process does another trial of a search than the one that `place` was found in."""
    return trial() not in {"", place.trial}


class TrialParams:
    """The configuration of a run's trial, as far as it is recorded: a scheduler such as PBT changes it."""

    def __init__(self) -> None:
        self._recorded: object = {}

    def record(self, place: JobPlace, scope: Scope) -> None:
        """Record the trial's configuration into the run of `scope`, where it is another than what is recorded."""
        if not place.trial or place.rank != 0:
            return
        found, _ = readable(searched_trial().params)
        if repr(found) != repr(self._recorded):  # not by ==: NaN again is the same
            self._recorded = found
            with InScope(scope):
                log_params(found)
