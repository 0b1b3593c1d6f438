"""Where the environment asks for a run and nobody calls `init()`, the first record starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_ml._internal import buffer
from otel_ml._internal.recorder import recorder

__all__ = ["arm", "is_asked_for"]

_OURS = ("OTEL_ML_", "OTEL_EXPORTER_OTLP_")


def is_asked_for(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for a run: it names one, its place in a job, or where it goes (`env.ASKING`).

    Examples:
        >>> is_asked_for({"OTEL_ML_EXPERIMENT_NAME": "digits"}), is_asked_for({"OTEL_SERVICE_NAME": "x"})
        (True, False)
        >>> is_asked_for({"OTEL_ML_CONSOLE": "off"})
        False
    """
    environ = os.environ if environ is None else environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    given = {name for name, value in environ.items() if name.startswith(_OURS) and value.strip()}
    if not given:
        return False
    from otel_ml import env  # the table, which a program with none of them does not need

    return any(variable.name in given for variable in env.ASKING)


def arm() -> None:
    """Let the first record start the run, if the environment asks for one."""
    if is_asked_for():
        recorder.enabled = True
        buffer.sleep(wake)


def wake() -> bool:
    """Start the run, and return whether there is one."""
    from otel_ml._internal.runtime import RUNTIME

    return RUNTIME.wake()
