"""Arguments of `init()` that it does not have, such as those of other loggers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from otel_ml.config import Config
from otel_ml.exceptions import ConfigError

__all__ = ["refuse_unknown"]

_OF_OTHERS: Mapping[str, str] = {
    "project": "experiment",
    "config": "params",
    "hparams": "params",
    "group": "tags",
    "job_type": "role",
    "display_name": "name",
    "backends": "exporters",
    "loggers": "exporters",
}
"""What W&B, MLflow and others call it → what it is here."""


def refuse_unknown(unknown: Iterable[str], arguments: Mapping[str, Any]) -> NoReturn:
    """Say which arguments there are not, with all else that is wrong in the same call.

    Args:
        unknown: names that `init()` does not have.
        arguments: those that it has, as they were given.

    Raises:
        ConfigError: always.
    """
    problems = [_problem(name, [*arguments, "params"]) for name in unknown]
    try:
        Config.from_env(**arguments)
    except ConfigError as error:
        problems += error.problems
    raise ConfigError(*problems)


def _problem(name: str, known: list[str]) -> str:
    """Name the argument that is meant.

    Examples:
        >>> _problem("experiment_name", ["experiment", "name"])
        "init(experiment_name=): there is no such argument. Did you mean 'experiment'? Known: experiment, name."
    """
    near = [_OF_OTHERS[name]] if name in _OF_OTHERS else difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"init({name}=): there is no such argument.{hint} Known: {', '.join(known)}."
