"""Where the environment asks for a run and nobody calls `init()`, the first record starts it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_ml._internal import buffer
from otel_ml._internal.recorder import recorder

__all__ = ["arm", "is_asked_for"]


def is_asked_for(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for recording: any `OTEL_ML_*` variable or an OTLP endpoint is set.

    Examples:
        >>> is_asked_for({"OTEL_ML_EXPERIMENT_NAME": "digits"}), is_asked_for({"OTEL_SERVICE_NAME": "x"})
        (True, False)
    """
    environ = os.environ if environ is None else environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return any(
        value.strip()
        for name, value in environ.items()
        if name.startswith("OTEL_ML_") or (name.startswith("OTEL_EXPORTER_OTLP_") and name.endswith("ENDPOINT"))
    )


def arm() -> None:
    """Let the first record start the run, if the environment asks for one."""
    if is_asked_for():
        recorder.enabled = True
        buffer.sleep(wake)


def wake() -> bool:
    """Start the run, and return whether there is one."""
    from otel_ml._internal.runtime import RUNTIME

    return RUNTIME.wake()
