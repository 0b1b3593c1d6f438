"""Where a run goes that another tracker's script begins: what the script names, and what the job names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec

from otel_ml import env
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.config import Config

__all__ = ["with_exporters_of_the_job", "with_own_backend"]


def with_own_backend(exporter: str) -> tuple[str, ...] | None:
    """Return the exporters of a run without `OTEL_ML_EXPORTERS` and `exporter`; None: they are not for us to choose.

    That is where the job names its exporters, where a service elsewhere decides, and where the package is missing.
    """
    environ = RUNTIME.others.given_environ()  # a run that goes on beside has decided for itself and its children alone
    # A child of a run writes where its parent does: PARENT is one of the variables by which it joins.
    is_decided = environ.get(env.EXPORTERS.name) or environ.get(env.PARENT.name)
    if is_decided or find_spec(exporter) is None or Config.from_env(environ).is_remote:
        return None
    usual = ("jsonl", "tensorboard") if find_spec("tensorboard") is not None else ("jsonl",)
    return (*usual, exporter)


def with_exporters_of_the_job(named: Iterable[str]) -> tuple[str, ...]:
    """Return the exporters that a script names and those of `OTEL_ML_EXPORTERS`; `none` there is for none at all."""
    # `none` wins also over what the script names: it is how a job says that no backend is to be written.
    of_the_job = Config.from_env(os.environ).exporters
    return of_the_job if of_the_job == ("none",) else tuple(dict.fromkeys((*named, *of_the_job)))
