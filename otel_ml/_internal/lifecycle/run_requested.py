"""Whether the environment asks for a run: where nobody calls `init()`, the first record then begins it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_ml._internal.forks import RANK_VARIABLES, creator

__all__ = ["is_run_requested", "is_worker", "may_join_rank_zero"]

_OURS = ("OTEL_ML_", "OTEL_EXPORTER_OTLP_")


def is_run_requested(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for a run: it names one, its place in a job, or where it goes (`env.ASKING`).

    Examples:
        >>> is_run_requested({"OTEL_ML_EXPERIMENT_NAME": "digits"}), is_run_requested({"OTEL_SERVICE_NAME": "x"})
        (True, False)
        >>> is_run_requested({"OTEL_ML_CONSOLE": "off"})
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


def may_join_rank_zero(environ: Mapping[str, str]) -> bool:
    """Whether a launcher says that this is one of several ranks, and not the first, which decides on the run."""
    # Looked up first, so that a program without a launcher does not import the detectors.
    if not any(environ.get(name, "").strip() for name in RANK_VARIABLES):
        return False
    from otel_ml._internal.identity.ranks import detect

    place = detect(environ)
    return place.world_size > 1 and place.rank > 0


def is_worker() -> bool:
    """Whether another process has made this one, by `multiprocessing` or a fork, before it had a run."""
    return creator() != 0 and "OTEL_ML_PARENT" not in os.environ
