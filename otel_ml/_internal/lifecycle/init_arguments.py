"""What an `init()` asks for, beside the run that there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.ranks import JobPlace
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError

__all__ = [
    "another_run",
    "changes",
    "checked",
    "contradicted",
    "exporters_unused",
    "new_arguments",
    "of_a_writer",
    "say_problems",
    "shown",
]

_OF_A_WRITER = frozenset({"role", "rank", "world_size", "tags", "notes", "prefix", "topology"})


def checked(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Return the settings of a new run; say which variables are not used as they are.

    Raises:
        ConfigError: arguments are wrong, or under `OTEL_ML_STRICT=true` variables; all of them in one message.
    """
    config = Config.from_env(environ, **arguments)
    if config.strict and config.problems:
        raise ConfigError(*config.problems)
    say_problems(config)
    return config


def say_problems(config: Config) -> None:
    """Say which variables are not used as they are."""
    for problem in config.problems:
        reporter.say("wrong-setting", problem)


def new_arguments(arguments: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments that were not given before, or otherwise."""
    given = _given(arguments)
    return {key: value for key, value in given.items() if key not in before or before[key] != value}


def changes(new: Mapping[str, Any], config: Config, place: JobPlace) -> list[str]:
    """Return those of `new` that ask for something else than what is in force; a topology only adds to it.

    Raises:
        ConfigError: arguments are wrong.
    """
    if not new:
        return []
    is_so = replace(
        config, rank=place.rank, world_size=place.world_size
    )  # of a launcher, where the settings say nothing
    # As settings, since one setting may be written in several ways: `exporters="jsonl"`, `exporters=["jsonl"]`.
    asked = Config.from_env(**new)
    return sorted(key for key in new if key != "topology" and getattr(is_so, key) != getattr(asked, key))


def another_run(arguments: Mapping[str, Any], experiment: str, name: str, run_id: str) -> bool:
    """Whether an `init()` asks for another run than this one: explicitly for another experiment, name or id.

    Where it says an id, that decides: the same one is the same run, whatever it is called.
    """
    if arguments.get("id"):
        return bool(arguments["id"] != run_id)
    asked = (arguments.get("experiment"), experiment), (arguments.get("name"), name)
    return any(given and given != known for given, known in asked)


def contradicted(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return the names of parameters that both say, and differently; of nested ones, with a dot."""
    found = []
    for name in before.keys() & now.keys():
        old, new = before[name], now[name]
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{name}.{inner}" for inner in contradicted(old, new)]
        elif repr(old) != repr(new):  # not by ==: NaN again is the same
            found.append(name)
    return sorted(found)


def of_a_writer(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments that say who this process is, not which run it is in; none where it has no place."""
    given = _given(arguments)
    if "role" not in given and "rank" not in given:
        return {}
    return {key: value for key, value in given.items() if key in _OF_A_WRITER}


def shown(arguments: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{key}={arguments[key]!r}" for key in keys)


def exporters_unused(config: Config, given: object) -> str:
    """Say that a service somewhere else decides on exporters."""
    return (
        f"init(exporters={given!r}) is not used: the service at {config.endpoint.shown} decides where the run is "
        f"written. Name them where it is started, or unset {config.endpoint.source}."
    )


def _given(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    # `()` is what `tags` has where none are given.
    return {key: value for key, value in arguments.items() if value is not None and value != ()}
