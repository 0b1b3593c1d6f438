"""Where a run goes that another tracker's script begins: to that tracker, too, unless the job says otherwise."""

from __future__ import annotations

import os
from importlib.util import find_spec

from otel_ml import env
from otel_ml.config import Config

__all__ = ["with_own_backend"]


def with_own_backend(exporter: str) -> tuple[str, ...] | None:
    """Return the exporters of a run without `OTEL_ML_EXPORTERS` and `exporter`; None: they are not for us to choose.

    That is where the job names its exporters, where a service elsewhere decides, and where the package is missing.
    """
    is_decided = os.environ.get(env.EXPORTERS.name) or os.environ.get(env.PARENT.name)
    if is_decided or find_spec(exporter) is None or Config.from_env(os.environ).is_remote:
        return None
    usual = ("jsonl", "tensorboard") if find_spec("tensorboard") is not None else ("jsonl",)
    return (*usual, exporter)
