"""Can every variable be read?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from otel_ml import env as worker
from otel_ml._internal.lifecycle.unknown_settings import unknown_settings
from otel_ml.exceptions import MissingDependencyError, OtelMLError
from otel_ml_exporters.registry import check_installed, exporter_class
from otel_ml_service.cli.checks.check import Check
from otel_ml_service.env import VARIABLES as SERVICE_VARIABLES
from otel_ml_service.exporter_makers import NO_EXPORTER

__all__ = ["setting_checks"]


def setting_checks() -> Iterator[Check]:
    """Yield what is wrong with variables, those nobody reads, and exporters that are asked for and cannot be had."""
    variables = {variable.name: variable for variable in (*worker.VARIABLES, *SERVICE_VARIABLES, *worker.STANDARD)}
    problems = [setting.problem for variable in variables.values() if (setting := variable.read()).problem]
    for problem in problems:
        yield Check("wrong", str(problem), "otel-ml env lists all settings; until then the default is in effect")
    if not problems:
        yield Check("ok", "every variable can be read")
    for name, meant in unknown_settings(os.environ).items():
        if meant:
            yield Check("wrong", f"{name} is not a setting", f"set {meant}, if that is meant, and unset {name}")
        else:
            yield Check("note", f"{name} is not a setting of otel_ml: a plug-in may read it", f"else unset {name}")
    asked = worker.EXPORTERS.read().value
    for name in asked if asked != (NO_EXPORTER,) else ():
        yield from _exporter_check(name)


def _exporter_check(name: str) -> Iterator[Check]:
    try:
        exporter_class(name)
        check_installed(name)
    except MissingDependencyError as error:
        yield Check("wrong", f"OTEL_ML_EXPORTERS names {name!r}, and {error.package!r} is not installed",
                    f"pip install 'otel-ml[{error.extra}]'")  # fmt: skip
    except OtelMLError as error:
        yield Check("wrong", f"OTEL_ML_EXPORTERS: {error}", "otel-ml exporters lists them")
