"""Serve a run again that was left, as it was served before: with its exporters, and what these had been told."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from otel_ml.exceptions import ConfigError
from otel_ml_service.config import ServiceConfig
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.service import Service
from otel_ml_service.stored_runs.read_records import facts
from otel_ml_service.stored_runs.unfinished import Unfinished

__all__ = ["service_again"]

# `mlruns`, `sqlite:///mlflow.db` and `file:runs` do; `/data`, `sqlite:////data` and `https://host` do not.
_FROM_FOLDER = re.compile(r"(?:sqlite:///|file:)?(?!/)(?![\w+.\-]+:).")
"""A text that may be a path that begins where the service was started."""


@contextmanager
def service_again(run: Unfinished) -> Iterator[Service]:
    """Yield the service of a run, to be started; inside the block this process has its variables and its folder.

    Raises:
        ConfigError: something of what the exporters had been told cannot be had; they would write to another place.
    """
    served = ServedSettings.read(run.folder.database.parent)
    rendezvous = run.rendezvous.folder.absolute()
    if served is None:
        with _surroundings(_environment_of(run, None), ""):
            yield Service(ServiceConfig.load(rendezvous=rendezvous))
        return
    # What names the run wins over what the service had.
    environ = {**served.environ, **_environment_of(run, served)}
    problems = served.missing(os.environ)
    options = served.options(os.environ, problems)
    folder = _folder(served, options, problems)
    if problems:
        raise ConfigError(*(f"Run {run.id!r}: {problem}" for problem in problems), slug="options-not-kept")
    with _surroundings(environ, folder):
        config = ServiceConfig.load(rendezvous=rendezvous)
        exporters = {name: options.get(name, {}) for name in config.exporters}
        yield Service(replace(config, exporters=exporters), served=served)


def _environment_of(run: Unfinished, served: ServedSettings | None) -> Mapping[str, str]:
    """Return variables for the run's service: its identity, and the exporters it had."""
    known = facts(run.folder)
    began = tuple(mark.name for mark in known.exporters) if known is not None else ()
    # A backend that was never reached has no mark: those that were asked for count, too.
    asked = tuple(served.exporters) if served is not None else ()
    exporters = ",".join(dict.fromkeys((*asked, *began)) or run.exporters)
    identity = {
        "OTEL_ML_EXPERIMENT_ID": run.id,
        "OTEL_ML_EXPERIMENT_NAME": run.experiment,
        "OTEL_ML_RUN_NAME": run.name,
        "OTEL_ML_DIR": str(run.base.absolute()),
    }
    return {**identity, **({"OTEL_ML_EXPORTERS": exporters} if exporters else {})}


def _folder(served: ServedSettings, options: Mapping[str, Mapping[str, Any]], problems: list[str]) -> str:
    """Return where the service was started; "" where that is gone, and nothing depends on it."""
    if os.access(served.folder, os.X_OK):
        return served.folder
    told = [value for given in options.values() for value in given.values() if isinstance(value, str)]
    told += [value for name, value in served.environ.items() if name.endswith("_URI")]
    if any(map(_FROM_FOLDER.match, told)):
        problems.append(
            f"The folder {served.folder!r} is not there, in which the run's service was started: relative paths in the "
            "options of its exporters begin there. Make it again."
        )
    return ""


@contextmanager
def _surroundings(environ: Mapping[str, str], folder: str) -> Iterator[None]:
    """Let this process have these variables, and be in this folder, inside the block: backends' libraries use both."""
    before, here = dict(os.environ), os.open(".", os.O_RDONLY)
    os.environ.update(environ)
    try:
        os.chdir(folder or ".")
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        # By its descriptor: its name may be gone by then.
        os.fchdir(here)
        os.close(here)
